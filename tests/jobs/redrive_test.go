package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// A redriven job has all of the failed one's content, but no key, no deadline, and a fresh attempt budget. The failed
// one stays as it is.
func TestRedrive(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	o := commands.EnqueueOptions{
		Type: "t", Queue: "q", Payload: json.RawMessage(`{"a": 1}`), Priority: 3, ConcurrencyKey: "c", Tags: []string{"a", "b"},
		RetryPolicy: commands.FixedRetry{Delay: time.Second}, ExecutionTimeout: time.Minute, Deadline: noon.Add(time.Hour),
		Idempotency: &commands.Idempotency{Key: ledger.NewKey("k")},
	}
	source := failed(t, queue, o)
	before := jobOf(t, db.Pool, source)
	db.AdvanceClock(t, 2*time.Hour)
	target, outcome, err := queue.RedriveJob(t.Context(), source, operator, "r")
	if err != nil || outcome != commands.RedriveMade {
		t.Fatal(outcome, err)
	}
	diff(t, "the source", before, jobOf(t, db.Pool, source))
	diff(t, "the target", jobRow{
		State: commands.JobReady, Queue: "q", Type: "t", Payload: `{"a": 1}`, Priority: 3, AttemptBudget: 1, ConcurrencyKey: ptr("c"),
		Tags: []string{"a", "b"}, RetryKind: ptr("fixed"), RetryInitial: ptr(int64(1000)), RetryMax: ptr(int64(1000)),
		Timeout: ptr(int64(60_000)), RunAt: noon.Add(2 * time.Hour),
	}, jobOf(t, db.Pool, target))
	body := lastBody(t, db.Pool, ledger.KindJobRedriven)
	diff(t, "audited", [5]any{target.String(), source.String(), operator.Actor, operator.Reason, "r"},
		[5]any{body["job_id"], body["source_job_id"], body["actor"], body["reason"], body["request_id"]})
	// The key stays with the source: a replay of the original request returns it.
	replay := decide(t, queue, with(o, func(o *commands.EnqueueOptions) { o.AttemptBudget = 1 }))
	wantOutcome(t, replay, commands.OutcomeReplayed)
	diff(t, "the replayed job", source, replay.JobID)
	complete(t, queue, claimFrom(t, queue, "q", 1)...)
}

// An exact repeat returns the first target, also when the source is long gone; another actor or reason is a conflict;
// another request ID is another redrive.
func TestRedriveIsIdempotent(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	source, other := failed(t, queue, work(`1`)), failed(t, queue, work(`2`))
	redrive := func(source uuid.UUID, actor, reason, request string) (uuid.UUID, commands.RedriveOutcome, error) {
		return queue.RedriveJob(t.Context(), source, commands.Act{Actor: actor, Reason: reason}, request)
	}
	target, outcome, err := redrive(source, "a", "b", "r")
	if err != nil || outcome != commands.RedriveMade {
		t.Fatal(outcome, err)
	}
	before := footprintOf(t, db.Pool)
	again, outcome, err := redrive(source, "a", "b", "r")
	if err != nil || outcome != commands.RedriveReplayed || again != target {
		t.Fatal(again, outcome, err)
	}
	for _, test := range []struct {
		actor, reason string
		fields        []string
	}{{"x", "b", []string{"actor"}}, {"a", "x", []string{"reason"}}, {"x", "x", []string{"actor", "reason"}}} {
		_, _, err := redrive(source, test.actor, test.reason, "r")
		var conflict *commands.RequestIDConflictError
		if !errors.As(err, &conflict) {
			t.Fatalf("error %v, want a *RequestIDConflictError", err)
		}
		diff(t, "conflict", commands.RequestIDConflictError{Op: "redrive", RequestID: "r", Fields: test.fields}, *conflict)
	}
	diff(t, "what is written", before, footprintOf(t, db.Pool))

	for _, made := range []struct {
		source  uuid.UUID
		request string
	}{{source, "r2"}, {other, "r"}} {
		id, outcome, err := redrive(made.source, "a", "b", made.request)
		if err != nil || outcome != commands.RedriveMade || id == target {
			t.Fatal(id, outcome, err)
		}
	}
	diff(t, "pruned", 2, maintain(t, queue, commands.MaintainOptions{Retention: -1}).PrunedJobs)
	again, outcome, err = redrive(source, "a", "b", "r")
	if err != nil || outcome != commands.RedriveReplayed || again != target {
		t.Fatal(again, outcome, err)
	}
}

// The same redrive from many callers at once makes one job.
func TestRedriveRace(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	source := failed(t, queue, idempotent("k", `1`, time.Hour))
	const callers = 8
	type answer struct {
		id      uuid.UUID
		outcome commands.RedriveOutcome
		err     error
	}
	answers := make(chan answer)
	for range callers {
		go func() {
			var a answer
			a.id, a.outcome, a.err = queue.RedriveJob(context.Background(), source, operator, "r")
			answers <- a
		}()
	}
	count := map[commands.RedriveOutcome]int{}
	ids := map[uuid.UUID]bool{}
	for range callers {
		a := <-answers
		if a.err != nil {
			t.Error(a.err)
		}
		count[a.outcome]++
		ids[a.id] = true
	}
	diff(t, "outcomes", map[commands.RedriveOutcome]int{commands.RedriveMade: 1, commands.RedriveReplayed: callers - 1}, count)
	diff(t, "targets", 1, len(ids))
	diff(t, "jobs", int64(2), footprintOf(t, db.Pool).Jobs)
}

// Only what has failed can be redriven, and not where its key is meanwhile owned by another job.
func TestRedriveRefused(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	for _, mode := range []commands.EnqueueOptions{
		idempotent("i", `1`, time.Minute), throttled("t", `1`, time.Minute),
		with(debounced("d", `1`, commands.Debounce{Window: time.Minute}), func(o *commands.EnqueueOptions) { o.RunAt = noon }),
	} {
		mode.AttemptBudget = 1
		db.FreezeClock(t, noon)
		source := failed(t, queue, mode)
		db.AdvanceClock(t, time.Minute)
		owner := accept(t, queue, mode).JobID
		before := footprintOf(t, db.Pool)
		_, _, err := queue.RedriveJob(t.Context(), source, operator, "r")
		var owned *commands.KeyOwnedError
		if !errors.As(err, &owned) {
			t.Fatalf("error %v, want a *KeyOwnedError", err)
		}
		diff(t, "who owns it", commands.KeyOwnedError{JobID: source, OwnerJobID: owner}, *owned)
		diff(t, "what is written", before, footprintOf(t, db.Pool))
		complete(t, queue, claim(t, queue, 1)...)
		// An owner whose hold is over does not stand in the way.
		db.AdvanceClock(t, time.Minute)
		if _, outcome, err := queue.RedriveJob(t.Context(), source, operator, "r"); err != nil || outcome != commands.RedriveMade {
			t.Fatal(outcome, err)
		}
		complete(t, queue, claim(t, queue, 1)...)
	}

	ready := accept(t, queue, work(`1`)).JobID
	_, _, err := queue.RedriveJob(t.Context(), ready, operator, "r")
	var state *commands.JobStateError
	if !errors.As(err, &state) || state.State != commands.JobReady {
		t.Errorf("error %v, want a *JobStateError", err)
	}
	if _, _, err := queue.RedriveJob(t.Context(), uuid.New(), operator, "r"); !errors.Is(err, commands.ErrJobNotFound) {
		t.Errorf("error %v, want ErrJobNotFound", err)
	}
}

// Bulk goes by pages, first failed first, restricted as asked; a dry run writes nothing; one that cannot be redriven does
// not stop the others.
func TestRedriveJobs(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	var all []uuid.UUID
	for i := range 7 {
		o := work(`1`)
		o.Queue = "q"
		o.Type = []string{"a", "b"}[i%2]
		if i == 3 {
			o.Idempotency = &commands.Idempotency{Key: ledger.NewKey("k"), TTL: time.Second}
		}
		all = append(all, failed(t, queue, o))
		db.AdvanceClock(t, time.Second)
	}
	failed(t, queue, with(work(`1`), func(o *commands.EnqueueOptions) { o.Queue = "other" }))
	owner := accept(t, queue, with(idempotent("k", `2`, time.Hour), func(o *commands.EnqueueOptions) { o.Queue = "owner" })).JobID

	pages := func(options commands.RedriveOptions) (pages [][]commands.Redriven) {
		t.Helper()
		for {
			page, next, err := queue.RedriveJobs(t.Context(), options, operator, "bulk")
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, page)
			if next == nil {
				return pages
			}
			options.After = *next
		}
	}
	sources := func(pages [][]commands.Redriven) (all []uuid.UUID) {
		for _, page := range pages {
			for _, r := range page {
				all = append(all, r.SourceJobID)
			}
		}
		return all
	}

	before := footprintOf(t, db.Pool)
	dry := pages(commands.RedriveOptions{Queue: "q", Limit: 3, DryRun: true})
	diff(t, "pages", []int{3, 3, 1}, []int{len(dry[0]), len(dry[1]), len(dry[2])})
	diff(t, "in the order of failing", all, sources(dry))
	for _, r := range dry[0] {
		diff(t, "planned", commands.Redriven{SourceJobID: r.SourceJobID, Outcome: commands.RedrivePlanned}, r)
	}
	diff(t, "of type a", []uuid.UUID{all[0], all[2], all[4], all[6]}, sources(pages(commands.RedriveOptions{Queue: "q", Type: "a", DryRun: true})))
	diff(t, "failed before", all[:2], sources(pages(commands.RedriveOptions{FailedBefore: noon.Add(2 * time.Second), DryRun: true})))
	diff(t, "every queue", 8, len(sources(pages(commands.RedriveOptions{DryRun: true, Limit: 8}))))
	diff(t, "what is written by dry runs", before, footprintOf(t, db.Pool))

	wet := pages(commands.RedriveOptions{Queue: "q", Limit: 3})
	diff(t, "redriven", all, sources(wet))
	var owned *commands.KeyOwnedError
	if r := wet[1][0]; !errors.As(r.Err, &owned) || owned.OwnerJobID != owner || r.TargetJobID != uuid.Nil {
		t.Errorf("the one whose key is owned: %+v", r)
	}
	before.Jobs += 6
	before.Events += 6
	diff(t, "what is written", before, footprintOf(t, db.Pool))
	again := pages(commands.RedriveOptions{Queue: "q", Limit: 1000})
	diff(t, "the same again", wet[0][0].TargetJobID, again[0][0].TargetJobID)
	diff(t, "the same again", commands.RedriveReplayed, again[0][0].Outcome)
	diff(t, "what is written", before, footprintOf(t, db.Pool))

	_, _, err := queue.RedriveJobs(t.Context(), commands.RedriveOptions{Limit: 1001}, operator, "r")
	wantInvalid(t, err, "limit")
	_, _, err = queue.RedriveJobs(t.Context(), commands.RedriveOptions{}, operator, "")
	wantInvalid(t, err, "request_id")
}
