package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// tally is a projection that counts, so that an event that counts twice, or never, shows.
type tally struct {
	name string
	// before is called with the range, in the transaction, after the fold and before the cursor moves.
	before func(ctx context.Context, tx pgx.Tx, from, through ledger.Position) error
}

func newTally(t testing.TB, db *pgtest.DB, name string) *tally {
	t.Helper()
	db.Exec(t, `create table if not exists tally (name text primary key, n bigint not null)`)
	db.Exec(t, `insert into tally values ($1, 0)`, name)
	return &tally{name: name}
}

func (p *tally) Name() string { return p.name }

func (p *tally) cursor() string { return "projection/" + p.name }

func (p *tally) Open(ctx context.Context, db ledger.Querier) (ledger.Cursor, error) {
	return ledger.OpenCursor(ctx, db, p.cursor(), 0)
}

func (p *tally) Apply(ctx context.Context, tx pgx.Tx, from ledger.Cursor, through ledger.Position) error {
	_, err := tx.Exec(ctx, `
		update tally
		set n = n + (
			select count(*)
			from daybook.ledger_order as o
			join daybook.event as e
				on e.event_id = o.event_id
			where o.position > $2
				and o.position <= $3
		)
		where name = $1`, p.name, int64(from.Position), int64(through))
	if err != nil {
		return err
	}
	if p.before != nil {
		if err := p.before(ctx, tx, from.Position, through); err != nil {
			return err
		}
	}
	return ledger.MoveCursor(ctx, tx, p.cursor(), from, through)
}

func (p *tally) count(t testing.TB, db *pgtest.DB) int {
	t.Helper()
	var n int
	if err := db.Pool.QueryRow(background(t), `select n from tally where name = $1`, p.name).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func newProjector(t testing.TB, pool *pgxpool.Pool, rangeSize int, handlers ...outbox.RangeHandler) *outbox.Projector {
	t.Helper()
	projector, err := outbox.NewProjector(outbox.ProjectorConfig{
		Pool:          pool,
		RangeSize:     rangeSize,
		PollInterval:  10 * time.Millisecond,
		RetryInterval: 10 * time.Millisecond,
	}, handlers...)
	if err != nil {
		t.Fatal(err)
	}
	return projector
}

// run runs the projector until the returned function is called, which returns what Run returned.
func run(t testing.TB, projector *outbox.Projector) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(background(t))
	ended := make(chan error, 1)
	go func() { ended <- projector.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			return errors.New("Run does not return")
		}
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func TestEachEventCountsOnce(t *testing.T) {
	t.Parallel()
	const writers, each = 4, 100
	db := pgtest.New(t, pgtest.MaxConns(4))
	one, two := newTally(t, db, "one"), newTally(t, db, "two")
	// Two processes would be two projectors. They compete for the same projections, with different ranges.
	stops := []func() error{
		run(t, newProjector(t, db.Pool, 7, one, two)),
		run(t, newProjector(t, db.Pool, 50, one, two)),
	}
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() { enqueue(t, db, each) })
	}
	writing.Wait()
	for _, p := range []*tally{one, two} {
		waitCursor(t, db, p.cursor(), writers*each)
		if got := p.count(t, db); got != writers*each {
			t.Errorf("projection %s counts %d, want %d", p.name, got, writers*each)
		}
	}
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestFailingProjectionStopsAlone(t *testing.T) {
	t.Parallel()
	const n, bad = 100, 37
	poison := errors.New("cannot fold this")
	failures := map[string]func() error{
		"error": func() error { return poison },
		"panic": func() error { panic(poison) },
	}
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			appendEvents(t, db, ledger.KindJobStarted, n)
			good, failing := newTally(t, db, "good"), newTally(t, db, "failing")
			failing.before = func(_ context.Context, _ pgx.Tx, from, through ledger.Position) error {
				if from < bad && bad <= through {
					return fail()
				}
				return nil
			}
			projector := newProjector(t, db.Pool, 1000, good, failing)
			stop := run(t, projector)
			pgtest.WaitFor(t, patience, func() bool { return len(projector.Failed()) == 1 }, "the failing projection has stopped")
			failed := projector.Failed()[0]
			if failed.Projection != "failing" || failed.After != bad-1 || failed.Through != bad {
				t.Errorf("%s stopped at (%d, %d], want failing at (%d, %d]", failed.Projection, failed.After, failed.Through, bad-1, bad)
			}
			// What lies before the bad one is folded; the other projection goes on with what comes.
			if got := failing.count(t, db); got != bad-1 {
				t.Errorf("the failing projection counts %d, want %d", got, bad-1)
			}
			appendEvents(t, db, ledger.KindJobStarted, 5)
			waitCursor(t, db, good.cursor(), n+5)
			if got := good.count(t, db); got != n+5 {
				t.Errorf("the good projection counts %d, want %d", got, n+5)
			}
			var stopped *outbox.RangeError
			if err := stop(); !errors.As(err, &stopped) || stopped != failed {
				t.Errorf("Run returned %v, want %v", err, failed)
			}
			if name == "error" && !errors.Is(failed, poison) {
				t.Errorf("the error is lost in %v", failed)
			}

			// Repaired, it goes on where it stopped.
			failing.before = nil
			stop = run(t, projector)
			waitCursor(t, db, failing.cursor(), n+5)
			if got := failing.count(t, db); got != n+5 {
				t.Errorf("repaired, the projection counts %d, want %d", got, n+5)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRunReturnsWhenAllHaveFailed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	one, two := newTally(t, db, "one"), newTally(t, db, "two")
	appendEvents(t, db, ledger.KindJobStarted, 3)
	for _, p := range []*tally{one, two} {
		p.before = func(ctx context.Context, tx pgx.Tx, _, _ ledger.Position) error {
			_, err := tx.Exec(ctx, `select 1/0`)
			return err
		}
	}
	projector := newProjector(t, db.Pool, 0, one, two)
	err := projector.Run(t.Context())
	var names []string
	for _, failed := range projector.Failed() {
		names = append(names, failed.Projection)
		if !errors.Is(err, failed) || failed.Through != 1 {
			t.Errorf("%v is not in %v, or not at position 1", failed, err)
		}
	}
	if diff := cmp.Diff([]string{"one", "two"}, names); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
}

func TestNewEpochStopsProjections(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := newTally(t, db, "one")
	appendEvents(t, db, ledger.KindJobStarted, 3)
	ended := make(chan error, 1)
	projector := newProjector(t, db.Pool, 0, p)
	go func() { ended <- projector.Run(background(t)) }()
	waitCursor(t, db, p.cursor(), 3)
	db.Exec(t, `update daybook.meta set epoch = 2`)
	appendEvents(t, db, ledger.KindJobStarted, 1)
	select {
	case err := <-ended:
		var epoch *ledger.EpochError
		if !errors.As(err, &epoch) || epoch.CurrentEpoch != 2 {
			t.Errorf("Run returned %v, want an EpochError", err)
		}
	case <-time.After(patience):
		t.Fatal("the projection goes on")
	}
	if got := p.count(t, db); got != 3 {
		t.Errorf("%d are counted, want 3", got)
	}
}

// A connection that breaks in mid-fold takes the fold with it, and the fold is done again.
func TestFoldSurvivesItsConnection(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := newTally(t, db, "one")
	var breakOnce sync.Once
	p.before = func(ctx context.Context, tx pgx.Tx, _, _ ledger.Position) error {
		var err error
		breakOnce.Do(func() { _, err = tx.Exec(ctx, `select pg_terminate_backend(pg_backend_pid())`) })
		return err
	}
	appendEvents(t, db, ledger.KindJobStarted, 30)
	stop := run(t, newProjector(t, db.Pool, 10, p))
	waitCursor(t, db, p.cursor(), 30)
	if got := p.count(t, db); got != 30 {
		t.Errorf("%d are counted, want 30", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// The run ends in the middle of a fold, again and again; each event still counts once.
func TestEndInTheMiddleOfAFold(t *testing.T) {
	t.Parallel()
	const n = 40
	db := pgtest.New(t)
	p := newTally(t, db, "one")
	appendEvents(t, db, ledger.KindJobStarted, n)
	projector := newProjector(t, db.Pool, 4, p)
	for through := ledger.Position(4); through <= n; through += 4 {
		ctx, cancel := context.WithCancel(background(t))
		p.before = func(ctx context.Context, tx pgx.Tx, _, at ledger.Position) error {
			if at != through {
				return nil
			}
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		if err := projector.Run(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		if got := p.count(t, db); got != int(through)-4 {
			t.Errorf("ended in the fold up to %d, %d are counted", through, got)
		}
	}
	p.before = nil
	stop := run(t, projector)
	waitCursor(t, db, p.cursor(), n)
	if got := p.count(t, db); got != n {
		t.Errorf("%d are counted, want %d", got, n)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestManyProjectionsOnAPoolOfTwo(t *testing.T) {
	t.Parallel()
	const n = 200
	db := pgtest.New(t, pgtest.MaxConns(2))
	var all []*tally
	var handlers []outbox.RangeHandler
	for i := range 6 {
		p := newTally(t, db, fmt.Sprint("p", i))
		all, handlers = append(all, p), append(handlers, p)
	}
	stop := run(t, newProjector(t, db.Pool, 20, handlers...))
	appendEvents(t, db, ledger.KindJobStarted, n)
	for _, p := range all {
		waitCursor(t, db, p.cursor(), n)
		if got := p.count(t, db); got != n {
			t.Errorf("%s counts %d, want %d", p.name, got, n)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Not parallel: it looks at all goroutines of the process.
func TestRunLeavesNothingBehind(t *testing.T) {
	db := pgtest.New(t)
	appendEvents(t, db, ledger.KindJobStarted, 10)
	p := newTally(t, db, "one")
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	projector := newProjector(t, db.Pool, 0, p)
	go func() { ended <- projector.Run(ctx) }()
	waitCursor(t, db, p.cursor(), 10)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, before)
}
