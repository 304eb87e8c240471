package jobs_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// A hundred enqueues during a run give one running and one pending job, however long the run takes, and the pending one
// is what was asked for last.
func TestFollowUp(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, db *pgtest.DB, queue *commands.Queue, ask func(commands.EnqueueOptions) commands.EnqueueResult) {
		block := commands.Debounce{Window: time.Minute, FollowUp: true}
		first := ask(debounced("k", `0`, block))
		db.AdvanceClock(t, time.Minute)
		running := claim(t, queue, 1)[0]
		diff(t, "the running job", first.JobID, running.JobID)

		var follow uuid.UUID
		const asked = 100
		for i := range asked {
			// Ten of them in each window: the run outlasts ten windows.
			db.AdvanceClock(t, 6*time.Second)
			if _, _, err := queue.HeartbeatJobs(t.Context(), time.Hour, running.Claim); err != nil {
				t.Fatal(err)
			}
			result := ask(debounced("k", strconv.Itoa(i+1), block))
			if i == 0 {
				wantOutcome(t, result, commands.OutcomeAccepted)
				follow = result.JobID
			} else if result.Outcome != commands.OutcomeReplaced || result.JobID != follow {
				t.Fatalf("enqueue %d: %s job %s, want the follow-up %s replaced", i, result.Outcome, result.JobID, follow)
			}
		}
		diff(t, "jobs", int64(2), query1[int64](t, db.Pool, "select count(*) from daybook.job"))
		row := jobOf(t, db.Pool, follow)
		diff(t, "payload of the follow-up", strconv.Itoa(asked), row.Payload)
		diff(t, "predecessor", &running.JobID, row.After)

		// Due, but not before the other is finished.
		db.AdvanceClock(t, time.Hour)
		claim(t, queue, 0)
		diff(t, "a window is not over before the job could run", commands.OutcomeReplaced, ask(debounced("k", `"last"`, block)).Outcome)
		complete(t, queue, running)
		db.AdvanceClock(t, time.Minute)
		diff(t, "the next job", follow, claim(t, queue, 1)[0].JobID)
	})
}

// While the retained job runs, backs off or waits, the follow-up waits; and where it is finished there is nothing to
// wait for.
func TestFollowUpOfEachState(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		reach func(*testing.T, *pgtest.DB, *commands.Queue, uuid.UUID)
		waits bool
		// unbound is how the key left the first job.
		unbound ledger.Kind
	}{
		{"active", func(t *testing.T, _ *pgtest.DB, queue *commands.Queue, _ uuid.UUID) {
			claim(t, queue, 1)
		}, true, ledger.KindBindingReleased},
		{"backing off", func(t *testing.T, _ *pgtest.DB, queue *commands.Queue, _ uuid.UUID) {
			fail(t, queue, claim(t, queue, 1)[0])
		}, true, ledger.KindBindingReleased},
		{"window elapsed, waits for its turn", func(t *testing.T, db *pgtest.DB, _ *commands.Queue, _ uuid.UUID) {
			db.AdvanceClock(t, time.Hour)
		}, true, ledger.KindBindingExpired},
		{"window elapsed, active", func(t *testing.T, db *pgtest.DB, queue *commands.Queue, _ uuid.UUID) {
			claim(t, queue, 1)
			db.AdvanceClock(t, time.Hour)
		}, true, ledger.KindBindingExpired},
		{"succeeded", func(t *testing.T, _ *pgtest.DB, queue *commands.Queue, _ uuid.UUID) {
			complete(t, queue, claim(t, queue, 1)...)
		}, false, ledger.KindBindingReleased},
		{"cancelled", func(t *testing.T, _ *pgtest.DB, queue *commands.Queue, id uuid.UUID) {
			if err := queue.CancelJob(t.Context(), id, operator); err != nil {
				t.Fatal(err)
			}
		}, false, ledger.KindBindingReleased},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db, queue := newFrozen(t)
			o := debounced("k", `1`, commands.Debounce{Window: time.Hour, FollowUp: true})
			o.RunAt = noon
			first := accept(t, queue, o).JobID
			test.reach(t, db, queue, first)
			before := jobOf(t, db.Pool, first)
			follow := accept(t, queue, o).JobID
			diff(t, "the first job", before, jobOf(t, db.Pool, first))
			var want *uuid.UUID
			if test.waits {
				want = &first
			}
			diff(t, "runs after", want, jobOf(t, db.Pool, follow).After)
			diff(t, "the key's events", []string{"enqueue.accepted", string(test.unbound), "enqueue.accepted"}, query[string](t, db.Pool,
				"select kind from daybook.event where kind ~ '^(enqueue|binding)' order by event_id"))
			wantOutcome(t, decide(t, queue, o), commands.OutcomeReplaced)
		})
	}
}

// A predecessor that is purged or cancelled, or a run-now, lets the follow-up go.
func TestFollowUpIsNotHeldForEver(t *testing.T) {
	t.Parallel()
	o := debounced("k", `1`, commands.Debounce{Window: time.Minute, FollowUp: true})
	o.Queue = "first"
	for name, release := range map[string]func(*commands.Queue, uuid.UUID, uuid.UUID) error{
		"cancelled": func(queue *commands.Queue, first, _ uuid.UUID) error {
			return queue.CancelJob(t.Context(), first, operator)
		},
		"purged": func(queue *commands.Queue, _, _ uuid.UUID) error {
			_, err := queue.Purge(t.Context(), "first", operator, "r")
			return err
		},
		"run now": func(queue *commands.Queue, _, follow uuid.UUID) error {
			return queue.RunJobNow(t.Context(), follow, operator)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, queue := newFrozen(t)
			first := accept(t, queue, o).JobID
			db.AdvanceClock(t, time.Minute)
			follow := accept(t, queue, with(o, func(o *commands.EnqueueOptions) { o.Queue = "second" })).JobID
			db.AdvanceClock(t, time.Minute)
			claimFrom(t, queue, "second", 0)
			if err := release(queue, first, follow); err != nil {
				t.Fatal(err)
			}
			diff(t, "claimed", follow, claimFrom(t, queue, "second", 1)[0].JobID)
		})
	}
}
