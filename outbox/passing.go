package outbox

import (
	"context"
	"errors"
	"io"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/ledger"
)

// passing marks an error that is the moment's and not the projection's.
type passing struct{ error }

func (p passing) Unwrap() error { return p.error }

// mayPass says whether the same thing may succeed when it is done again. Whoever asks has looked at its own context before:
// then a deadline is that of one statement.
func mayPass(err error) bool {
	var fromServer *pgconn.PgError
	var moment passing
	if ledger.MayPass(err) {
		return true
	}
	return !errors.As(err, &fromServer) && (errors.As(err, &moment) || errors.Is(err, context.DeadlineExceeded))
}

// mayPassOutside is mayPass for what is done outside of folds. There an unexpected end is that of a connection, whose server
// was killed in mid-answer; in a fold it may as well be that of a body, and stays.
func mayPassOutside(err error) bool {
	return mayPass(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}
