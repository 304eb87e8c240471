package jobs_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// Highest priority first, then earliest due, by queue; and no more than asked for.
func TestClaimOrder(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	ids := map[string]uuid.UUID{}
	for name, o := range map[string]commands.EnqueueOptions{
		"low, early":  {RunAt: noon.Add(-2 * time.Hour)},
		"low, late":   {RunAt: noon.Add(-time.Hour)},
		"high, late":  {RunAt: noon.Add(-time.Hour), Priority: 100},
		"high, early": {RunAt: noon.Add(time.Minute), Priority: 100},
		"to come":     {RunAt: noon.Add(time.Hour), Priority: 100},
		"elsewhere":   {Queue: "other", Priority: 100},
	} {
		o.Type = name
		ids[name] = accept(t, queue, o).JobID
	}
	wantState(t, db.Pool, ids["high, early"], commands.JobScheduled)
	wantState(t, db.Pool, ids["low, early"], commands.JobReady)
	db.AdvanceClock(t, time.Minute)
	var got []string
	for _, job := range append(claim(t, queue, 3), claim(t, queue, 1)...) {
		got = append(got, job.Type)
	}
	// Promotion does not change when a job was due.
	diff(t, "order", []string{"high, late", "high, early", "low, early", "low, late"}, got)
	claim(t, queue, 0)
	diff(t, "the other queue's", ids["elsewhere"], claimFrom(t, queue, "other", 1)[0].JobID)
	db.AdvanceClock(t, time.Hour)
	diff(t, "what was to come", ids["to come"], claim(t, queue, 1)[0].JobID)
}

// A worker gets all that the request held, and what it needs to finish.
func TestClaimedJob(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	id := accept(t, queue, commands.EnqueueOptions{
		Type: "t", Payload: json.RawMessage(`{"a":[1]}`), Priority: 3, ConcurrencyKey: "c", Tags: []string{`b"`, "a"},
		AttemptBudget: 2, Deadline: noon.Add(time.Hour), ExecutionTimeout: 1500 * time.Millisecond,
	}).JobID
	jobs, err := queue.ClaimJobs(t.Context(), commands.ClaimOptions{Worker: "w", Lease: 90 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "the job", []commands.ClaimedJob{{
		Claim: commands.Claim{JobID: id, Fence: 1}, Attempt: 1, AttemptBudget: 2, Type: "t", Payload: json.RawMessage(`{"a": [1]}`),
		Priority: 3, ConcurrencyKey: "c", Tags: []string{"a", `b"`}, Deadline: noon.Add(time.Hour),
		ExecutionTimeout: 1500 * time.Millisecond, LeaseExpiresAt: noon.Add(90 * time.Second),
	}}, jobs)
	body := lastBody(t, db.Pool, ledger.KindJobStarted)
	want := map[string]any{
		"v": 1.0, "job_id": id.String(), "type": "t", "queue": "default", "attempt": 1.0, "attempt_budget": 2.0, "worker": "w",
		"lease_expires_at": rfc(noon.Add(90 * time.Second)),
	}
	diff(t, "job.started", want, body)
}

// Whom others hold is passed over, never waited for.
func TestClaimPassesOver(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	first := accept(t, queue, work(`1`)).JobID
	db.AdvanceClock(t, time.Second)
	second := accept(t, queue, work(`2`)).JobID
	tx := begin(t, db.Pool)
	if err := queue.RunJobNowTx(t.Context(), tx, first, operator); err != nil {
		t.Fatal(err)
	}
	diff(t, "claimed", second, claim(t, queue, 1)[0].JobID)
	claim(t, queue, 0)
	rollback(t, tx)
	diff(t, "claimed", first, claim(t, queue, 1)[0].JobID)
}

// Many workers at once: each job goes to one of them.
func TestClaimersShareJobs(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	const jobs, workers = 300, 6
	requests := make([]commands.EnqueueOptions, jobs)
	for i := range requests {
		requests[i] = work(`1`)
	}
	if _, err := queue.EnqueueMany(t.Context(), requests); err != nil {
		t.Fatal(err)
	}
	type result struct {
		claims []commands.Claim
		err    error
	}
	results := make(chan result)
	for range workers {
		go func() {
			var r result
			for {
				got, err := queue.ClaimJobs(context.Background(), commands.ClaimOptions{Worker: "w", Limit: 7})
				if r.err = err; err != nil || len(got) == 0 {
					break
				}
				r.claims = append(r.claims, claims(got)...)
			}
			results <- r
		}()
	}
	seen := map[commands.Claim]int{}
	for range workers {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		for _, c := range r.claims {
			seen[c]++
		}
	}
	for c, times := range seen {
		if times != 1 || c.Fence != 1 {
			t.Errorf("claim %v %d times", c, times)
		}
	}
	diff(t, "claimed", jobs, len(seen))
	diff(t, "started", int64(jobs), query1[int64](t, db.Pool, "select count(*) from daybook.event where kind = 'job.started'"))
}

// A job must not begin after its deadline.
func TestClaimCancelsAfterDeadline(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	o := idempotent("k", `1`, time.Hour)
	o.Deadline = noon.Add(time.Minute)
	id := accept(t, queue, o).JobID
	kept := accept(t, queue, with(work(`2`), func(o *commands.EnqueueOptions) { o.Deadline = noon.Add(time.Minute + time.Microsecond) })).JobID
	db.AdvanceClock(t, time.Minute)
	diff(t, "claimed", kept, claim(t, queue, 1)[0].JobID)
	row := jobOf(t, db.Pool, id)
	if row.State != commands.JobCancelled || row.Attempt != 0 || row.FinishedAt == nil || !row.FinishedAt.Equal(noon.Add(time.Minute)) {
		t.Errorf("%+v", row)
	}
	wantKinds(t, db.Pool, []ledger.Kind{ledger.KindAccepted, ledger.KindJobCancelled}, id)
	diff(t, "reason", any("deadline"), lastBody(t, db.Pool, ledger.KindJobCancelled)["reason"])
	// Its key stays bound.
	wantOutcome(t, decide(t, queue, o), commands.OutcomeReplayed)
}

// A worker that asks in vain leaves nothing behind, not even a transaction ID.
func TestClaimInVainWritesNothing(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	accept(t, queue, with(work(`1`), func(o *commands.EnqueueOptions) { o.RunAt = noon.Add(time.Hour) }))
	tx := begin(t, db.Pool)
	const statement = "select cardinality(c.job_ids) from daybook.claim_jobs('default', 'w', 10, 1000) as c"
	var none *int
	if err := tx.QueryRow(t.Context(), statement).Scan(&none); err != nil || none != nil {
		t.Fatalf("%v %v", none, err)
	}
	if xid := query1[*string](t, tx, "select pg_current_xact_id_if_assigned()::text"); xid != nil {
		t.Errorf("it took the transaction ID %s", *xid)
	}
}

func TestClaimBounds(t *testing.T) {
	t.Parallel()
	_, queue := newFrozen(t)
	long := string(make([]byte, commands.MaxWorkerBytes+1))
	for field, options := range map[string]commands.ClaimOptions{
		"worker": {},
		"queue":  {Worker: "w", Queue: long},
		"limit":  {Worker: "w", Limit: commands.MaxClaim + 1},
		"lease":  {Worker: "w", Lease: commands.MaxLease + time.Millisecond},
	} {
		_, err := queue.ClaimJobs(t.Context(), options)
		wantInvalid(t, err, field)
	}
	_, err := queue.ClaimJobs(t.Context(), commands.ClaimOptions{Worker: "w", Lease: time.Microsecond})
	wantInvalid(t, err, "lease")
	_, _, err = queue.HeartbeatJobs(t.Context(), 0, commands.Claim{})
	wantInvalid(t, err, "lease")
	_, err = queue.ExpireLeases(t.Context(), 0)
	wantInvalid(t, err, "limit")
	_, err = queue.CompleteJobs(t.Context(), make([]commands.Claim, commands.MaxClaim+1)...)
	wantInvalid(t, err, "claims")
}

// A heartbeat extends the lease of the claims that hold, and says which those are.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	accept(t, queue, work(`1`))
	accept(t, queue, work(`2`))
	jobs := claim(t, queue, 2)
	complete(t, queue, jobs[1])
	before := len(kinds(t, db.Pool))
	db.AdvanceClock(t, 30*time.Second)
	stale := jobs[0].Claim
	stale.Fence--
	held, until, err := queue.HeartbeatJobs(t.Context(), 2*time.Minute,
		stale, jobs[0].Claim, jobs[1].Claim, commands.Claim{JobID: uuid.New(), Fence: 1})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]bool{false, true, false, false}, held); d != "" {
		t.Errorf("held (-want +got):\n%s", d)
	}
	diff(t, "until", noon.Add(150*time.Second), until)
	diff(t, "lease", ptr(until), jobOf(t, db.Pool, jobs[0].JobID).LeaseExpiresAt)
	diff(t, "a heartbeat is no event", before, len(kinds(t, db.Pool)))
	// The lease was to end at 60 s.
	db.FreezeClock(t, until.Add(-time.Microsecond))
	diff(t, "leases expired", 0, maintain(t, queue, commands.MaintainOptions{}).ExpiredLeases)
	db.FreezeClock(t, until)
	diff(t, "leases expired", 1, maintain(t, queue, commands.MaintainOptions{}).ExpiredLeases)
	held, _, err = queue.HeartbeatJobs(t.Context(), time.Minute, jobs[0].Claim)
	if err != nil || held[0] {
		t.Errorf("a claim whose lease ran out still holds (%v)", err)
	}
}
