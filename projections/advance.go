package projections

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

// database is a pool, or a connection outside a transaction.
type database interface {
	ledger.Querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// advance moves the lanes, sorted by name, up to the end, batch by batch, and calls a function after each. An error of
// one lane stays in that lane; the returned one is about all of them.
func advance(
	ctx context.Context, db database, from *source, lanes []*lane, batch int, end ledger.Position, after func(),
) error {
	limit := batch
	var suspect ledger.Position
	for {
		least, ok := hindmost(lanes)
		if !ok || least >= end {
			return nil
		}
		if least >= suspect {
			limit = batch
		}
		p := from.next(ctx, least, min(limit, int(end-least)), end)
		if p.err != nil {
			return p.err
		}
		if p.through == least {
			return fmt.Errorf("daybook: position %d does not exist, the last one is %d; run daybook doctor", end, least)
		}
		failed, err := step(ctx, db, lanes, p)
		if err != nil {
			return err
		}
		if failed != nil {
			// What a lane fails on is cut smaller until a single position is left. The other lanes have it by then.
			to := failed.before(p.through)
			if to == failed.lane.at.Position {
				failed.lane.err = failed.err
				suspect = 0
				continue
			}
			limit, suspect = int(to-least), p.through
		}
		if after != nil {
			after()
		}
	}
}

// hindmost returns the least position of the lanes that can go on; not ok where none can.
func hindmost(lanes []*lane) (least ledger.Position, ok bool) {
	for _, l := range lanes {
		if l.err == nil && (!ok || l.at.Position < least) {
			least, ok = l.at.Position, true
		}
	}
	return least, ok
}

// failure is a lane with a batch that it cannot fold.
type failure struct {
	lane *lane
	err  *FoldError
}

// before returns the position up to which to try next; the lane's own where the batch was a single position.
func (f *failure) before(through ledger.Position) ledger.Position {
	at := f.lane.at.Position
	switch bad := f.err; {
	case through == at+1:
		return at
	case bad.EventID != 0 && bad.Position > at && bad.Position <= through:
		return max(at+1, bad.Position-1)
	}
	return at + (through-at)/2
}

// step folds one page into the lanes that it is new to, in one transaction. It returns the first of the lanes that
// could not fold it.
func step(ctx context.Context, db database, lanes []*lane, p page) (*failure, error) {
	var (
		moved, stale []*lane
		failed       *failure
		own          bool // the error is a lane's own
	)
	keep := func(l *lane, err error) bool {
		var foldErr *FoldError
		var versionErr *VersionError
		switch {
		case errors.Is(err, ledger.ErrCursorMoved):
			stale = append(stale, l)
		case errors.As(err, &foldErr):
			if failed == nil {
				failed = &failure{lane: l, err: foldErr}
			}
		case errors.As(err, &versionErr):
			l.err = err
		default:
			return false
		}
		return true
	}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, l := range lanes {
			if l.err != nil || l.at.Position >= p.through {
				continue
			}
			err := stepLane(ctx, tx, l, p, len(lanes) > 1)
			if err == nil {
				moved = append(moved, l)
				continue
			}
			own = keep(l, err)
			if !own || len(lanes) == 1 {
				return err
			}
		}
		return nil
	})
	if err != nil && (!own || len(lanes) > 1) {
		return nil, fmt.Errorf("daybook: project after position %d: %w", p.after, err)
	}
	for _, l := range moved {
		l.at.Position = p.through
	}
	for _, l := range stale {
		l.reopen(ctx, db)
	}
	return failed, nil
}

// stepLane folds a page into one lane; beside others in a savepoint, so that its failure is its own.
func stepLane(ctx context.Context, tx pgx.Tx, l *lane, p page, beside bool) error {
	fold := func(tx pgx.Tx) error {
		if _, err := l.take(ctx, tx, p.through); err != nil {
			return err
		}
		return l.fold(ctx, tx, l.at.Position, l.after(l.at.Position, p.events))
	}
	if !beside {
		return fold(tx)
	}
	return pgx.BeginFunc(ctx, tx, fold)
}

// reopen reads the lane's cursor anew.
func (l *lane) reopen(ctx context.Context, db database) {
	l.at, l.err = ledger.OpenCursor(ctx, db, l.place.cursor, 0)
}
