package commands

import (
	"context"
	_ "embed" // the statements
	"errors"
	"time"
)

var (
	//go:embed sql/complete_jobs.sql
	completeJobsSQL string
	//go:embed sql/fail_job.sql
	failJobSQL string
	//go:embed sql/expire_leases.sql
	expireLeasesSQL string
)

// ErrStaleClaim says that a claim does not hold its job any more: the lease ran out and the job was given to another
// worker, or it was cancelled. Nothing was changed.
var ErrStaleClaim = errors.New("daybook: the claim is stale: the job has another fence or is not active")

// CompleteJobs ends jobs as succeeded and says for each claim, in the order given, whether it did; false is a stale claim,
// which changes nothing and holds up no other. It appends job.succeeded for each job that it ends.
//
// There are at most 10,000 claims ([MaxClaim]). The same claim twice is answered twice and ends its job once; given again
// in a later call it is stale, also after a [*CallError] whose Unknown is true. Of no claims the answer is nil. It waits for
// whoever holds a row, and runs in a transaction of its own. More claims are an [*InvalidRequestError], anything else a
// [*CallError].
func (q *Queue) CompleteJobs(ctx context.Context, claims ...Claim) ([]bool, error) {
	if q.pool == nil {
		return nil, errNoPool
	}
	return q.completeJobs(ctx, poolTx{q.pool}, true, claims)
}

// CompleteJobsTx is [Queue.CompleteJobs] in the caller's transaction: what the job did and that it is done commit
// together. A stale claim leaves the transaction usable: roll back all the same, or what the job did is committed although
// another worker does it again.
func (q *Queue) CompleteJobsTx(ctx context.Context, tx Tx, claims ...Claim) ([]bool, error) {
	return q.completeJobs(ctx, tx, false, claims)
}

func (q *Queue) completeJobs(ctx context.Context, tx Tx, own bool, claims []Claim) ([]bool, error) {
	c := checker{}
	c.number("claims", len(claims), 0, MaxClaim)
	if c.err != nil || len(claims) == 0 {
		return nil, c.err
	}
	ids, fences := split(claims)
	var done []bool
	if err := tx.QueryRow(ctx, completeJobsSQL, ids, fences).Scan(&done); err != nil {
		return nil, newCallError("complete jobs", own, err)
	}
	return done, nil
}

// Failure is what became of a job after a failed attempt.
type Failure struct {
	// State is JobScheduled or JobReady where there is another attempt, and JobFailed where there is none.
	State JobState
	// RunAt is when the next attempt may begin, in UTC; zero where there is none.
	RunAt time.Time
}

// FailJob ends an attempt as failed. Whether there is another, and when, PostgreSQL decides from the job's attempt
// budget and retry policy. It appends job.attempt_failed or job.failed. The text is kept on the job, cut to 2,000
// characters, and never in an event; what PostgreSQL cannot store of it is replaced. It returns [ErrStaleClaim] where the
// claim does not hold any more, and otherwise a [*CallError]. It runs in a transaction of its own.
func (q *Queue) FailJob(ctx context.Context, claim Claim, text string) (Failure, error) {
	if q.pool == nil {
		return Failure{}, errNoPool
	}
	return q.failJob(ctx, poolTx{q.pool}, true, claim, text)
}

// FailJobTx is [Queue.FailJob] in the caller's transaction, which [ErrStaleClaim] leaves usable.
func (q *Queue) FailJobTx(ctx context.Context, tx Tx, claim Claim, text string) (Failure, error) {
	return q.failJob(ctx, tx, false, claim, text)
}

func (q *Queue) failJob(ctx context.Context, tx Tx, own bool, claim Claim, text string) (Failure, error) {
	var (
		state *JobState
		runAt *time.Time
	)
	if err := tx.QueryRow(ctx, failJobSQL, claim.JobID, claim.Fence, storable(text)).Scan(&state, &runAt); err != nil {
		return Failure{}, newCallError("fail job", own, err)
	}
	if state == nil {
		return Failure{}, ErrStaleClaim
	}
	failure := Failure{State: *state}
	if runAt != nil {
		failure.RunAt = runAt.UTC()
	}
	return failure, nil
}

// ExpireLeases takes back at most limit jobs (1–10,000, no default) whose lease has run out: to the next worker, or to
// failed where no attempt is left. It returns how many. It passes over jobs that somebody holds, and runs in a transaction
// of its own. [Queue.Maintain] calls it until none is left.
func (q *Queue) ExpireLeases(ctx context.Context, limit int) (int, error) {
	if q.pool == nil {
		return 0, errNoPool
	}
	c := checker{}
	n := c.number("limit", limit, 1, MaxClaim)
	if c.err != nil {
		return 0, c.err
	}
	var expired int
	if err := q.passingOver(ctx, expireLeasesSQL, []any{n}, &expired); err != nil {
		return 0, newCallError("expire leases", true, err)
	}
	return expired, nil
}
