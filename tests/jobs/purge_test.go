package jobs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// A purge takes the scheduled and ready jobs of a queue and frees their keys at once; whatever has begun and is not
// back in the queue, is finished, or is in another queue, stays.
func TestPurge(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	ask := func(name string, o commands.EnqueueOptions) uuid.UUID {
		o.Queue = name
		return accept(t, queue, o).JobID
	}
	finished := ask("q", work(`"finished"`))
	complete(t, queue, claimFrom(t, queue, "q", 1)...)
	active := ask("q", idempotent("active", `1`, time.Hour))
	claimFrom(t, queue, "q", 1)
	backoff := ask("q", with(idempotent("backing off", `1`, time.Hour), func(o *commands.EnqueueOptions) {
		o.RetryPolicy = commands.FixedRetry{Delay: time.Hour}
	}))
	fail(t, queue, claimFrom(t, queue, "q", 1)[0])
	elsewhere := ask("other", idempotent("elsewhere", `1`, time.Hour))
	expired := ask("q", throttled("expired", `1`, time.Millisecond))
	purged := []uuid.UUID{
		backoff, expired,
		ask("q", work(`"ready"`)),
		ask("q", with(work(`"scheduled"`), func(o *commands.EnqueueOptions) { o.RunAt = noon.Add(time.Hour) })),
		ask("q", idempotent("idempotent", `1`, time.Hour)),
		ask("q", debounced("debounced", `1`, commands.Debounce{Window: time.Hour})),
		ask("q", throttled("throttled", `1`, time.Hour)),
	}
	db.AdvanceClock(t, time.Second)

	n, err := queue.Purge(t.Context(), "q", operator, "r-1")
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "purged", int64(len(purged)), n)
	for _, id := range purged {
		diff(t, "rows of a purged job", int64(0), query1[int64](t, db.Pool, "select count(*) from daybook.job where job_id = $1", id))
		all := kinds(t, db.Pool, id)
		diff(t, "its last event", ledger.KindJobPurged, all[len(all)-1])
	}
	diff(t, "keys released", int64(5), query1[int64](t, db.Pool, "select count(*) from daybook.event where kind = 'binding.released'"))
	body := lastBody(t, db.Pool, ledger.KindJobPurged)
	diff(t, "audited", [3]any{operator.Actor, operator.Reason, "r-1"}, [3]any{body["actor"], body["reason"], body["request_id"]})
	wantState(t, db.Pool, finished, commands.JobSucceeded)
	wantState(t, db.Pool, active, commands.JobActive)
	wantState(t, db.Pool, elsewhere, commands.JobReady)
	wantOutcome(t, decide(t, queue, with(idempotent("active", `1`, time.Hour), func(o *commands.EnqueueOptions) { o.Queue = "q" })), commands.OutcomeReplayed)
	for _, o := range []commands.EnqueueOptions{
		idempotent("idempotent", `1`, time.Hour), debounced("debounced", `1`, commands.Debounce{Window: time.Hour}),
		throttled("throttled", `1`, time.Hour), idempotent("backing off", `1`, time.Hour),
	} {
		accept(t, queue, o)
	}
	row := query[string](t, db.Pool, "select request_id || ' ' || queue || ' ' || purged from daybook.purge where finished_at is not null")
	diff(t, "the record", []string{"r-1 q 7"}, row)
}

// The same request ID again does nothing and answers the same; with another queue, actor or reason it is a conflict.
func TestPurgeIsIdempotent(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	for range 3 {
		accept(t, queue, work(`1`))
	}
	purge := func(name, actor, reason string) (int64, error) {
		return queue.Purge(t.Context(), name, commands.Act{Actor: actor, Reason: reason}, "r")
	}
	n, err := purge("default", "a", "b")
	if err != nil || n != 3 {
		t.Fatal(n, err)
	}
	db.AdvanceClock(t, time.Second)
	kept := accept(t, queue, work(`1`)).JobID
	before := footprintOf(t, db.Pool)
	n, err = purge("default", "a", "b")
	if err != nil || n != 3 {
		t.Fatal(n, err)
	}
	for _, test := range []struct {
		queue, actor, reason string
		fields               []string
	}{
		{"default", "x", "b", []string{"actor"}},
		{"default", "a", "x", []string{"reason"}},
		{"x", "a", "b", []string{"queue"}},
		{"x", "x", "x", []string{"actor", "queue", "reason"}},
	} {
		_, err := purge(test.queue, test.actor, test.reason)
		var conflict *commands.RequestIDConflictError
		if !errors.As(err, &conflict) {
			t.Fatalf("error %v, want a *RequestIDConflictError", err)
		}
		diff(t, "conflict", commands.RequestIDConflictError{Op: "purge", RequestID: "r", Fields: test.fields}, *conflict)
	}
	diff(t, "what is written", before, footprintOf(t, db.Pool))
	wantState(t, db.Pool, kept, commands.JobReady)
	_, err = queue.Purge(t.Context(), "", operator, "r2")
	wantInvalid(t, err, "queue")
	_, err = queue.Purge(t.Context(), "q", operator, "")
	wantInvalid(t, err, "request_id")
	_, err = queue.Purge(t.Context(), "q", operator, strings.Repeat("x", commands.MaxRequestIDBytes+1))
	wantInvalid(t, err, "request_id")
}

// What is accepted after a purge began survives it, also where that purge is interrupted and goes on later.
func TestPurgeSparesLaterJobs(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	// More than one batch of each state takes.
	const early = 2300
	requests := make([]commands.EnqueueOptions, early)
	for i := range requests {
		requests[i] = work(`1`)
		if i%2 == 0 {
			requests[i].RunAt = noon.Add(time.Hour)
		}
	}
	if _, err := queue.EnqueueMany(t.Context(), requests); err != nil {
		t.Fatal(err)
	}
	// The first batch, by hand.
	query[string](t, db.Pool, "select p.outcome from daybook.purge_jobs('default', $1, $2, 'r', 100) as p", operator.Actor, operator.Reason)
	diff(t, "purged so far", int64(200), query1[int64](t, db.Pool, "select purged from daybook.purge"))
	db.AdvanceClock(t, time.Microsecond)
	ready := accept(t, queue, work(`1`)).JobID
	scheduled := accept(t, queue, with(work(`1`), func(o *commands.EnqueueOptions) { o.RunAt = noon.Add(time.Minute) })).JobID
	n, err := queue.Purge(t.Context(), "default", operator, "r")
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "purged", int64(early), n)
	diff(t, "jobs left", int64(2), footprintOf(t, db.Pool).Jobs)
	wantState(t, db.Pool, ready, commands.JobReady)
	wantState(t, db.Pool, scheduled, commands.JobScheduled)
	diff(t, "events", int64(early), query1[int64](t, db.Pool, "select count(*) from daybook.event where kind = 'job.purged'"))
}

// A replacement that moves the job out of a queue while a purge waits for its key saves the job.
func TestPurgeJudgesAfterTheLock(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	o := debounced("k", `1`, commands.Debounce{Window: time.Hour})
	id := accept(t, queue, o).JobID
	other := accept(t, queue, debounced("k2", `1`, commands.Debounce{Window: time.Hour})).JobID
	tx := begin(t, db.Pool)
	result, err := queue.DecideTx(t.Context(), tx, with(o, func(o *commands.EnqueueOptions) { o.Queue = "saved" }))
	if err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, result, commands.OutcomeReplaced)
	type answer struct {
		n   int64
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		a.n, a.err = queue.Purge(t.Context(), "default", operator, "r")
		answers <- a
	}()
	db.WaitBlockedBy(t, pidOf(tx), 1)
	commit(t, tx)
	a := <-answers
	if a.err != nil {
		t.Fatal(a.err)
	}
	diff(t, "purged", int64(1), a.n)
	wantState(t, db.Pool, id, commands.JobScheduled)
	diff(t, "rows of the other", int64(0), query1[int64](t, db.Pool, "select count(*) from daybook.job where job_id = $1", other))
	wantOutcome(t, decide(t, queue, with(o, func(o *commands.EnqueueOptions) { o.Queue = "saved" })), commands.OutcomeReplaced)
}
