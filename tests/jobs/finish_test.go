package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// A stale fence changes nothing and says so: after the lease ran out and another took over, after completion, after
// cancellation, and for a job that never was.
func TestStaleFence(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	accept(t, queue, work(`1`))
	first := claim(t, queue, 1)[0]
	db.AdvanceClock(t, time.Minute)
	maintain(t, queue, commands.MaintainOptions{})
	wantStale := func(claims ...commands.Claim) {
		t.Helper()
		before := jobOf(t, db.Pool, first.JobID)
		events := kinds(t, db.Pool)
		done, err := queue.CompleteJobs(t.Context(), claims...)
		if err != nil {
			t.Fatal(err)
		}
		held, _, err := queue.HeartbeatJobs(t.Context(), time.Hour, claims...)
		if err != nil {
			t.Fatal(err)
		}
		diff(t, "done and held", [2][]bool{make([]bool, len(claims)), make([]bool, len(claims))}, [2][]bool{done, held})
		for _, c := range claims {
			if _, err := queue.FailJob(t.Context(), c, "x"); !errors.Is(err, commands.ErrStaleClaim) {
				t.Errorf("error %v, want ErrStaleClaim", err)
			}
		}
		diff(t, "the job", before, jobOf(t, db.Pool, first.JobID))
		diff(t, "events", events, kinds(t, db.Pool))
	}
	wantStale(first.Claim) // given back
	second := claim(t, queue, 1)[0]
	if second.Fence <= first.Fence || second.Attempt != 2 {
		t.Fatalf("second claim %+v after %+v", second, first)
	}
	future := second.Claim
	future.Fence++
	wantStale(first.Claim, future, commands.Claim{JobID: uuid.New(), Fence: 1})

	// In one call with a claim that holds, the stale one is still told apart.
	done, err := queue.CompleteJobs(t.Context(), first.Claim, second.Claim, future)
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "done", []bool{false, true, false}, done)
	wantStale(second.Claim)

	accept(t, queue, work(`2`))
	third := claim(t, queue, 1)[0]
	if err := queue.CancelJob(t.Context(), third.JobID, operator); err != nil {
		t.Fatal(err)
	}
	first = third
	wantStale(third.Claim)
}

// Every transition appends its event in the same transaction, and it rolls back with it.
func TestTransitionsAreTransactional(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	ctx := t.Context()
	digest := func(tx querier) ledger.KeyDigest {
		return query1[ledger.KeyDigest](t, tx, "select daybook.key_digest(key_hash) from daybook.binding limit 1")
	}
	for _, test := range []struct {
		name   string
		active bool
		do     func(tx commands.Tx, db querier, id uuid.UUID, claim commands.Claim) error
		want   []ledger.Kind
	}{
		{"complete", true, func(tx commands.Tx, _ querier, _ uuid.UUID, c commands.Claim) error {
			done, err := queue.CompleteJobsTx(ctx, tx, c)
			diff(t, "done", []bool{true}, done)
			return err
		}, []ledger.Kind{ledger.KindJobSucceeded}},
		{"fail", true, func(tx commands.Tx, _ querier, _ uuid.UUID, c commands.Claim) error {
			_, err := queue.FailJobTx(ctx, tx, c, "x")
			return err
		}, []ledger.Kind{ledger.KindJobAttemptFailed}},
		{"fail for good and redrive", true, func(tx commands.Tx, db querier, id uuid.UUID, c commands.Claim) error {
			query[int](t, db, "with last as (update daybook.job set attempt_budget = attempt where job_id = $1 returning 1) select 1 from last", id)
			if _, err := queue.FailJobTx(ctx, tx, c, "x"); err != nil {
				return err
			}
			_, _, err := queue.RedriveJobTx(ctx, tx, id, operator, "r")
			return err
		}, []ledger.Kind{ledger.KindJobFailed, ledger.KindJobRedriven}},
		{"cancel", false, func(tx commands.Tx, _ querier, id uuid.UUID, _ commands.Claim) error {
			return queue.CancelJobTx(ctx, tx, id, operator)
		}, []ledger.Kind{ledger.KindJobCancelled}},
		{"run now", false, func(tx commands.Tx, _ querier, id uuid.UUID, _ commands.Claim) error {
			return queue.RunJobNowTx(ctx, tx, id, operator)
		}, []ledger.Kind{ledger.KindBindingReleased, ledger.KindJobReleased}},
		{"release key", false, func(tx commands.Tx, db querier, _ uuid.UUID, _ commands.Claim) error {
			_, err := queue.ReleaseKeyTx(ctx, tx, "", digest(db), operator)
			return err
		}, []ledger.Kind{ledger.KindBindingReleased}},
	} {
		o := debounced(test.name, `1`, commands.Debounce{Window: time.Hour})
		if test.active {
			o.RunAt = noon
		}
		id := accept(t, queue, o).JobID
		var c commands.Claim
		if test.active {
			c = claim(t, queue, 1)[0].Claim
		}
		before := jobOf(t, db.Pool, id)
		events := kinds(t, db.Pool)
		written := footprintOf(t, db.Pool)

		tx := begin(t, db.Pool)
		if err := test.do(tx, tx, id, c); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		diff(t, test.name+": events inside", append(events[:len(events):len(events)], test.want...), kinds(t, tx))
		rollback(t, tx)
		diff(t, test.name+": events after rollback", events, kinds(t, db.Pool))
		diff(t, test.name+": the job after rollback", before, jobOf(t, db.Pool, id))
		diff(t, test.name+": what is written after rollback", written, footprintOf(t, db.Pool))

		tx = begin(t, db.Pool)
		if err := test.do(tx, tx, id, c); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		commit(t, tx)
		diff(t, test.name+": events after commit", append(events, test.want...), kinds(t, db.Pool))
		// Leave no key and no job to the next.
		db.Exec(t, "delete from daybook.binding")
		db.Exec(t, "delete from daybook.job")
	}
}

// Workers that finish overlapping sets, each in another order, never deadlock, and each job is finished once.
func TestOverlappingCompletions(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	const jobs, workers = 200, 4
	requests := make([]commands.EnqueueOptions, jobs)
	for i := range requests {
		requests[i] = work(`1`)
	}
	if _, err := queue.EnqueueMany(t.Context(), requests); err != nil {
		t.Fatal(err)
	}
	all := claims(claim(t, queue, jobs))
	type answer struct {
		done int
		err  error
	}
	answers := make(chan answer)
	for w := range workers {
		mine := append([]commands.Claim(nil), all...)
		if w%2 == 1 {
			for i, j := 0, len(mine)-1; i < j; i, j = i+1, j-1 {
				mine[i], mine[j] = mine[j], mine[i]
			}
		}
		go func() {
			var a answer
			done, err := queue.CompleteJobs(context.Background(), mine...)
			a.err = err
			for _, ok := range done {
				if ok {
					a.done++
				}
			}
			answers <- a
		}()
	}
	total := 0
	for range workers {
		a := <-answers
		if a.err != nil {
			t.Error(a.err)
		}
		total += a.done
	}
	diff(t, "finished", jobs, total)
	diff(t, "events", int64(jobs), query1[int64](t, db.Pool, "select count(*) from daybook.event where kind = 'job.succeeded'"))
}

// The text of an error stays on the job, storable and cut, and never reaches an event.
func TestErrorTextStaysOnTheJob(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	id := accept(t, queue, work(`1`)).JobID
	_, err := queue.FailJob(t.Context(), claim(t, queue, 1)[0].Claim, "secret \x00 \xff "+strings.Repeat("é", 3000))
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "last error", "secret \uFFFD \uFFFD "+strings.Repeat("é", 1989),
		query1[string](t, db.Pool, "select last_error from daybook.job where job_id = $1", id))
	diff(t, "events with it", int64(0), query1[int64](t, db.Pool, "select count(*) from daybook.event where body::text like '%secret%'"))
}
