package projections_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// shift is a worker and an operator at one queue, who fail the test on any error.
type shift struct {
	t     *testing.T
	queue *commands.Queue
	act   commands.Act
}

func newShift(t *testing.T, db *pgtest.DB) shift {
	t.Helper()
	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool})
	if err != nil {
		t.Fatal(err)
	}
	return shift{t, queue, commands.Act{Actor: "op@example.com", Reason: "the test wants it"}}
}

func (s shift) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s shift) enqueue(o commands.EnqueueOptions) uuid.UUID {
	s.t.Helper()
	o.Type, o.Queue = "order.ship", "orders"
	id, err := s.queue.Enqueue(s.t.Context(), o)
	s.must(err)
	return id
}

// claim begins an attempt of the job that is due first.
func (s shift) claim() commands.Claim {
	s.t.Helper()
	claimed, err := s.queue.ClaimJobs(s.t.Context(), commands.ClaimOptions{Queue: "orders", Worker: "w"})
	s.must(err)
	if len(claimed) != 1 {
		s.t.Fatal("no job is ready")
	}
	return claimed[0].Claim
}

func (s shift) fail() {
	s.t.Helper()
	_, err := s.queue.FailJob(s.t.Context(), s.claim(), "no luck")
	s.must(err)
}

// liveJobs leads jobs through all that can become of one, and returns them by what became of them. The clock ends at noon
// and 7 minutes.
func liveJobs(t *testing.T, db *pgtest.DB) map[string]uuid.UUID {
	t.Helper()
	ctx := t.Context()
	s := newShift(t, db)
	jobs := map[string]uuid.UUID{}
	next := func() { db.AdvanceClock(t, time.Minute) }
	db.FreezeClock(t, noon)
	jobs["succeeded"] = s.enqueue(commands.EnqueueOptions{
		Idempotency: &commands.Idempotency{Key: ledger.NewKey("order-2026-0001"), Scope: "shop"},
	})
	next() // 12:01
	_, err := s.queue.CompleteJobs(ctx, s.claim())
	s.must(err)
	jobs["failed"] = s.enqueue(commands.EnqueueOptions{AttemptBudget: 1})
	s.fail()
	next() // 12:02
	jobs["redriven"], _, err = s.queue.RedriveJob(ctx, jobs["failed"], s.act, "r1")
	s.must(err)
	s.must(s.queue.CancelJob(ctx, jobs["redriven"], s.act))
	jobs["cancelled"] = s.enqueue(commands.EnqueueOptions{})
	s.claim()
	next() // 12:03
	s.must(s.queue.CancelJob(ctx, jobs["cancelled"], s.act))
	jobs["purged"] = s.enqueue(commands.EnqueueOptions{})
	_, err = s.queue.Purge(ctx, "orders", s.act, "p1")
	s.must(err)
	jobs["retried"] = s.enqueue(commands.EnqueueOptions{RetryPolicy: commands.FixedRetry{Delay: time.Hour}})
	s.fail()
	next() // 12:04
	jobs["expired"] = s.enqueue(commands.EnqueueOptions{})
	s.claim()
	next()
	next() // 12:06
	_, err = s.queue.ExpireLeases(ctx, 10)
	s.must(err)
	jobs["active"] = jobs["expired"]
	s.claim()
	jobs["scheduled"] = s.enqueue(commands.EnqueueOptions{RunAt: noon.Add(24 * time.Hour)})
	jobs["released"] = s.enqueue(commands.EnqueueOptions{RunAt: noon.Add(24 * time.Hour)})
	s.must(s.queue.RunJobNow(ctx, jobs["released"], s.act))
	jobs["debounced"] = s.enqueue(commands.EnqueueOptions{
		Debounce: &commands.Debounce{Key: ledger.NewKey("search-index"), Window: time.Hour, MaxWait: 2 * time.Hour},
	})
	next() // 12:07
	result, err := s.queue.Decide(ctx, commands.EnqueueOptions{
		Type: "order.index", Queue: "index", AttemptBudget: 7,
		Debounce: &commands.Debounce{Key: ledger.NewKey("search-index"), Window: time.Hour, MaxWait: 2 * time.Hour},
	})
	s.must(err)
	if result.Outcome != commands.OutcomeReplaced {
		t.Fatalf("outcome %s, want replaced", result.Outcome)
	}
	return jobs
}

func TestViewJobFollowsTheLifeOfJobs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	jobs := liveJobs(t, db)
	catchUp(t, db, 3)
	mustEqualModel(t, db)

	// What the events add up to is what the jobs themselves are.
	if n := queryOne[int](t, db, `
		select count(*)
		from daybook.job as j
		full join daybook.view_job as v on v.job_id = j.job_id
		where v.job_id is null
			or (j.job_id is null) <> (v.state = 'purged')
			or j.job_id is not null and (
				v.state <> case when j.state in ('scheduled', 'ready') then 'waiting' else j.state end
				or v.attempt <> j.attempt
				or v.attempt_budget <> j.attempt_budget
				or v.queue <> j.queue
				or v.type <> j.type
				or v.accepted_at <> j.accepted_at
				or v.finished_at is distinct from j.finished_at
				or v.key_digest is distinct from daybook.key_digest(j.key_hash)
				or v.next_run_at is distinct from case when j.state in ('scheduled', 'ready') then j.run_at end
			)`); n != 0 {
		t.Errorf("%d rows of view_job are not what the job is", n)
	}

	at := func(minutes int) *time.Time {
		at := noon.Add(time.Duration(minutes) * time.Minute)
		return &at
	}
	failed := jobs["failed"]
	hash, _ := ledger.Keys{}.Hash("shop", ledger.NewKey("order-2026-0001"))
	index, _ := ledger.Keys{}.Hash("default", ledger.NewKey("search-index"))
	want := map[string]projections.JobView{
		"succeeded": {State: "succeeded", Attempt: 1, KeyDigest: hash.Digest(), KeyPreview: "order…", Scope: "shop", AcceptedAt: at(0), StartedAt: at(1), FinishedAt: at(1)},
		"failed":    {State: "failed", Attempt: 1, AttemptBudget: 1, AcceptedAt: at(1), StartedAt: at(1), FinishedAt: at(1)},
		"redriven":  {State: "cancelled", AttemptBudget: 1, SourceJobID: &failed, AcceptedAt: at(2), FinishedAt: at(2)},
		"cancelled": {State: "cancelled", Attempt: 1, AcceptedAt: at(2), StartedAt: at(2), FinishedAt: at(3)},
		"purged":    {State: "purged", AcceptedAt: at(3), FinishedAt: at(3)},
		"retried":   {State: "scheduled", Attempt: 1, AcceptedAt: at(3), StartedAt: at(3), NextRunAt: at(63)},
		"active":    {State: "active", Attempt: 2, AcceptedAt: at(4), StartedAt: at(6)},
		"scheduled": {State: "scheduled", AcceptedAt: at(6), NextRunAt: at(24 * 60)},
		"released":  {State: "ready", AcceptedAt: at(6), NextRunAt: at(6)},
		"debounced": {State: "scheduled", AttemptBudget: 7, Queue: "index", Type: "order.index", KeyDigest: index.Digest(), KeyPreview: "sear…", Scope: "default", AcceptedAt: at(6), NextRunAt: at(67)},
	}
	for name, w := range want {
		got, err := projections.Jobs(t.Context(), db.Pool, projections.JobFilter{JobID: jobs[name]})
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %d jobs, %v", name, len(got), err)
			continue
		}
		w.JobID = jobs[name]
		if w.AttemptBudget == 0 {
			w.AttemptBudget = 25
		}
		if w.Queue == "" {
			w.Queue, w.Type = "orders", "order.ship"
		}
		w.FirstPosition, w.LastPosition = got[0].FirstPosition, got[0].LastPosition
		if diff := cmp.Diff(w, got[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	names := func(filter projections.JobFilter) (found []string) {
		t.Helper()
		got, err := projections.Jobs(t.Context(), db.Pool, filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range got {
			for name := range want {
				if jobs[name] == job.JobID {
					found = append(found, name)
				}
			}
		}
		return found
	}
	all := []string{"debounced", "released", "scheduled", "active", "retried", "purged", "cancelled", "redriven", "failed", "succeeded"}
	tests := []struct {
		filter projections.JobFilter
		want   []string
	}{
		{projections.JobFilter{}, all},
		{projections.JobFilter{Limit: 2}, all[:2]},
		{projections.JobFilter{State: "scheduled"}, []string{"debounced", "scheduled", "retried"}},
		{projections.JobFilter{State: "ready"}, []string{"released"}},
		{projections.JobFilter{State: "cancelled"}, []string{"cancelled", "redriven"}},
		{projections.JobFilter{State: "purged", Queue: "elsewhere"}, nil},
		{projections.JobFilter{State: "scheduled", Queue: "orders", Type: "order.ship"}, []string{"scheduled", "retried"}},
		{projections.JobFilter{Queue: "index"}, all[:1]},
		{projections.JobFilter{Queue: "orders", Limit: 2}, all[1:3]},
		{projections.JobFilter{Type: "order.index"}, all[:1]},
		{projections.JobFilter{KeyDigest: string(hash.Digest()[:5])}, []string{"succeeded"}},
		{projections.JobFilter{KeyDigest: string(hash.Digest()), State: "ready"}, nil},
		{projections.JobFilter{KeyDigest: string(index.Digest()), State: "scheduled", Queue: "index", Type: "order.index"}, all[:1]},
		{projections.JobFilter{JobID: uuid.New()}, nil},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, names(test.filter)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.filter, diff)
		}
	}
	two, err := projections.Jobs(t.Context(), db.Pool, projections.JobFilter{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, filter := range []projections.JobFilter{{}, {Queue: "orders"}} {
		filter.Before = two[1].FirstPosition
		if diff := cmp.Diff(all[2:], names(filter)); diff != "" {
			t.Errorf("to read on with %+v (-want +got):\n%s", filter, diff)
		}
	}

	// A time that comes is no event, and yet the job is ready.
	db.SetClock(t, noon.Add(48*time.Hour))
	if got := names(projections.JobFilter{State: "scheduled"}); got != nil {
		t.Errorf("two days later %v are scheduled", got)
	}
	if diff := cmp.Diff([]string{"debounced", "released", "scheduled", "retried"}, names(projections.JobFilter{State: "ready"})); diff != "" {
		t.Errorf("ready two days later (-want +got):\n%s", diff)
	}
}
