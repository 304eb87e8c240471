package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// answer is what a call in another goroutine came to.
type answer struct {
	result commands.EnqueueResult
	err    error
}

// waiting is a world in which one transaction holds a key and a caller waits for it.
type waiting struct {
	*testing.T
	db    *pgtest.DB
	queue *commands.Queue
}

func newWaiting(t *testing.T) waiting {
	t.Parallel()
	db := pgtest.New(t)
	steerClock(t, db, noon)
	return waiting{t, db, newQueue(t, db.Pool)}
}

// during has a caller wait for a lock that hold takes; then the clock moves, hold's transaction ends, and the caller's
// answer is returned.
func (w waiting) during(hold func(tx commands.Tx), asked commands.EnqueueOptions, batch bool, now time.Time, end func(t fataler, tx txEnd)) answer {
	w.Helper()
	tx := begin(w.T, w.db.Pool)
	hold(tx)
	answers := make(chan answer, 1)
	go func() {
		var a answer
		if batch {
			var all []commands.EnqueueResult
			all, a.err = w.queue.DecideMany(context.Background(), []commands.EnqueueOptions{asked, work(`"beside"`)})
			if a.err == nil {
				a.result = all[0]
			}
		} else {
			a.result, a.err = w.queue.Decide(context.Background(), asked)
		}
		answers <- a
	}()
	w.db.WaitBlockedBy(w.T, pidOf(tx), 1)
	steerTo(w.T, w.db, now)
	end(w.T, tx)
	return <-answers
}

type txEnd interface {
	Commit(context.Context) error
	Rollback(context.Context) error
}

func endCommit(t fataler, tx txEnd) {
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func endRollback(t fataler, tx txEnd) {
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func (w waiting) decideTx(tx commands.Tx, o commands.EnqueueOptions, want commands.EnqueueOutcome) {
	w.Helper()
	result, err := w.queue.DecideTx(context.Background(), tx, o)
	if err != nil {
		w.Fatal(err)
	}
	wantOutcome(w.T, result, want)
}

// wantFresh is what everybody gets who waited three seconds for a key that was free at the end of the wait.
func (w waiting) wantFresh(a answer, window time.Duration) {
	w.Helper()
	if a.err != nil {
		w.Fatal(a.err)
	}
	at := noon.Add(3 * time.Second)
	want := commands.EnqueueResult{JobID: a.result.JobID, Outcome: commands.OutcomeAccepted, BoundAt: at, ExpiresAt: at.Add(window)}
	if d := cmp.Diff(want, a.result); d != "" {
		w.Fatalf("the answer (-want +got):\n%s", d)
	}
	diff(w.T, "when the event says it was", at, query1[time.Time](w.T, w.db.Pool,
		"select recorded_at from daybook.event where kind = 'enqueue.accepted' and job_id = $1", a.result.JobID).UTC())
}

// A caller blocked for three seconds on a key whose binding expires meanwhile gets it, with her full window from after
// the wait. What blocks her is the record of another's refusal, or the takeover of an expired key, that is rolled back.
func TestClockIsReadAfterTheLock(t *testing.T) {
	for _, batch := range []bool{false, true} {
		name := map[bool]string{false: "single/", true: "batch/"}[batch]
		t.Run(name+"conflicting", func(t *testing.T) {
			w := newWaiting(t)
			accept(t, w.queue, idempotent("k", `1`, 2*time.Second))
			a := w.during(func(tx commands.Tx) {
				w.decideTx(tx, idempotent("k", `2`, 2*time.Second), commands.OutcomeConflictRejected)
			}, idempotent("k", `3`, 2*time.Second), batch, noon.Add(3*time.Second), endCommit)
			w.wantFresh(a, 2*time.Second)
			diff(t, "conflicts recorded", int64(1), query1[int64](t, w.db.Pool,
				"select count(*) from daybook.event where kind = 'enqueue.conflict_rejected'"))
		})
		t.Run(name+"throttle conflicting", func(t *testing.T) {
			w := newWaiting(t)
			accept(t, w.queue, throttled("k", `1`, 2*time.Second))
			a := w.during(func(tx commands.Tx) {
				w.decideTx(tx, throttled("k", `2`, 2*time.Second), commands.OutcomeConflictRejected)
			}, throttled("k", `3`, 2*time.Second), batch, noon.Add(3*time.Second), endRollback)
			w.wantFresh(a, 2*time.Second)
		})
		t.Run(name+"debounced, in other hands that expire", func(t *testing.T) {
			w := newWaiting(t)
			accept(t, w.queue, idempotent("k", `1`, 2*time.Second))
			a := w.during(func(tx commands.Tx) {
				w.decideTx(tx, idempotent("k", `2`, 2*time.Second), commands.OutcomeConflictRejected)
			}, debounced("k", `3`, commands.Debounce{Window: 2 * time.Second}), batch, noon.Add(3*time.Second), endCommit)
			w.wantFresh(a, 2*time.Second)
		})
		t.Run(name+"expired, taken over and rolled back", func(t *testing.T) {
			w := newWaiting(t)
			accept(t, w.queue, idempotent("k", `1`, time.Millisecond))
			steerTo(t, w.db, noon.Add(time.Second))
			a := w.during(func(tx commands.Tx) {
				w.decideTx(tx, idempotent("k", `2`, 2*time.Second), commands.OutcomeAccepted)
			}, idempotent("k", `2`, 2*time.Second), batch, noon.Add(3*time.Second), endRollback)
			w.wantFresh(a, 2*time.Second)
		})
		t.Run(name+"never bound, rolled back", func(t *testing.T) {
			w := newWaiting(t)
			o := debounced("k", `1`, commands.Debounce{Window: 2 * time.Second})
			a := w.during(func(tx commands.Tx) { w.decideTx(tx, o, commands.OutcomeAccepted) },
				o, batch, noon.Add(3*time.Second), endRollback)
			w.wantFresh(a, 2*time.Second)
			diff(t, "due", noon.Add(5*time.Second), jobOf(t, w.db.Pool, a.result.JobID).RunAt)
		})
		t.Run(name+"never bound, two secrets, rolled back", func(t *testing.T) {
			w := newWaiting(t)
			w.queue = ring(t, w.db, "2", "1")
			o := idempotent("k", `1`, 2*time.Second)
			a := w.during(func(tx commands.Tx) { w.decideTx(tx, o, commands.OutcomeAccepted) },
				o, batch, noon.Add(3*time.Second), endRollback)
			w.wantFresh(a, 2*time.Second)
			diff(t, "due", noon.Add(3*time.Second), jobOf(t, w.db.Pool, a.result.JobID).RunAt)
			diff(t, "rows that bind the key until then", int64(2), query1[int64](t, w.db.Pool,
				"select count(*) from daybook.binding where bound_at = $1 and expires_at = $2", a.result.BoundAt, a.result.ExpiresAt))
		})
		t.Run(name+"accepted, committed, and expired since", func(t *testing.T) {
			w := newWaiting(t)
			a := w.during(func(tx commands.Tx) { w.decideTx(tx, throttled("k", `1`, 2*time.Second), commands.OutcomeAccepted) },
				throttled("k", `1`, 2*time.Second), batch, noon.Add(3*time.Second), endCommit)
			w.wantFresh(a, 2*time.Second)
		})
		t.Run(name+"debounced, still pending", func(t *testing.T) {
			w := newWaiting(t)
			o := debounced("k", `1`, commands.Debounce{Window: 5 * time.Second})
			id := accept(t, w.queue, o).JobID
			a := w.during(func(tx commands.Tx) { w.decideTx(tx, o, commands.OutcomeReplaced) },
				o, batch, noon.Add(3*time.Second), endRollback)
			if a.err != nil {
				t.Fatal(a.err)
			}
			diff(t, "the answer", commands.EnqueueResult{
				JobID: id, Outcome: commands.OutcomeReplaced, BoundAt: noon, ExpiresAt: noon.Add(8 * time.Second),
			}, a.result)
			diff(t, "due", noon.Add(8*time.Second), jobOf(t, w.db.Pool, id).RunAt)
		})
	}
}

// Who waits for another's acceptance gets that one's job where it commits, and work of her own where it does not.
func TestWaitForAnAcceptance(t *testing.T) {
	for _, test := range []struct {
		name    string
		request commands.EnqueueOptions
		want    commands.EnqueueOutcome
	}{
		{"idempotency", idempotent("k", `1`, time.Hour), commands.OutcomeReplayed},
		{"throttle", throttled("k", `1`, time.Hour), commands.OutcomeCoalesced},
		{"debounce", debounced("k", `1`, commands.Debounce{Window: time.Hour}), commands.OutcomeReplaced},
	} {
		for _, batch := range []bool{false, true} {
			for _, ended := range []struct {
				name    string
				how     func(fataler, txEnd)
				want    commands.EnqueueOutcome
				boundAt time.Time
			}{
				{"committed", endCommit, test.want, noon},
				{"rolled back", endRollback, commands.OutcomeAccepted, noon.Add(time.Second)},
			} {
				t.Run(test.name+"/"+ended.name, func(t *testing.T) {
					w := newWaiting(t)
					a := w.during(func(tx commands.Tx) { w.decideTx(tx, test.request, commands.OutcomeAccepted) },
						test.request, batch, noon.Add(time.Second), ended.how)
					if a.err != nil {
						t.Fatal(a.err)
					}
					if rows := query1[int64](t, w.db.Pool, "select count(*) from daybook.job where key_hash is not null"); rows != 1 {
						t.Fatalf("%d jobs of one key", rows)
					}
					diff(t, "the job", query1[uuid.UUID](t, w.db.Pool, "select job_id from daybook.binding"), a.result.JobID)
					wantOutcome(t, a.result, ended.want)
					diff(t, "bound at", ended.boundAt, a.result.BoundAt)
				})
			}
		}
	}
}

// A debounced key whose window ends while a caller waits for it, its job still pending: exactly one live job
// afterwards, and the answer names that one.
func TestWindowEndsDuringTheWait(t *testing.T) {
	block := commands.Debounce{Window: 2 * time.Second}
	for _, test := range []struct {
		name     string
		mode     func(commands.EnqueueOptions) commands.EnqueueOptions
		end      func(fataler, txEnd)
		outcome  commands.EnqueueOutcome
		payload  string
		replaced int32
	}{
		// What held the key has put the end of its window off.
		{"committed", nil, endCommit, commands.OutcomeReplaced, `3`, 2},
		{"rolled back", nil, endRollback, commands.OutcomeNonReplaceable, `1`, 0},
	} {
		for _, batch := range []bool{false, true} {
			t.Run(test.name, func(t *testing.T) {
				w := newWaiting(t)
				id := accept(t, w.queue, debounced("k", `1`, block)).JobID
				steerTo(t, w.db, noon.Add(1900*time.Millisecond))
				a := w.during(func(tx commands.Tx) { w.decideTx(tx, debounced("k", `2`, block), commands.OutcomeReplaced) },
					debounced("k", `3`, block), batch, noon.Add(3*time.Second), test.end)
				if a.err != nil {
					t.Fatal(a.err)
				}
				if a.result.JobID != id || a.result.Outcome != test.outcome {
					t.Fatalf("%s %s of job %s, want %s of job %s", a.result.Outcome, a.result.Reason, a.result.JobID, test.outcome, id)
				}
				diff(t, "jobs of the key", int64(1), query1[int64](t, w.db.Pool, "select count(*) from daybook.job where key_hash is not null"))
				diff(t, "payload", test.payload, jobOf(t, w.db.Pool, id).Payload)
				diff(t, "replaced", test.replaced, query1[int32](t, w.db.Pool, "select replaced from daybook.binding"))
			})
		}
	}
	t.Run("run now meanwhile", func(t *testing.T) {
		w := newWaiting(t)
		o := debounced("k", `1`, block)
		id := accept(t, w.queue, o).JobID
		a := w.during(func(tx commands.Tx) {
			if err := w.queue.RunJobNowTx(context.Background(), tx, id, operator); err != nil {
				t.Fatal(err)
			}
		}, o, false, noon.Add(3*time.Second), endCommit)
		w.wantFresh(a, 2*time.Second)
	})
	t.Run("key released meanwhile", func(t *testing.T) {
		w := newWaiting(t)
		o := debounced("k", `1`, block)
		accept(t, w.queue, o)
		a := w.during(func(tx commands.Tx) {
			digest := query1[string](t, w.db.Pool, "select daybook.key_digest(key_hash) from daybook.binding")
			if _, err := w.queue.ReleaseKeyTx(context.Background(), tx, "", ledger.KeyDigest(digest), operator); err != nil {
				t.Fatal(err)
			}
		}, o, false, noon.Add(3*time.Second), endCommit)
		w.wantFresh(a, 2*time.Second)
	})
	t.Run("claimed meanwhile", func(t *testing.T) {
		w := newWaiting(t)
		o := debounced("k", `1`, block)
		id := accept(t, w.queue, o).JobID
		steerTo(t, w.db, noon.Add(2*time.Second))
		a := w.during(func(tx commands.Tx) {
			const statement = "select c.job_ids[1]::text from daybook.claim_jobs('default', 'w', 1, 1000) as c"
			var claimed string
			if err := tx.QueryRow(context.Background(), statement).Scan(&claimed); err != nil {
				t.Fatal(err)
			}
			diff(t, "claimed", id.String(), claimed)
		}, o, false, noon.Add(3*time.Second), endCommit)
		w.wantFresh(a, 2*time.Second)
	})
}

// lock_timeout while waiting for another's key is typed and retryable and leaves no event; a new transaction replays.
func TestLockTimeoutWhileWaiting(t *testing.T) {
	t.Parallel()
	hour := commands.Debounce{Window: time.Hour}
	for _, test := range []struct {
		name  string
		hold  commands.EnqueueOptions
		asked commands.EnqueueOptions
		want  commands.EnqueueOutcome
	}{
		{"idempotency", idempotent("k", `1`, time.Hour), idempotent("k", `1`, time.Hour), commands.OutcomeReplayed},
		{"throttle", throttled("k", `1`, time.Hour), throttled("k", `1`, time.Hour), commands.OutcomeCoalesced},
		{"debounce", debounced("k", `1`, hour), debounced("k", `1`, hour), commands.OutcomeReplaced},
		{"mixed", debounced("k", `1`, hour), throttled("k", `1`, time.Hour), commands.OutcomeConflictRejected},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db, queue := newFrozen(t)
			holder := begin(t, db.Pool)
			if _, err := queue.DecideTx(t.Context(), holder, test.hold); err != nil {
				t.Fatal(err)
			}
			tx := begin(t, db.Pool)
			if _, err := tx.Exec(t.Context(), "set local lock_timeout = '50ms'"); err != nil {
				t.Fatal(err)
			}
			_, err := queue.DecideTx(t.Context(), tx, test.asked)
			var call *commands.CallError
			var pgErr *pgconn.PgError
			if !errors.As(err, &call) || !errors.As(err, &pgErr) || pgErr.Code != "55P03" || !commands.Retryable(err) {
				t.Fatalf("error %v, want a retryable *CallError of 55P03", err)
			}
			rollback(t, tx)
			commit(t, holder)
			wantKinds(t, db.Pool, []ledger.Kind{ledger.KindAccepted})
			wantOutcome(t, decide(t, queue, test.asked), test.want)
		})
	}
}

// A batch that waits for one key still takes the others as they are, and all of it is dated after the wait.
func TestBatchOfAllModesWaits(t *testing.T) {
	w := newWaiting(t)
	tx := begin(t, w.db.Pool)
	requests := []commands.EnqueueOptions{
		idempotent("a", `1`, time.Minute), debounced("b", `1`, commands.Debounce{Window: time.Minute}), throttled("c", `1`, time.Minute),
	}
	for _, o := range requests {
		w.decideTx(tx, with(o, func(o *commands.EnqueueOptions) { o.Payload = json.RawMessage(`2`) }), commands.OutcomeAccepted)
	}
	done := make(chan []commands.EnqueueResult, 1)
	go func() {
		results, err := w.queue.DecideMany(context.Background(), append(requests, work(`1`)))
		if err != nil {
			t.Error(err)
		}
		done <- results
	}()
	w.db.WaitBlockedBy(t, pidOf(tx), 1)
	steerTo(t, w.db, noon.Add(3*time.Second))
	rollback(t, tx)
	for i, result := range <-done {
		wantOutcome(t, result, commands.OutcomeAccepted)
		diff(t, "accepted at", noon.Add(3*time.Second), result.BoundAt)
		if i < 3 {
			diff(t, "bound until", noon.Add(63*time.Second), result.ExpiresAt)
		}
	}
}
