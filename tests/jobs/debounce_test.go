package jobs_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func ptr[T any](value T) *T { return &value }

// A replacement keeps the job's ID and replaces every material field, also by nothing.
func TestReplacementReplacesEveryMaterialField(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, db *pgtest.DB, _ *commands.Queue, ask func(commands.EnqueueOptions) commands.EnqueueResult) {
		plain := debounced("k", `{"a": 1}`, commands.Debounce{Window: time.Minute})
		full := commands.EnqueueOptions{
			Type: "index.rebuild", Payload: json.RawMessage(`{"b": [2]}`), Queue: "slow", Priority: 7, ConcurrencyKey: "c",
			Tags: []string{"y", "x"}, AttemptBudget: 3, RunAt: noon.Add(90 * time.Minute), Deadline: noon.Add(3 * time.Hour),
			RetryPolicy: commands.ExponentialRetry{Initial: time.Second, Max: time.Hour}, ExecutionTimeout: 5 * time.Second,
			Debounce: &commands.Debounce{Key: ledger.NewKey("k"), Window: 2 * time.Hour},
		}
		plainRow := jobRow{
			State: commands.JobScheduled, Queue: "default", Type: "index.refresh", Payload: `{"a": 1}`, AttemptBudget: 25,
		}
		fullRow := jobRow{
			State: commands.JobScheduled, Queue: "slow", Type: "index.rebuild", Payload: `{"b": [2]}`, Priority: 7,
			AttemptBudget: 3, ConcurrencyKey: ptr("c"), Tags: []string{"x", "y"}, RetryKind: ptr("exponential"),
			RetryInitial: ptr(int64(1000)), RetryMax: ptr(int64(3_600_000)), Timeout: ptr(int64(5000)),
			RunAt: noon.Add(90 * time.Minute), Deadline: ptr(noon.Add(3 * time.Hour)),
		}

		first := ask(plain)
		wantOutcome(t, first, commands.OutcomeAccepted)
		plainRow.RunAt = noon.Add(time.Minute)
		diff(t, "the accepted job", plainRow, jobOf(t, db.Pool, first.JobID))

		db.AdvanceClock(t, 10*time.Second)
		second := ask(full)
		wantOutcome(t, second, commands.OutcomeReplaced)
		diff(t, "the result", commands.EnqueueResult{
			JobID: first.JobID, Outcome: commands.OutcomeReplaced, BoundAt: noon, ExpiresAt: noon.Add(2*time.Hour + 10*time.Second),
		}, second)
		diff(t, "the replaced job", fullRow, jobOf(t, db.Pool, first.JobID))
		diff(t, "the window kept", int64(7_200_000), query1[int64](t, db.Pool, "select window_ms from daybook.binding"))

		db.AdvanceClock(t, 10*time.Second)
		wantOutcome(t, ask(plain), commands.OutcomeReplaced)
		plainRow.RunAt = noon.Add(80 * time.Second)
		diff(t, "the job replaced again", plainRow, jobOf(t, db.Pool, first.JobID))

		diff(t, "how often", int32(2), query1[int32](t, db.Pool, "select replaced from daybook.binding"))
		wantKinds(t, db.Pool, []ledger.Kind{ledger.KindAccepted, ledger.KindReplaced, ledger.KindReplaced})
		body := lastBody(t, db.Pool, ledger.KindReplaced)
		diff(t, "how often, in the event", any(2.0), body["replaced"])
		diff(t, "previous run time", any(rfc(noon.Add(90*time.Minute))), body["previous_run_at"])
		diff(t, "run time", any(rfc(noon.Add(80*time.Second))), body["run_at"])
		if body["previous_request_digest"] == body["request_digest"] {
			t.Error("the event does not tell the two requests apart")
		}
	})
}

// A replacement in another queue re-routes the job.
func TestReplacementReroutes(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	o := debounced("k", `1`, commands.Debounce{Window: time.Minute})
	id := accept(t, queue, with(o, func(o *commands.EnqueueOptions) { o.Queue = "old" })).JobID
	wantOutcome(t, decide(t, queue, with(o, func(o *commands.EnqueueOptions) { o.Queue = "new" })), commands.OutcomeReplaced)
	db.AdvanceClock(t, time.Minute)
	claimFrom(t, queue, "old", 0)
	diff(t, "the job of the new queue", id, claimFrom(t, queue, "new", 1)[0].JobID)
}

// Enqueues every 100 ms for 10 s, with a window of 1 s and a max wait of 3 s: each burst runs 3 s after its first
// acceptance, exactly.
func TestMaxWaitIsExact(t *testing.T) {
	t.Parallel()
	const step, window, maxWait = 100 * time.Millisecond, time.Second, 3 * time.Second
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool)
	steerClock(t, db, noon)
	o := debounced("k", `1`, commands.Debounce{Window: window, MaxWait: maxWait})
	var ran []time.Duration
	firstAccepted := time.Duration(0)
	for at := time.Duration(0); at <= 10*time.Second; at += step {
		// A microsecond before, nothing is due.
		steerTo(t, db, noon.Add(at-time.Microsecond))
		claim(t, queue, 0)
		steerTo(t, db, noon.Add(at))
		claimed, err := queue.ClaimJobs(t.Context(), commands.ClaimOptions{Worker: "w"})
		if err != nil {
			t.Fatal(err)
		}
		if len(claimed) > 0 {
			ran = append(ran, at)
			complete(t, queue, claimed...)
		}
		result := decide(t, queue, o)
		if result.Outcome == commands.OutcomeAccepted {
			firstAccepted = at
		} else {
			wantOutcome(t, result, commands.OutcomeReplaced)
		}
		due := min(at+window, firstAccepted+maxWait)
		diff(t, "due", noon.Add(due), jobOf(t, db.Pool, result.JobID).RunAt)
		diff(t, "bound until", noon.Add(due), result.ExpiresAt)
	}
	diff(t, "ran at", []time.Duration{3 * time.Second, 6 * time.Second, 9 * time.Second}, ran)
}

// A max wait below the window bounds the first wait, and one that later requests bring is measured from first
// acceptance, too.
func TestMaxWaitIsMeasuredFromFirstAcceptance(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, db *pgtest.DB, _ *commands.Queue, ask func(commands.EnqueueOptions) commands.EnqueueResult) {
		short := ask(debounced("short", `1`, commands.Debounce{Window: time.Minute, MaxWait: time.Second}))
		diff(t, "due", noon.Add(time.Second), jobOf(t, db.Pool, short.JobID).RunAt)
		diff(t, "bound until", noon.Add(time.Second), short.ExpiresAt)

		late := ask(debounced("late", `1`, commands.Debounce{Window: time.Minute}))
		db.AdvanceClock(t, 10*time.Second)
		replaced := ask(debounced("late", `2`, commands.Debounce{Window: time.Minute, MaxWait: 30 * time.Second}))
		wantOutcome(t, replaced, commands.OutcomeReplaced)
		diff(t, "due", noon.Add(30*time.Second), jobOf(t, db.Pool, late.JobID).RunAt)
		replaced = ask(debounced("late", `2`, commands.Debounce{Window: time.Minute, MaxWait: 5 * time.Second}))
		wantOutcome(t, replaced, commands.OutcomeReplaced)
		diff(t, "due in the past", noon.Add(5*time.Second), jobOf(t, db.Pool, late.JobID).RunAt)
		wantState(t, db.Pool, late.JobID, commands.JobReady)
	})
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		schedule        commands.Schedule
		runAt           time.Time
		wantRun, wantTo time.Duration
	}{
		{schedule: "", wantRun: 80 * time.Second, wantTo: 80 * time.Second},
		{schedule: commands.ScheduleReset, wantRun: 80 * time.Second, wantTo: 80 * time.Second},
		{schedule: commands.ScheduleReset, runAt: noon.Add(5 * time.Minute), wantRun: 5 * time.Minute, wantTo: 80 * time.Second},
		{schedule: commands.SchedulePreserve, wantRun: time.Minute, wantTo: time.Minute},
		{schedule: commands.SchedulePreserve, runAt: noon.Add(5 * time.Minute), wantRun: time.Minute, wantTo: time.Minute},
	} {
		t.Run(string(test.schedule), func(t *testing.T) {
			t.Parallel()
			eachWay(t, func(t *testing.T, db *pgtest.DB, _ *commands.Queue, ask func(commands.EnqueueOptions) commands.EnqueueResult) {
				o := debounced("k", `1`, commands.Debounce{Window: time.Minute, Schedule: test.schedule})
				ask(o)
				db.AdvanceClock(t, 20*time.Second)
				o.RunAt = test.runAt
				o.Payload = json.RawMessage(`2`)
				result := ask(o)
				wantOutcome(t, result, commands.OutcomeReplaced)
				row := jobOf(t, db.Pool, result.JobID)
				diff(t, "run time", noon.Add(test.wantRun), row.RunAt)
				diff(t, "payload", `2`, row.Payload)
				diff(t, "end of the window", noon.Add(test.wantTo), result.ExpiresAt)
			})
		})
	}
}

// A deadline that is over, or would be before the job could run, is refused as invalid and changes nothing: neither the
// job that waits, nor the hold on its key.
func TestPastDeadlineIsRefused(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			db, queue := newFrozen(t)
			follow := commands.Debounce{Window: time.Minute, FollowUp: true}
			accept(t, queue, debounced("pending", `1`, commands.Debounce{Window: time.Minute}))
			accept(t, queue, with(debounced("active", `1`, follow), func(o *commands.EnqueueOptions) { o.RunAt = noon }))
			accept(t, queue, idempotent("expired", `1`, time.Millisecond))
			accept(t, queue, throttled("elapsed", `1`, time.Millisecond))
			db.AdvanceClock(t, time.Second)
			claim(t, queue, 3)
			before := footprintOf(t, db.Pool)
			for name, o := range map[string]commands.EnqueueOptions{
				"fresh":                     debounced("fresh", `2`, commands.Debounce{Window: time.Minute}),
				"replacement":               debounced("pending", `2`, commands.Debounce{Window: time.Minute}),
				"follow-up":                 debounced("active", `2`, follow),
				"expired":                   idempotent("expired", `2`, time.Minute),
				"elapsed":                   throttled("elapsed", `2`, time.Minute),
				"another mode after expiry": debounced("expired", `2`, commands.Debounce{Window: time.Minute}),
				"without a key":             work(`2`),
				"replacement that keeps its time": debounced("pending", `2`,
					commands.Debounce{Window: time.Minute, Schedule: commands.SchedulePreserve}),
			} {
				// The deadline of the first is to come, but before the end of the window.
				for _, deadline := range []time.Duration{30 * time.Second, time.Second, 0} {
					if deadline == 30*time.Second && o.Debounce == nil {
						continue
					}
					o.Deadline = noon.Add(deadline)
					_, err := w.ask(db, queue, o)
					t.Log(name, deadline)
					wantInvalid(t, err, "deadline")
				}
			}
			diff(t, "what is written", before, footprintOf(t, db.Pool))
			// The moment after is good enough.
			o := debounced("pending", `2`, commands.Debounce{Window: time.Minute})
			o.Deadline = noon.Add(61*time.Second + time.Microsecond)
			result, err := w.ask(db, queue, o)
			if err != nil {
				t.Fatal(err)
			}
			wantOutcome(t, result, commands.OutcomeReplaced)
		})
	}
}

// Pending is a job of which no attempt has ever begun. One in retry backoff, or one claimed once and given back by the
// end of its lease, is not: refused, and nothing of it altered.
func TestBegunJobIsNotReplaceable(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, db *pgtest.DB, queue *commands.Queue, ask func(commands.EnqueueOptions) commands.EnqueueResult) {
		o := with(debounced("k", `1`, commands.Debounce{Window: 24 * time.Hour}), func(o *commands.EnqueueOptions) { o.RunAt = noon })
		id := accept(t, queue, o).JobID
		check := func(state commands.JobState, payload string) {
			t.Helper()
			wantState(t, db.Pool, id, state)
			before := jobOf(t, db.Pool, id)
			events := len(kinds(t, db.Pool))
			for range 2 {
				o := with(o, func(o *commands.EnqueueOptions) { o.Payload = json.RawMessage(payload) })
				wantRefused(t, ask(o), id, commands.ReasonNotPending)
			}
			diff(t, "the job", before, jobOf(t, db.Pool, id))
			diff(t, "refusals recorded", events+1, len(kinds(t, db.Pool)))
		}
		first := claim(t, queue, 1)[0]
		check(commands.JobActive, `2`)
		fail(t, queue, first)
		check(commands.JobScheduled, `3`)
		db.AdvanceClock(t, time.Second)
		claim(t, queue, 1)
		db.AdvanceClock(t, 2*time.Minute)
		maintain(t, queue, commands.MaintainOptions{})
		check(commands.JobReady, `4`)
		complete(t, queue, claim(t, queue, 1)...)
		check(commands.JobSucceeded, `5`)
		body := lastBody(t, db.Pool, ledger.KindNonReplaceable)
		diff(t, "reason in the event", any(commands.ReasonNotPending), body["reason"])
	})
}

// Who waits for its turn after the end of its window keeps the key, until it begins.
func TestWindowElapsedPending(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, db *pgtest.DB, queue *commands.Queue, ask func(commands.EnqueueOptions) commands.EnqueueResult) {
		o := debounced("k", `1`, commands.Debounce{Window: time.Minute})
		id := accept(t, queue, o).JobID
		db.AdvanceClock(t, time.Minute-time.Microsecond)
		wantOutcome(t, ask(with(o, func(o *commands.EnqueueOptions) { o.Debounce.Schedule = commands.SchedulePreserve })),
			commands.OutcomeReplaced)
		db.AdvanceClock(t, time.Microsecond)
		wantRefused(t, ask(o), id, commands.ReasonWindowElapsedPending)
		wantRefused(t, ask(o), id, commands.ReasonWindowElapsedPending)
		// Upkeep must not make the next request new work while the job waits.
		maintain(t, queue, commands.MaintainOptions{})
		wantRefused(t, ask(o), id, commands.ReasonWindowElapsedPending)
		wantKinds(t, db.Pool, []ledger.Kind{ledger.KindAccepted, ledger.KindReplaced, ledger.KindNonReplaceable})

		claim(t, queue, 1)
		next := ask(o)
		wantOutcome(t, next, commands.OutcomeAccepted)
		if next.JobID == id {
			t.Fatal("new work has the old job's ID")
		}
	})
}

// Run-now ends the window: the next request is new work.
func TestRunNowReleasesTheWindow(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, db *pgtest.DB, queue *commands.Queue, ask func(commands.EnqueueOptions) commands.EnqueueResult) {
		o := debounced("k", `1`, commands.Debounce{Window: time.Hour})
		first := ask(o)
		if err := queue.RunJobNow(t.Context(), first.JobID, operator); err != nil {
			t.Fatal(err)
		}
		row := jobOf(t, db.Pool, first.JobID)
		diff(t, "state", commands.JobReady, row.State)
		diff(t, "run time", noon, row.RunAt)
		second := ask(o)
		wantOutcome(t, second, commands.OutcomeAccepted)
		if second.JobID == first.JobID {
			t.Fatal("new work has the old job's ID")
		}
		wantOutcome(t, ask(o), commands.OutcomeReplaced)
		diff(t, "the job that runs", first.JobID, claim(t, queue, 1)[0].JobID)
		wantKinds(t, db.Pool, []ledger.Kind{
			ledger.KindAccepted, ledger.KindBindingReleased, ledger.KindJobReleased, ledger.KindAccepted, ledger.KindReplaced,
			ledger.KindJobStarted,
		})
		body := lastBody(t, db.Pool, ledger.KindBindingReleased)
		diff(t, "actor", any(operator.Actor), body["actor"])
		diff(t, "reason", any(operator.Reason), body["reason"])
	})
}
