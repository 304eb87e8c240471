package projections

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

// database is a pool, or a connection outside a transaction.
type database interface {
	ledger.Querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// walk is a number of lanes on their way through the ledger together, so that it is read once for all of them.
type walk struct {
	db    database
	from  *source
	lanes []*lane // sorted by name
	batch int
	// apart: each lane's part of a batch is a transaction of its own, and they run at once. Otherwise a batch is one.
	apart bool
	// after, where it is not nil, is called after each batch.
	after func()
}

// advance moves the lanes up to the end, batch by batch. An error of one lane stays in that lane, and in those of the
// same projection; the returned one is about all of them.
func (w *walk) advance(ctx context.Context, end ledger.Position) error {
	limit := w.batch
	var suspect ledger.Position
	for {
		least, ok := hindmost(w.lanes)
		if !ok || least >= end {
			return nil
		}
		if least >= suspect {
			limit = w.batch
		}
		p := w.from.next(ctx, least, min(limit, int(end-least)), end)
		if p.err != nil {
			return p.err
		}
		if p.through == least {
			return fmt.Errorf("daybook: position %d does not exist, the last one is %d; run daybook doctor", end, least)
		}
		failed, err := w.step(ctx, p)
		if err != nil {
			return err
		}
		if failed != nil {
			// What a lane fails on is cut smaller until a single position is left. The other lanes have it by then.
			to := failed.before(p.through)
			if to == failed.lane.at.Position {
				w.give(failed)
				suspect = 0
				continue
			}
			limit, suspect = int(to-least), p.through
		}
		if w.after != nil {
			w.after()
		}
	}
}

// give ends the lanes of the projection that failed.
func (w *walk) give(failed *failure) {
	for _, l := range w.lanes {
		if l.Name == failed.lane.Name && l.err == nil {
			l.err = failed.err
		}
	}
}

func (w *walk) step(ctx context.Context, p page) (*failure, error) {
	if !w.apart {
		return step(ctx, w.db, w.lanes, p)
	}
	failures, errs := make([]*failure, len(w.lanes)), make([]error, len(w.lanes))
	var working sync.WaitGroup
	for i := range w.lanes {
		working.Go(func() { failures[i], errs[i] = step(ctx, w.db, w.lanes[i:i+1], p) })
	}
	working.Wait()
	for _, failed := range failures {
		if failed != nil {
			return failed, errors.Join(errs...)
		}
	}
	return nil, errors.Join(errs...)
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
	lanes = behind(lanes, p.through)
	if len(lanes) == 0 {
		return nil, nil
	}
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

// behind returns the lanes that can go on and are not yet at a position.
func behind(lanes []*lane, position ledger.Position) []*lane {
	return slices.DeleteFunc(slices.Clone(lanes), func(l *lane) bool { return l.err != nil || l.at.Position >= position })
}

// stepLane folds a page into one lane; beside others in a savepoint, so that its failure is its own.
func stepLane(ctx context.Context, tx pgx.Tx, l *lane, p page, beside bool) error {
	fold := func(tx pgx.Tx) error {
		if _, err := l.take(ctx, tx, p.through); err != nil {
			return err
		}
		return l.fold(ctx, tx, l.at.Position, l.pick(l.at.Position, p.events))
	}
	if !beside {
		return fold(tx)
	}
	return pgx.BeginFunc(ctx, tx, fold)
}

// reopen reads the lane's cursor anew.
func (l *lane) reopen(ctx context.Context, db database) {
	if l.place.shadow {
		l.err = fmt.Errorf("cursor %q has been moved by somebody else; call again to go on from where it is", l.place.cursor)
		return
	}
	l.at, l.err = ledger.OpenCursor(ctx, db, l.place.cursor, 0)
}
