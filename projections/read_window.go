package projections

import (
	"context"
	_ "embed" // the statement
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/read_window.sql
var readWindowSQL string

// readWindow is [ledger.Read] for a window of which every position exists, which takes values as they are sent: that is a
// third of the time, and matters where all of a ledger is read.
func readWindow(
	ctx context.Context, db ledger.Querier, after ledger.Position, limit int, kinds []ledger.Kind,
) (_ []ledger.Event, through ledger.Position, err error) {
	var texts []string
	for _, kind := range kinds {
		texts = append(texts, string(kind))
	}
	rows, err := db.Query(ctx, readWindowSQL, int64(after), int64(limit), texts)
	if err != nil {
		return nil, after, fmt.Errorf("daybook: read events after %d: %w", after, err)
	}
	defer rows.Close()
	if !isBinary(rows) {
		// Some of pgx's modes have texts only.
		rows.Close()
		return ledger.Read(ctx, db, after, limit, kinds...)
	}
	events, kept := make([]ledger.Event, 0, limit), keeping{}
	for through = after; rows.Next(); through++ {
		event, err := eventOf(rows.RawValues(), &kept)
		if err == nil && event.Position != through+1 {
			err = fmt.Errorf("position %d follows %d; run daybook verify", event.Position, through)
		}
		if err != nil {
			return nil, after, fmt.Errorf("daybook: read events after %d: %w", after, err)
		}
		if event.ID != 0 {
			events = append(events, event)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, after, fmt.Errorf("daybook: read events after %d: %w", after, err)
	}
	if through != after+ledger.Position(limit) {
		return nil, after, fmt.Errorf("daybook: read events after %d: position %d does not exist; run daybook doctor", after, through+1)
	}
	return events, through, nil
}

func isBinary(rows pgx.Rows) bool {
	for _, field := range rows.FieldDescriptions() {
		switch {
		case field.Format == pgx.BinaryFormatCode:
		case field.DataTypeOID == pgtype.TextOID || field.DataTypeOID == pgtype.JSONOID: // the same bytes in either
		default:
			return false
		}
	}
	return true
}

// eventOf takes an event out of a row in PostgreSQL's binary format; its ID is 0 where it was not wanted. The row's own
// memory is used again, so values are kept.
func eventOf(values [][]byte, kept *keeping) (event ledger.Event, err error) {
	r := rawRow{values: values}
	event.Position = ledger.Position(r.bigint())
	if event.ID = r.bigint(); event.ID == 0 {
		return event, r.err
	}
	event.Kind = ledger.Kind(kept.text(r.bytes()))
	if job := r.bytes(); len(job) == len(event.JobID) {
		event.JobID = uuid.UUID(job)
	}
	event.Scope = kept.text(r.bytes())
	if hash := r.bytes(); hash != nil {
		if len(hash) != len(ledger.KeyHash{}) {
			return event, errors.New("a stored key hash does not have 32 bytes")
		}
		event.KeyHash = kept.hash(ledger.KeyHash(hash))
	}
	event.KeyPreview = string(r.bytes())
	event.Body = kept.bytes(r.bytes())
	event.RecordedAt, event.SequencedAt = r.instant(), r.instant()
	return event, r.err
}

// rawRow takes one value after the other; null is the zero value.
type rawRow struct {
	values [][]byte
	err    error
}

func (r *rawRow) bytes() []byte {
	value := r.values[0]
	r.values = r.values[1:]
	return value
}

func (r *rawRow) bigint() int64 {
	value := r.bytes()
	switch len(value) {
	case 0:
		return 0
	case 8:
		return int64(binary.BigEndian.Uint64(value)) //nolint:gosec // two's complement, as it is sent
	}
	r.err = fmt.Errorf("a number has %d bytes, not 8", len(value))
	return 0
}

// instant is sent in microseconds from the year 2000.
func (r *rawRow) instant() time.Time {
	const year2000 = 946_684_800_000_000
	if r.values[0] == nil {
		r.bytes()
		return time.Time{}
	}
	return time.UnixMicro(r.bigint() + year2000).UTC()
}
