package commands_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// together runs n calls that start at the same time, and returns their answers.
func together(n int, call func(i int) (commands.EnqueueResult, error)) []answer {
	answers := make([]answer, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			answers[i].result, answers[i].err = call(i)
		})
	}
	close(start)
	all.Wait()
	return answers
}

// At READ COMMITTED a race never shows the caller an error: of 200 one is accepted, and all have its job.
func TestOneOfManyIsAccepted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(12))
	db.FreezeClock(t, noon)
	queue := newQueue(t, db.Pool)
	o := order("k", "1")
	race := func(i int) (commands.EnqueueResult, error) {
		if i%4 == 3 {
			results, err := queue.EnqueueMany(context.Background(), []commands.EnqueueOptions{o})
			if err != nil {
				return commands.EnqueueResult{}, err
			}
			return results[0], nil
		}
		return queue.EnqueueWithResult(context.Background(), o)
	}
	jobs := map[uuid.UUID]bool{}
	for round := range 2 {
		accepted := 0
		job := uuid.Nil
		for _, a := range together(200, race) {
			if a.err != nil {
				t.Fatal(a.err)
			}
			switch a.result.Outcome {
			case commands.OutcomeAccepted:
				accepted++
			case commands.OutcomeReplayed:
			default:
				t.Errorf("outcome %s", a.result.Outcome)
			}
			if job != uuid.Nil && a.result.JobID != job {
				t.Errorf("jobs %s and %s", a.result.JobID, job)
			}
			job = a.result.JobID
		}
		if accepted != 1 || jobs[job] {
			t.Errorf("round %d: %d accepted, job known before: %v", round, accepted, jobs[job])
		}
		jobs[job] = true
		// Before the next round the key expires: one new job, and all others are replayed to that.
		db.AdvanceClock(t, commands.DefaultTTL)
	}
	wantFootprint(t, db.Pool, footprint{Jobs: 2, Bindings: 1, Events: []ledger.Kind{
		ledger.KindAccepted, ledger.KindBindingExpired, ledger.KindAccepted,
	}})
}

// The key expires while 200 callers are at it: at most one new job, and nobody is ever sent back to the old one after
// somebody has got the new one.
func TestExpiryInTheMiddle(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(12))
	steerClock(t, db, noon)
	queue := newQueue(t, db.Pool)
	o := order("k", "1")
	old := decide(t, queue, o)
	var asked atomic.Int64
	var seen atomic.Bool
	answers := together(200, func(int) (commands.EnqueueResult, error) {
		if asked.Add(1) == 100 {
			steerTo(t, db, noon.Add(commands.DefaultTTL))
		}
		late := seen.Load()
		result, err := queue.EnqueueWithResult(context.Background(), o)
		if err == nil && result.JobID != old.JobID {
			seen.Store(true)
		} else if late && err == nil {
			err = errors.New("replayed to the old job after the new one was seen")
		}
		return result, err
	})
	counted := map[commands.EnqueueOutcome]int{}
	jobs := map[uuid.UUID]int{}
	for _, a := range answers {
		if a.err != nil {
			t.Fatal(a.err)
		}
		counted[a.result.Outcome]++
		jobs[a.result.JobID]++
	}
	if counted[commands.OutcomeAccepted] != 1 || counted[commands.OutcomeReplayed] != 199 || len(jobs) != 2 {
		t.Errorf("outcomes %v, jobs %v", counted, jobs)
	}
	wantFootprint(t, db.Pool, footprint{Jobs: 2, Bindings: 1, Events: []ledger.Kind{
		ledger.KindAccepted, ledger.KindBindingExpired, ledger.KindAccepted,
	}})
}

// §4.5: bindings are taken in key-hash order, so batches of the same keys in opposite order never deadlock: of keys that are
// free, then of keys that have expired, then of keys whose owner asked for something else.
func TestOppositeBatchesNeverDeadlock(t *testing.T) {
	t.Parallel()
	const keys, rounds = 300, 20
	ctx := context.Background()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	queue := newQueue(t, db.Pool)
	for kind := range 3 {
		for round := range rounds {
			forward := make([]commands.EnqueueOptions, keys)
			for i := range forward {
				// Some keys are old and some are new, so that one call takes bindings in both ways.
				forward[i] = order(fmt.Sprint("key ", (round*150+i)%(rounds*150)), fmt.Sprint(kind/2))
				forward[i].Idempotency.TTL = time.Hour
			}
			backward := slices.Clone(forward)
			slices.Reverse(backward)
			both := [][]commands.EnqueueOptions{forward, backward}
			results := make([][]commands.EnqueueResult, 2)
			for _, a := range together(2, func(i int) (_ commands.EnqueueResult, err error) {
				results[i], err = queue.DecideMany(ctx, both[i])
				return commands.EnqueueResult{}, err
			}) {
				if a.err != nil {
					t.Fatalf("kind %d, round %d: %v", kind, round, a.err)
				}
			}
			for i, first := range results[0] {
				second := results[1][keys-1-i]
				twice := first.Outcome == commands.OutcomeAccepted && second.Outcome == commands.OutcomeAccepted
				if twice || first.JobID != second.JobID {
					t.Fatalf("key %d: %s %s and %s %s", i, first.Outcome, first.JobID, second.Outcome, second.JobID)
				}
			}
		}
		if kind == 0 {
			db.AdvanceClock(t, time.Hour)
		}
	}
	// 3,000 keys, accepted twice; in the last kind each was refused once.
	want := map[ledger.Kind]int64{ledger.KindAccepted: 6000, ledger.KindBindingExpired: 3000, ledger.KindConflictRejected: 3000}
	for kind, count := range want {
		if got := query1[int64](t, db.Pool, "select count(*) from daybook.event where kind = $1", kind); got != count {
			t.Errorf("%d events %s, want %d", got, kind, count)
		}
	}
}

// Callers at a stricter level than READ COMMITTED get the right answer or an error that says to begin anew; never a wrong
// one. Here each key is asked for by four kinds of callers at once, and some ask for something else.
func TestStricterIsolation(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t, pgtest.MaxConns(12))
	queue := newQueue(t, db.Pool)
	levels := []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable, pgx.ReadCommitted, pgx.Serializable, pgx.RepeatableRead, pgx.ReadCommitted}
	var retried atomic.Int64
	for round := range 30 {
		key := fmt.Sprint("key ", round)
		answers := together(len(levels), func(i int) (result commands.EnqueueResult, err error) {
			o := order(key, fmt.Sprint(i%3/2)) // of three one asks for something else
			for {
				err = pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: levels[i]}, func(tx pgx.Tx) error {
					// The snapshot is there before the race.
					if _, err := tx.Exec(ctx, "select count(*) from daybook.job"); err != nil {
						return err
					}
					if i%2 == 0 {
						result, err = queue.DecideTx(ctx, tx, o)
						return err
					}
					results, err := queue.DecideManyTx(ctx, tx, []commands.EnqueueOptions{order(key+" free "+fmt.Sprint(i), "1"), o})
					if err == nil {
						result = results[1]
					}
					return err
				})
				if err == nil || !commands.Retryable(err) {
					break
				}
				if levels[i] == pgx.ReadCommitted {
					return result, fmt.Errorf("at READ COMMITTED: %w", err)
				}
				retried.Add(1)
			}
			return result, err
		})
		accepted, owner := 0, ""
		var job uuid.UUID
		for i, a := range answers {
			if a.err != nil {
				t.Fatalf("round %d, %s: %v", round, levels[i], a.err)
			}
			if a.result.Outcome == commands.OutcomeAccepted {
				accepted, owner, job = accepted+1, fmt.Sprint(i%3/2), a.result.JobID
			}
		}
		if accepted != 1 {
			t.Fatalf("round %d: %d accepted", round, accepted)
		}
		for i, a := range answers {
			want := commands.OutcomeConflictRejected
			if fmt.Sprint(i%3/2) == owner {
				want = commands.OutcomeReplayed
			}
			if a.result.JobID != job || a.result.Outcome != want && a.result.Outcome != commands.OutcomeAccepted {
				t.Errorf("round %d, %s: %s %s, want %s %s", round, levels[i], a.result.Outcome, a.result.JobID, want, job)
			}
		}
	}
	if retried.Load() == 0 {
		t.Error("no caller lost a race: this test has shown nothing")
	}
}

// A serialization failure of an own transaction comes from the commit, where a pool runs everything at SERIALIZABLE.
func TestPoolAtSerializable(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.PoolConfig(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	}))
	queue := newQueue(t, db.Pool)
	var job atomic.Pointer[uuid.UUID]
	for _, a := range together(20, func(int) (result commands.EnqueueResult, err error) {
		for {
			result, err = queue.EnqueueWithResult(context.Background(), order("k", "1"))
			var call *commands.CallError
			if errors.As(err, &call) && call.Unknown {
				return result, fmt.Errorf("a serialization failure is unknown: %w", err)
			}
			if !commands.Retryable(err) {
				return result, err
			}
		}
	}) {
		if a.err != nil {
			t.Fatal(a.err)
		}
		job.CompareAndSwap(nil, &a.result.JobID)
		if a.result.JobID != *job.Load() {
			t.Errorf("jobs %s and %s", a.result.JobID, *job.Load())
		}
	}
	if got := footprintOf(t, db.Pool); got.Jobs != 1 || len(got.Events) != 1 {
		t.Errorf("%+v", got)
	}
}
