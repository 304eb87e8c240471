package projections_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestViewsEqualThePlainFold(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 7, 100, 0} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			story := newStoryteller(uint64(batch)+1, 12)
			story.tell(t, db, 300)
			catchUp(t, db, batch)
			mustEqualModel(t, db)
			// Rows that are there already are another path through the statements.
			story.tell(t, db, 300)
			catchUp(t, db, batch)
			mustEqualModel(t, db)
		})
	}
}

// errFlaky is the reason for failures that the test itself causes.
var errFlaky = errors.New("a failure of the test's making")

// flaky lets a fold fail now and then, before its work and after it.
func flaky(p projections.Projection, chance float64) projections.Projection {
	fold := p.Fold
	p.Fold = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		// The code of a deadlock: not the fault of any event.
		if rand.Float64() < chance {
			_, err := tx.Exec(ctx, `do $$ begin raise sqlstate '40P01'; end $$`)
			return errors.Join(errFlaky, err)
		}
		if err := fold(ctx, tx, events); err != nil {
			return err
		}
		if rand.Float64() < chance {
			_, err := tx.Exec(ctx, `do $$ begin raise sqlstate '40P01'; end $$`)
			return errors.Join(errFlaky, err)
		}
		return nil
	}
	return p
}

func TestEachEventCountsOnceWithCompetingRunnersThatFail(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(20))
	ctx := t.Context()

	const writers, each = 8, 40
	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool})
	if err != nil {
		t.Fatal(err)
	}
	var working sync.WaitGroup
	for w := range writers {
		working.Go(func() {
			for i := range each {
				tx, err := db.Pool.Begin(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = queue.DecideTx(ctx, tx, commands.EnqueueOptions{
					Type:        fmt.Sprintf("type-%d", i%3),
					Payload:     w % 3,
					Idempotency: &commands.Idempotency{Key: ledger.NewKey(fmt.Sprintf("order-number-%d", (w*i)%50))},
				})
				if err != nil {
					t.Error(err)
				}
				if rand.IntN(10) == 0 {
					err = tx.Rollback(ctx)
				} else {
					err = tx.Commit(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	written := make(chan struct{})
	go func() { working.Wait(); close(written) }()

	var projecting sync.WaitGroup
	for range 2 {
		projecting.Go(func() {
			var runners []*projections.Runner
			for _, p := range projections.Builtin() {
				runners = append(runners, runner(t, flaky(p, 0.1)))
			}
			group, err := projections.NewGroup(runners...)
			if err != nil {
				t.Error(err)
				return
			}
			for done := false; !done; {
				select {
				case <-written:
					done = true
				default:
				}
				_, err := group.CatchUp(ctx, db.Pool, 1+rand.IntN(20))
				if err != nil && !errors.Is(err, errFlaky) {
					t.Error(err)
					return
				}
			}
		})
	}
	projecting.Wait()
	catchUp(t, db, 0)
	if head(t, db) == 0 {
		t.Fatal("nothing was written")
	}
	mustEqualModel(t, db)
}

func TestCancelledRunnerLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 20).tell(t, db, 500)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		p := builtin(t, "view_key")
		fold, left := p.Fold, rand.IntN(6)
		p.Fold = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
			if left--; left < 0 {
				cancel()
			}
			return fold(ctx, tx, events)
		}
		if _, err := runner(t, p).CatchUp(ctx, db.Pool, 10); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		cancel()
	}
	catchUp(t, db, 0)
	mustEqualModel(t, db)
}

func TestApplyInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	newStoryteller(1, 20).tell(t, db, 100)
	r := runner(t, builtin(t, "view_key"))
	cursor, err := r.Open(ctx, db.Pool)
	if err != nil {
		t.Fatal(err)
	}

	// Rolled back: nothing has happened. Committed: both rows and cursor, and the session is as it was.
	for _, commit := range []bool{false, true} {
		tx, err := db.Pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, `set local search_path = daybook, public`); err != nil {
			t.Fatal(err)
		}
		if err := r.Apply(ctx, tx, cursor, 60); err != nil {
			t.Fatal(err)
		}
		var path string
		if err := tx.QueryRow(ctx, `show search_path`).Scan(&path); err != nil {
			t.Fatal(err)
		}
		if path != "daybook, public" {
			t.Errorf("Apply left search_path as %q", path)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
		want := ledger.Position(0)
		if commit {
			want = 60
		}
		now, err := r.Open(ctx, db.Pool)
		if err != nil {
			t.Fatal(err)
		}
		if now.Position != want {
			t.Errorf("the cursor is at %d, want %d", now.Position, want)
		}
	}

	apply := func(from ledger.Cursor, through ledger.Position) error {
		return pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error { return r.Apply(ctx, tx, from, through) })
	}
	if err := apply(cursor, 70); !errors.Is(err, ledger.ErrCursorMoved) {
		t.Errorf("from a stale cursor: %v, want ErrCursorMoved", err)
	}
	cursor.Position = 60
	if err := apply(cursor, 101); err == nil || !strings.Contains(err.Error(), "does not exist yet") {
		t.Errorf("beyond the head: %v", err)
	}
	if err := apply(cursor, 60); err != nil {
		t.Errorf("an empty range: %v", err)
	}
	if err := apply(cursor, 100); err != nil {
		t.Fatal(err)
	}
	catchUp(t, db, 0)
	mustEqualModel(t, db)
}

// failingAt is a projection that cannot fold the event at a position.
func failingAt(p projections.Projection, position ledger.Position, report func(ledger.Event) error) projections.Projection {
	fold := p.Fold
	p.Fold = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		for _, event := range events {
			if event.Position == position {
				return report(event)
			}
		}
		return fold(ctx, tx, events)
	}
	return p
}

func TestBadEventStopsItsProjectionAlone(t *testing.T) {
	t.Parallel()
	errBad := errors.New("cannot make sense of it")
	reports := map[string]func(ledger.Event) error{
		"said so":   func(event ledger.Event) error { return projections.BadEvent(event, errBad) },
		"not named": func(ledger.Event) error { return errBad },
	}
	for name, report := range reports {
		for _, bad := range []ledger.Position{1, 2, 137, 300} {
			t.Run(fmt.Sprintf("%s, at %d", name, bad), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				ctx := t.Context()
				newStoryteller(1, 20).tell(t, db, 300)
				p := everyKind(builtin(t, "view_key"))
				failing := runner(t, failingAt(p, bad, report))
				good := runner(t, builtin(t, "view_decision_rate"))
				group, err := projections.NewGroup(failing, good)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 { // it stays there
					positions, err := group.CatchUp(ctx, db.Pool, 64)
					var foldErr *projections.FoldError
					if !errors.As(err, &foldErr) || !errors.Is(err, errBad) {
						t.Fatalf("%v, want a FoldError", err)
					}
					if foldErr.Position != bad || foldErr.Projection != "view_key" {
						t.Errorf("%v, want position %d", foldErr, bad)
					}
					if positions["view_key"] != bad-1 {
						t.Errorf("the projection is at %d, want %d", positions["view_key"], bad-1)
					}
					if positions["view_decision_rate"] != 300 {
						t.Errorf("the other one is at %d, want 300", positions["view_decision_rate"])
					}
				}
				mustGoOnRepaired(t, db, p)
			})
		}
	}
}

// everyKind is the same projection, which is given events of all kinds, so that one of any kind is sure to be seen.
func everyKind(p projections.Projection) projections.Projection {
	fold, kinds := p.Fold, p.Kinds
	p.Kinds = nil
	p.Fold = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		var its []ledger.Event
		for _, event := range events {
			if slices.Contains(kinds, event.Kind) {
				its = append(its, event)
			}
		}
		if len(its) == 0 {
			return nil
		}
		return fold(ctx, tx, its)
	}
	return p
}

// mustGoOnRepaired lets a projection whose fold was repaired go on to the end, and compares it with one that never failed.
func mustGoOnRepaired(t *testing.T, db *pgtest.DB, p projections.Projection) {
	t.Helper()
	at, err := runner(t, p).CatchUp(t.Context(), db.Pool, 64)
	if err != nil || at != 300 {
		t.Fatalf("repaired, it is at %d, %v; want 300", at, err)
	}
	if report := verify(t, db, p); !report.OK || report.Position != 300 || report.Tables[0].Rows == 0 {
		t.Errorf("repaired: %+v", report)
	}
	went := stored(t, db).Keys
	rebuild(t, db, p, projections.RebuildConfig{})
	if diff := cmp.Diff(stored(t, db).Keys, went); diff != "" {
		t.Errorf("rebuilt from the beginning, and gone on (-rebuilt +gone on):\n%.4000s", diff)
	}
}

func TestFoldMustNotEndTheTransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 20).tell(t, db, 10)
	p := builtin(t, "view_key")
	p.Fold = func(ctx context.Context, tx pgx.Tx, _ []ledger.Event) error { return tx.Commit(ctx) }
	if _, err := runner(t, p).CatchUp(t.Context(), db.Pool, 0); err == nil {
		t.Error("a fold ended its runner's transaction")
	}
}

func TestProjectionIsChecked(t *testing.T) {
	t.Parallel()
	good := builtin(t, "view_key")
	tests := []struct {
		want  string
		spoil func(*projections.Projection)
	}{
		{`name "Key"`, func(p *projections.Projection) { p.Name = "Key" }},
		{`name ""`, func(p *projections.Projection) { p.Name = "" }},
		{`is not 1–40`, func(p *projections.Projection) { p.Name = strings.Repeat("a", 41) }},
		{"version is 0", func(p *projections.Projection) { p.Version = 0 }},
		{`schema "pg_temp"`, func(p *projections.Projection) { p.Schema = "pg_temp" }},
		{`schema "a\"b"`, func(p *projections.Projection) { p.Schema = `a"b` }},
		{"it has no tables", func(p *projections.Projection) { p.Tables = nil }},
		{`table "a" is there twice`, func(p *projections.Projection) { p.Tables = []string{"a", "b", "a"} }},
		{`table "pg_class"`, func(p *projections.Projection) { p.Tables = []string{"pg_class"} }},
		{`table "a; drop"`, func(p *projections.Projection) { p.Tables = []string{"a; drop"} }},
		{"it has no fold", func(p *projections.Projection) { p.Fold = nil }},
	}
	for _, test := range tests {
		p := good
		test.spoil(&p)
		_, err := projections.NewRunner(p, projections.RunnerConfig{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want something with %s", err, test.want)
		}
	}
	if _, err := projections.NewGroup(runner(t, good), runner(t, good)); err == nil {
		t.Error("a group took one projection twice")
	}
	if _, err := projections.NewGroup(); err == nil {
		t.Error("an empty group was accepted")
	}
}

func TestRunnerOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 20).tell(t, db, 50)
	catchUp(t, db, 0)
	p := builtin(t, "view_key")
	p.Version = 2
	_, err := runner(t, p).CatchUp(t.Context(), db.Pool, 0)
	var versionErr *projections.VersionError
	if !errors.As(err, &versionErr) || versionErr.Live != 1 || versionErr.Built != 2 {
		t.Errorf("%v, want a VersionError", err)
	}
}

func TestEveryExecModeOfPgx(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			// One connection is enough for everything, and no read waits for it in vain.
			db := pgtest.New(t, pgtest.MaxConns(1), pgtest.PoolConfig(func(config *pgxpool.Config) {
				config.ConnConfig.DefaultQueryExecMode = mode
			}))
			story := newStoryteller(1, 20)
			story.tell(t, db, 200)
			catchUp(t, db, 30)
			story.tell(t, db, 200)
			for _, p := range projections.Builtin() {
				rebuild(t, db, p, projections.RebuildConfig{BatchSize: 150})
				if report := verify(t, db, p); !report.OK {
					t.Errorf("%+v", report)
				}
			}
			if _, err := projections.Keys(t.Context(), db.Pool, projections.KeyFilter{Scope: "scope-1"}); err != nil {
				t.Error(err)
			}
			if _, err := projections.DecisionRates(t.Context(), db.Pool, projections.RateFilter{From: noon}); err != nil {
				t.Error(err)
			}
			for _, filter := range []projections.ConflictFilter{{}, {KeyDigest: "a", Newest: true}, {Scope: "scope-1"}} {
				if _, err := projections.Conflicts(t.Context(), db.Pool, filter); err != nil {
					t.Error(err)
				}
			}
			mustEqualModel(t, db)
		})
	}
}
