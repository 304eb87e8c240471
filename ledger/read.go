package ledger

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

var (
	//go:embed sql/read.sql
	readSQL string
	//go:embed sql/head.sql
	headSQL string
	//go:embed sql/position_before.sql
	positionBeforeSQL string
)

// Querier runs a query: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// MaxPage is the most positions that one [Read] looks at.
const MaxPage = 100_000

// Read returns the events in the window of positions (after, after+limit] in order, and the last position of that
// window that exists: the place to read on from. With kinds, only events of those kinds are returned, and
// through counts the others as read. Where nothing lies beyond after, it returns no events and after itself.
//
// limit is 1 to [MaxPage]; there is no default. Read sees what has been sequenced; call [Sequence] first to see what has
// committed. A position that is missing is an error. The role needs what daybook_relay has.
func Read(ctx context.Context, db Querier, after Position, limit int, kinds ...Kind) (events []Event, through Position, err error) {
	if limit < 1 || limit > MaxPage {
		return nil, after, fmt.Errorf("daybook: read: limit is %d, must be 1 to %d", limit, MaxPage)
	}
	// Plain strings, and null for none: in pgx's modes without a description of the statement, it cannot encode
	// a slice of another type.
	var texts []string
	for _, kind := range kinds {
		texts = append(texts, string(kind))
	}
	rows, err := db.Query(ctx, readSQL, int64(after), int64(limit), texts)
	if err != nil {
		return nil, after, fmt.Errorf("daybook: read events after %d: %w", after, err)
	}
	defer rows.Close()
	through = after
	for rows.Next() {
		event, ok, err := scanEvent(rows)
		if err != nil {
			return nil, after, fmt.Errorf("daybook: read events after %d: %w", after, err)
		}
		// Dense positions make a lost row visible at no cost.
		if event.Position != through+1 {
			return nil, after, fmt.Errorf("daybook: read events after %d: position %d follows %d; run daybook verify", after, event.Position, through)
		}
		through = event.Position
		if ok {
			events = append(events, event)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, after, fmt.Errorf("daybook: read events after %d: %w", after, err)
	}
	return events, through, nil
}

// scanEvent reads one row; ok is false where the row stands for an event of another kind.
func scanEvent(rows pgx.Rows) (event Event, ok bool, err error) {
	var (
		id                      *int64
		kind, scope, keyPreview *string
		jobID                   *uuid.UUID
		keyHash, body           []byte
		recordedAt              *time.Time
	)
	err = rows.Scan(&event.Position, &id, &kind, &jobID, &scope, &keyHash, &keyPreview, &body, &recordedAt, &event.SequencedAt)
	if err != nil || id == nil {
		return event, false, err
	}
	event.ID, event.Kind, event.Body = *id, Kind(*kind), body
	event.RecordedAt, event.SequencedAt = recordedAt.UTC(), event.SequencedAt.UTC()
	if jobID != nil {
		event.JobID = *jobID
	}
	if keyHash != nil {
		if len(keyHash) != len(KeyHash{}) {
			return event, false, errors.New("a stored key hash does not have 32 bytes")
		}
		event.KeyHash = (*KeyHash)(keyHash)
	}
	// Events about a job's life name its key, but not once more what the key's own events have told.
	if scope != nil {
		event.Scope = *scope
	}
	if keyPreview != nil {
		event.KeyPreview = *keyPreview
	}
	return event, true, nil
}

// All returns the events after a position in order, page by page, up to the head of the ledger as it is when the last
// page is read. It yields one error at most, and then ends. With kinds, only events of those kinds. No connection is held
// between two pages of 1,000 positions. The role needs what daybook_relay has.
func All(ctx context.Context, db Querier, after Position, kinds ...Kind) iter.Seq2[Event, error] {
	const page = 1000
	return func(yield func(Event, error) bool) {
		for {
			events, through, err := Read(ctx, db, after, page, kinds...)
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, event := range events {
				if !yield(event, nil) {
					return
				}
			}
			if through == after {
				return
			}
			after = through
		}
	}
}

// Head returns the last position given; 0 where there is none.
func Head(ctx context.Context, db Querier) (Position, error) {
	rows, err := db.Query(ctx, headSQL)
	if err != nil {
		return 0, fmt.Errorf("daybook: read the head: %w", err)
	}
	head, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[Position])
	if err != nil {
		return 0, fmt.Errorf("daybook: read the head: %w", err)
	}
	return head, nil
}

// PositionBefore returns the position after which to [Read] for the events that were decided at or after an instant,
// which is their RecordedAt: the one before the first such event, or the last position given where there is none. All of
// these events are beyond it, and possibly others between them, which were decided earlier and committed later.
//
// It goes by the clock of the server: where that was set back, or another server with another clock has taken over, events
// of the time in between may be found on either side.
//
// It sees what has been sequenced; call [Sequence] first to see what has committed.
func PositionBefore(ctx context.Context, db Querier, instant time.Time) (Position, error) {
	rows, err := db.Query(ctx, positionBeforeSQL, instant)
	if err != nil {
		return 0, fmt.Errorf("daybook: find the first event from %v on: %w", instant, err)
	}
	before, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[Position])
	if err != nil {
		return 0, fmt.Errorf("daybook: find the first event from %v on: %w", instant, err)
	}
	return before, nil
}
