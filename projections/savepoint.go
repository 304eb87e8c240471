package projections

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

// savepoint is what one lane after another works behind, in a transaction for all of them. It is set, with everything else
// that comes before a fold, in one round trip: on small ranges, which a runner that keeps up has, round trips are most of
// the work.
type savepoint struct {
	tx pgx.Tx
	// set: there is one. used: something was done behind it.
	set, used bool
	// path is the search_path as it is pinned; "" where it is not, or perhaps not any more.
	path string
}

const (
	setSavepoint     = "savepoint daybook_lane"
	releaseSavepoint = "release savepoint daybook_lane"
	undoSavepoint    = "rollback to savepoint daybook_lane"
)

// take is [lane.take] of live tables, behind the savepoint, which keeps what the lanes before have done.
func (s *savepoint) take(ctx context.Context, l *lane, through ledger.Position) error {
	o := &opening{savepoint: s, lane: l}
	moved := ledger.MoveCursor(ctx, o, l.place.cursor, l.at, through)
	version, err := o.close()
	switch {
	case moved != nil:
		return moved
	case err != nil:
		return fmt.Errorf("daybook: projection %s: read its version: %w", l.Name, err)
	}
	return l.suits(version)
}

// undo goes back to the savepoint because of an error, and returns that error where this is not possible.
func (s *savepoint) undo(ctx context.Context, cause error) error {
	if !s.set || ctx.Err() != nil || s.tx.Conn().IsClosed() {
		return cause
	}
	if _, err := s.tx.Exec(ctx, undoSavepoint); err != nil {
		// Such as after a fold that has left its rows open. That is no fault of the connection, whatever err is.
		return fmt.Errorf("%w, and that could not be undone: %v", cause, err) //nolint:errorlint // the cause is what counts
	}
	s.used, s.path = false, ""
	return nil
}

// opening is a round trip: the search_path, the savepoint, the one statement that it is asked for, and the version of the
// live tables. It is a ledger.Querier, because how a cursor is moved is package ledger's.
type opening struct {
	*savepoint

	lane    *lane
	results pgx.BatchResults
}

// Query sends all of it, and returns the rows of the statement.
func (o *opening) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	batch := &pgx.Batch{}
	path := searchPath(o.lane.place.schema)
	if path != o.path {
		batch.Queue("set local search_path = " + path)
	}
	if o.used {
		batch.Queue(releaseSavepoint)
	}
	if o.used || !o.set {
		batch.Queue(setSavepoint)
	}
	before := batch.Len()
	batch.Queue(sql, args...)
	batch.Queue(liveVersionSQL, o.lane.Name)
	o.results = o.tx.SendBatch(ctx, batch)
	for range before {
		if _, err := o.results.Exec(); err != nil {
			return nil, err
		}
	}
	o.set, o.used, o.path = true, true, path
	return o.results.Query()
}

// close ends the round trip, and returns the version, nil where there is none.
func (o *opening) close() (version *int, err error) {
	err = o.results.QueryRow().Scan(&version)
	return version, errors.Join(err, o.results.Close())
}
