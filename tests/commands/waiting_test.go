package commands_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// §4.4 rule 6: a second caller waits for the first one's transaction. If that is rolled back the second is accepted; if it
// commits, the second is replayed, in the same call.
func TestSecondCallerWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(fataler, pgx.Tx)
		want commands.EnqueueOutcome
	}{
		"rolled back": {rollback, commands.OutcomeAccepted},
		"committed":   {commit, commands.OutcomeReplayed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			queue := newQueue(t, db.Pool)
			tx := begin(t, db.Pool, pgx.TxOptions{})
			first := decideTx(t, queue, tx, order("k", "1"))
			wantOutcome(t, first, commands.OutcomeAccepted)
			later := decideLater(queue, nil, order("k", "1"))
			db.WaitBlockedBy(t, pidOf(tx), 1)
			test.end(t, tx)
			second := (<-later).want(t, test.want)
			if (second.JobID == first.JobID) != (test.want == commands.OutcomeReplayed) {
				t.Errorf("%s with job %s, the first was %s", second.Outcome, second.JobID, first.JobID)
			}
			wantFootprint(t, db.Pool, footprint{Jobs: 1, Bindings: 1, Events: []ledger.Kind{ledger.KindAccepted}})
		})
	}
}

// The same with other work under the key: the answer depends on how the first one ended, and on nothing that was seen before.
func TestSecondCallerWaitsWithOtherWork(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end    func(fataler, pgx.Tx)
		want   commands.EnqueueOutcome
		events []ledger.Kind
	}{
		"rolled back": {rollback, commands.OutcomeAccepted, []ledger.Kind{ledger.KindAccepted}},
		"committed":   {commit, commands.OutcomeConflictRejected, []ledger.Kind{ledger.KindAccepted, ledger.KindConflictRejected}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			queue := newQueue(t, db.Pool)
			tx := begin(t, db.Pool, pgx.TxOptions{})
			decideTx(t, queue, tx, order("k", "1"))
			later := decideLater(queue, nil, order("k", "2"))
			db.WaitBlockedBy(t, pidOf(tx), 1)
			test.end(t, tx)
			(<-later).want(t, test.want)
			if got := footprintOf(t, db.Pool).Events; len(got) != len(test.events) || got[len(got)-1] != test.events[len(got)-1] {
				t.Errorf("events %v, want %v", got, test.events)
			}
		})
	}
}

// Three enqueues of one key in one transaction, between the caller's own statements.
func TestThreeEnqueuesInOneTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Exec(t, "create table mine (n int primary key)")
	queue := newQueue(t, db.Pool)
	tx := begin(t, db.Pool, pgx.TxOptions{})
	var first commands.EnqueueResult
	for n, want := range []commands.EnqueueOutcome{commands.OutcomeAccepted, commands.OutcomeReplayed, commands.OutcomeReplayed} {
		if _, err := tx.Exec(ctx, "insert into mine values ($1)", n); err != nil {
			t.Fatal(err)
		}
		got := decideTx(t, queue, tx, order("k", "1"))
		wantOutcome(t, got, want)
		if n == 0 {
			first = got
		}
		if got.JobID != first.JobID {
			t.Errorf("job %s, want %s", got.JobID, first.JobID)
		}
		if rows := query1[int](t, tx, "select count(*)::int from mine"); rows != n+1 {
			t.Errorf("%d rows of mine, want %d", rows, n+1)
		}
	}
	// A conflict leaves the transaction usable, too.
	wantFields(t, decideTx(t, queue, tx, order("k", "2")), "payload")
	if _, err := tx.Exec(ctx, "insert into mine values (3)"); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
	if rows := query1[int](t, db.Pool, "select count(*)::int from mine"); rows != 4 {
		t.Errorf("%d rows of mine, want 4", rows)
	}
	wantFootprint(t, db.Pool, footprint{
		Jobs: 1, Bindings: 1, Rejections: 1, Events: []ledger.Kind{ledger.KindAccepted, ledger.KindConflictRejected},
	})
}

// §4.4 rule 3: never now(). A transaction that is three seconds old binds, and judges, with the clock of the moment.
func TestOldTransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool)
	steerClock(t, db, noon)
	tx := begin(t, db.Pool, pgx.TxOptions{})
	steerTo(t, db, noon.Add(3*time.Second))
	o := order("k", "1")
	o.Idempotency.TTL = 2 * time.Second
	first, second := decideTx(t, queue, tx, o), decideTx(t, queue, tx, o)
	wantOutcome(t, first, commands.OutcomeAccepted)
	wantOutcome(t, second, commands.OutcomeReplayed)
	for _, got := range []commands.EnqueueResult{first, second} {
		if !got.BoundAt.Equal(noon.Add(3*time.Second)) || !got.ExpiresAt.Equal(noon.Add(5*time.Second)) {
			t.Errorf("%s: bound at %v to %v", got.Outcome, got.BoundAt, got.ExpiresAt)
		}
	}
	commit(t, tx)

	// The same with the real clock: it is read in the statement, not when the transaction began.
	db.ResetClock(t)
	tx = begin(t, db.Pool, pgx.TxOptions{})
	old := query1[time.Time](t, tx, "select now()")
	before := query1[time.Time](t, tx, "select clock_timestamp()")
	got := decideTx(t, queue, tx, order("real", "1"))
	if got.BoundAt.Before(before) || !got.BoundAt.After(old) {
		t.Errorf("bound at %v, which is not after %v", got.BoundAt, before)
	}
}

// §4.4 rule 3: a caller that waited three seconds neither binds nor judges with a clock that is three seconds old, and neither
// does the event it appends.
func TestWaitingCallerReadsTheClockAfterwards(t *testing.T) {
	t.Parallel()
	const wait = 3 * time.Second
	o := order("k", "1")
	o.Idempotency.TTL = 2 * time.Second
	for name, call := range map[string]func(*commands.Queue) (commands.EnqueueResult, error){
		"single": func(queue *commands.Queue) (commands.EnqueueResult, error) {
			return queue.Decide(context.Background(), o)
		},
		"batch": func(queue *commands.Queue) (commands.EnqueueResult, error) {
			results, err := queue.DecideMany(context.Background(), []commands.EnqueueOptions{order("a", "1"), o, order("z", "1")})
			if err != nil {
				return commands.EnqueueResult{}, err
			}
			return results[1], nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			queue := newQueue(t, db.Pool)
			steerClock(t, db, noon)
			tx := begin(t, db.Pool, pgx.TxOptions{})
			decideTx(t, queue, tx, o)
			answers := make(chan answer, 1)
			go func() {
				var a answer
				a.result, a.err = call(queue)
				answers <- a
			}()
			db.WaitBlockedBy(t, pidOf(tx), 1)
			steerTo(t, db, noon.Add(wait))
			rollback(t, tx)
			got := (<-answers).want(t, commands.OutcomeAccepted)
			if !got.BoundAt.Equal(noon.Add(wait)) || !got.ExpiresAt.Equal(noon.Add(wait+2*time.Second)) {
				t.Errorf("bound at %v to %v", got.BoundAt, got.ExpiresAt)
			}
			// Everywhere the same instant, the other items of the batch included.
			for _, at := range []string{
				"select bound_at from daybook.binding", "select accepted_at from daybook.job", "select run_at from daybook.job",
				"select recorded_at from daybook.event", "select (body ->> 'run_at')::timestamptz from daybook.event",
			} {
				for _, value := range query[time.Time](t, db.Pool, at) {
					if !value.Equal(noon.Add(wait)) {
						t.Errorf("%s is %v, want %v", at, value, noon.Add(wait))
					}
				}
			}
			steerTo(t, db, noon.Add(wait+2*time.Second-time.Microsecond))
			wantOutcome(t, decide(t, queue, o), commands.OutcomeReplayed)
		})
	}
}

// A binding that expires while a caller waits for it is expired: the caller judges with the clock of after the wait.
func TestExpiryDuringTheWait(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool)
	steerClock(t, db, noon)
	o := order("k", "1")
	o.Idempotency.TTL = 2 * time.Second
	tx := begin(t, db.Pool, pgx.TxOptions{})
	first := decideTx(t, queue, tx, o)
	later := decideLater(queue, nil, o)
	db.WaitBlockedBy(t, pidOf(tx), 1)
	steerTo(t, db, noon.Add(3*time.Second))
	commit(t, tx)
	second := (<-later).want(t, commands.OutcomeAccepted)
	if second.JobID == first.JobID || !second.BoundAt.Equal(noon.Add(3*time.Second)) {
		t.Errorf("accepted as %+v", second)
	}
	wantFootprint(t, db.Pool, footprint{Jobs: 2, Bindings: 1, Events: []ledger.Kind{
		ledger.KindAccepted, ledger.KindBindingExpired, ledger.KindAccepted,
	}})
}

// A deadline that passes while its request waits is refused like one that had passed before; the key is free again.
func TestDeadlineDuringTheWait(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]bool{"single": false, "batch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			db := pgtest.New(t)
			queue := newQueue(t, db.Pool)
			steerClock(t, db, noon)
			o := order("k", "1")
			o.Deadline = noon.Add(time.Second)
			tx := begin(t, db.Pool, pgx.TxOptions{})
			decideTx(t, queue, tx, o)
			failed := make(chan error, 1)
			go func() {
				var err error
				if batch {
					_, err = queue.DecideMany(ctx, []commands.EnqueueOptions{order("a", "1"), o})
				} else {
					_, err = queue.Decide(ctx, o)
				}
				failed <- err
			}()
			db.WaitBlockedBy(t, pidOf(tx), 1)
			steerTo(t, db, noon.Add(3*time.Second))
			rollback(t, tx)
			err := <-failed
			var invalid *commands.InvalidRequestError
			if !errors.As(err, &invalid) || invalid.Field != "deadline" {
				t.Errorf("error %v", err)
			}
			wantFootprint(t, db.Pool, footprint{})
		})
	}
}
