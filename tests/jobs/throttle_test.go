package jobs_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// Accepted at t0; coalesced a millisecond, and a microsecond, before its window is over; accepted anew at its end. That
// the first job still runs then does not matter.
func TestThrottleWindow(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, db *pgtest.DB, queue *commands.Queue, ask func(commands.EnqueueOptions) commands.EnqueueResult) {
		const window = time.Minute
		o := throttled("k", `1`, window)
		first := ask(o)
		wantOutcome(t, first, commands.OutcomeAccepted)
		diff(t, "the answer", commands.EnqueueResult{
			JobID: first.JobID, Outcome: commands.OutcomeAccepted, BoundAt: noon, ExpiresAt: noon.Add(window),
		}, first)
		// Unlike a debounced job it does not wait.
		diff(t, "claimed", first.JobID, claim(t, queue, 1)[0].JobID)

		coalesced := first
		coalesced.Outcome = commands.OutcomeCoalesced
		db.FreezeClock(t, noon.Add(window-time.Millisecond))
		diff(t, "a millisecond before", coalesced, ask(o))
		db.FreezeClock(t, noon.Add(window-time.Microsecond))
		diff(t, "a microsecond before", coalesced, ask(o))
		db.FreezeClock(t, noon.Add(window))
		second := ask(o)
		wantOutcome(t, second, commands.OutcomeAccepted)
		if second.JobID == first.JobID {
			t.Fatal("new work has the old job's ID")
		}
		diff(t, "the second window", noon.Add(2*window), second.ExpiresAt)
		wantState(t, db.Pool, first.JobID, commands.JobActive)
		wantKinds(t, db.Pool, []ledger.Kind{
			ledger.KindAccepted, ledger.KindJobStarted, ledger.KindBindingExpired, ledger.KindAccepted,
		})
	})
}

// A coalesced request works whatever state the job is in, also where the job is finished.
func TestThrottleCoalescesInEachState(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	o := throttled("k", `1`, time.Hour)
	o.AttemptBudget = 2
	id := accept(t, queue, o).JobID
	check := func(state commands.JobState) {
		t.Helper()
		wantState(t, db.Pool, id, state)
		before := footprintOf(t, db.Pool)
		for _, w := range ways() {
			result, err := w.ask(db, queue, o)
			if err != nil {
				t.Fatal(err)
			}
			if result.Outcome != commands.OutcomeCoalesced || result.JobID != id {
				t.Fatalf("%s: %s job %s, want job %s coalesced", w.name, result.Outcome, result.JobID, id)
			}
		}
		diff(t, "what is written", before, footprintOf(t, db.Pool))
	}
	check(commands.JobReady)
	first := claim(t, queue, 1)[0]
	check(commands.JobActive)
	fail(t, queue, first)
	check(commands.JobScheduled)
	db.AdvanceClock(t, time.Minute)
	fail(t, queue, claim(t, queue, 1)[0])
	check(commands.JobFailed)
	maintain(t, queue, commands.MaintainOptions{Retention: -1})
	check(commands.JobFailed)
}

// Ten thousand coalesced calls, single and in batches, write nothing: no WAL, no sequence value, and so no row version.
func TestCoalescedWritesNothing(t *testing.T) {
	t.Parallel()
	cluster := pgtest.NewCluster(t, map[string]string{
		// A quiet server: nothing of its own in the WAL.
		"autovacuum": "off", "wal_level": "minimal", "max_wal_senders": "0", "fsync": "off", "checkpoint_timeout": "1h",
	})
	db := cluster.New(t, pgtest.MaxConns(1))
	queue := newQueue(t, db.Pool)
	const calls, keys = 10_000, 100
	requests := make([]commands.EnqueueOptions, keys)
	for i := range requests {
		requests[i] = throttled("k"+strconv.Itoa(i), `{"a": 1}`, time.Hour)
	}
	ask := func(want commands.EnqueueOutcome) {
		results, err := queue.DecideMany(t.Context(), requests)
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range results {
			wantOutcome(t, result, want)
		}
	}
	ask(commands.OutcomeAccepted)
	// Hints that rows are committed are set, and what PostgreSQL writes by itself is written.
	ask(commands.OutcomeCoalesced)
	wantOutcome(t, decide(t, queue, requests[0]), commands.OutcomeCoalesced)
	db.Exec(t, "checkpoint")

	type position struct {
		WAL     string
		EventID int64
	}
	read := func() position {
		t.Helper()
		rows, err := db.Pool.Query(t.Context(),
			"select pg_current_wal_insert_lsn()::text, (select last_value from daybook.event_event_id_seq)")
		if err != nil {
			t.Fatal(err)
		}
		p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[position])
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	before := read()
	for range calls / keys / 2 {
		ask(commands.OutcomeCoalesced)
	}
	for i := range calls / 2 {
		result, err := queue.Decide(context.Background(), requests[i%keys])
		if err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, result, commands.OutcomeCoalesced)
	}
	diff(t, "after ten thousand calls", before, read())
}
