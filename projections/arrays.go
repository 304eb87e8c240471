package projections

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// Columns of a batch, in the types that pgx encodes without reflection: for a slice of pointers, or of uuid.UUID, it
// takes several times as long as the rest of the fold.
type (
	texts    = pgtype.FlatArray[pgtype.Text]
	instants = pgtype.FlatArray[pgtype.Timestamptz]
	uuids    = pgtype.FlatArray[pgtype.UUID]
)

// text returns a text, null where it is empty.
func text(s string) pgtype.Text { return pgtype.Text{String: s, Valid: s != ""} }

// instant returns an instant, null where it is zero.
func instant(at time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: at, Valid: !at.IsZero()}
}

func id(u uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: u, Valid: true} }

// idOrNull returns an id, null where it is zero.
func idOrNull(u uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: u, Valid: u != uuid.Nil} }
