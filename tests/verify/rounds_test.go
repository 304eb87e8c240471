package verify_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// Thirty-two writers, random delays before they commit, one in ten rolled back, and two projectors that fold all the while:
// whenever a round is over, every projection equals the fold of what has committed, and so do bindings and jobs.
func TestProjectionsEqualWhatCommitted(t *testing.T) {
	t.Parallel()
	const writers, transactions = 32, 6
	db := pgtest.New(t, pgtest.MaxConns(writers+8))
	queue := newQueue(t, db.Pool, ledger.Keys{})
	var projecting sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for range 2 {
		var handlers []outbox.RangeHandler
		for _, p := range projections.Builtin() {
			runner, err := projections.NewRunner(p, projections.RunnerConfig{})
			if err != nil {
				t.Fatal(err)
			}
			handlers = append(handlers, runner)
		}
		projector, err := outbox.NewProjector(outbox.ProjectorConfig{Pool: db.Pool, RangeSize: 50, PollInterval: 5 * time.Millisecond}, handlers...)
		if err != nil {
			t.Fatal(err)
		}
		projecting.Go(func() {
			if err := projector.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	defer projecting.Wait()
	defer stop()

	var committed, rolledBack atomic.Int64 // events
	for round := range rounds(t, 2) {
		var writing sync.WaitGroup
		for range writers {
			writing.Go(func() {
				for range transactions {
					events, commit, err := write(t.Context(), db, queue)
					if err != nil {
						t.Error(err)
						return
					}
					if commit {
						committed.Add(events)
					} else {
						rolledBack.Add(events)
					}
				}
			})
		}
		writing.Wait()
		want := committed.Load()
		pgtest.WaitFor(t, patience, func() bool {
			return one[int64](t, db.Pool, `select min(position) from daybook.cursor where name like 'projection:%'`) == want
		}, "every projection is at position %d", want)
		for _, p := range projections.Builtin() {
			report, err := projections.Verify(t.Context(), db.Pool, p)
			if err != nil || !report.OK || int64(report.Position) != want {
				t.Errorf("round %d: %+v, %v", round, report, err)
			}
		}
		wantSound(t, db.Pool)
		if got := one[int64](t, db.Pool, `select sum(decisions)::bigint from daybook.view_decision_rate`); got != want {
			t.Errorf("round %d: %d decisions are counted, %d committed", round, got, want)
		}
	}
	if rolledBack.Load() == 0 {
		t.Error("nothing was ever rolled back")
	}
	t.Logf("%d events committed, %d rolled back", committed.Load(), rolledBack.Load())
}

// write makes one transaction of a few decisions, waits for a while, and commits or rolls back. Each decision appends one event: a
// fresh key is accepted, and so is what has none.
func write(ctx context.Context, db *pgtest.DB, queue *commands.Queue) (events int64, commit bool, err error) {
	tx, err := db.Pool.Begin(ctx)
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	for range 1 + rand.IntN(3) {
		o := commands.EnqueueOptions{Type: fmt.Sprintf("type-%d", rand.IntN(3))}
		if rand.IntN(3) > 0 {
			o.Idempotency = &commands.Idempotency{Key: ledger.NewKey(uuid.NewString())}
		}
		if _, err := queue.EnqueueTx(ctx, tx, o); err != nil {
			return 0, false, err
		}
		events++
	}
	// Not for anything to happen meanwhile, but so that commits come in another order than ids.
	time.Sleep(time.Duration(rand.ExpFloat64() * float64(3*time.Millisecond)))
	if rand.IntN(10) == 0 {
		return events, false, tx.Rollback(ctx)
	}
	return events, true, tx.Commit(ctx)
}
