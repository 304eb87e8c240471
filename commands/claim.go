package commands

import (
	"context"
	_ "embed" // the statements
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

var (
	//go:embed sql/claim_jobs.sql
	claimJobsSQL string
	//go:embed sql/heartbeat_jobs.sql
	heartbeatJobsSQL string
)

// Bounds of a claim.
const (
	MaxWorkerBytes = 200
	// MaxClaim is how many jobs one call claims, heartbeats, completes or takes back.
	MaxClaim = 10_000
	// MinLease and MaxLease bound how long a worker may hold a job without a heartbeat.
	MinLease = time.Millisecond
	MaxLease = 24 * time.Hour
)

// ClaimOptions says which jobs a worker wants.
type ClaimOptions struct {
	// Queue: 1–200 bytes; default "default".
	Queue string
	// Worker is the worker's name, for people: 1–200 bytes, required. It goes into the ledger, where it stays.
	Worker string
	// Limit is how many jobs at most: 1–10,000; default 1.
	Limit int
	// Lease is how long the worker holds them without a heartbeat: 1 ms–24 h, truncated to milliseconds; default 1 min.
	Lease time.Duration
}

// Claim is a worker's hold on a job. The fence tells this hold from any earlier or later one.
type Claim struct {
	JobID uuid.UUID
	Fence int64
}

// ClaimedJob is a job that a worker holds until LeaseExpiresAt.
type ClaimedJob struct {
	Claim
	// Attempt counts from 1, up to AttemptBudget.
	Attempt       int
	AttemptBudget int
	Type          string
	Payload       json.RawMessage
	Priority      int
	// ConcurrencyKey is "" and Tags is nil where the request had none.
	ConcurrencyKey string
	Tags           []string
	// Deadline and ExecutionTimeout are zero where the request had none.
	Deadline         time.Time
	ExecutionTimeout time.Duration
	// LeaseExpiresAt is by the database's clock, in UTC.
	LeaseExpiresAt time.Time
}

// ClaimJobs gives the worker the best jobs of a queue: highest priority, then earliest due. Each claim begins an
// attempt and appends job.started. Jobs that others hold are passed over, never waited for, and so are follow-ups whose
// predecessor is not finished. Jobs whose deadline has passed are never given out; those whose turn would come next are
// cancelled, with job.cancelled. Fewer than Limit, or none, means that there are no more to be had now.
//
// It runs in a transaction of its own. Out of bounds it returns an [*InvalidRequestError], otherwise a [*CallError]; one
// whose Unknown is true may have claimed jobs that nobody will work on until their leases run out.
func (q *Queue) ClaimJobs(ctx context.Context, options ClaimOptions) ([]ClaimedJob, error) {
	if q.pool == nil {
		return nil, errNoPool
	}
	c := checker{}
	queue := c.text("queue", orDefault(options.Queue, DefaultQueue), MaxQueueBytes)
	worker := c.text("worker", options.Worker, MaxWorkerBytes)
	limit := c.number("limit", orDefault(options.Limit, 1), 1, MaxClaim)
	lease := c.lease(orDefault(options.Lease, time.Minute))
	if c.err != nil {
		return nil, c.err
	}
	var (
		ids                   []uuid.UUID
		fences                []int64
		attempts, budgets     []int
		types, payloads       []string
		priorities            []int
		concurrencyKeys, tags []*string
		deadlines             []*time.Time
		timeouts              []*int64
		leaseExpiresAt        time.Time
	)
	err := q.passingOver(ctx, claimJobsSQL, []any{queue, worker, limit, lease},
		&ids, &fences, &attempts, &budgets, &types, &payloads, &priorities, &concurrencyKeys, &tags, &deadlines,
		&timeouts, &leaseExpiresAt)
	if err != nil {
		return nil, newCallError("claim jobs", true, err)
	}
	jobs := make([]ClaimedJob, len(ids))
	for i := range ids {
		job := ClaimedJob{
			Claim:          Claim{JobID: ids[i], Fence: fences[i]},
			Attempt:        attempts[i],
			AttemptBudget:  budgets[i],
			Type:           types[i],
			Payload:        json.RawMessage(payloads[i]),
			Priority:       priorities[i],
			LeaseExpiresAt: leaseExpiresAt.UTC(),
		}
		if concurrencyKeys[i] != nil {
			job.ConcurrencyKey = *concurrencyKeys[i]
		}
		if tags[i] != nil {
			if err := json.Unmarshal([]byte(*tags[i]), &job.Tags); err != nil {
				return nil, fmt.Errorf("daybook: claim jobs: read tags: %w", err)
			}
		}
		if deadlines[i] != nil {
			job.Deadline = deadlines[i].UTC()
		}
		if timeouts[i] != nil {
			job.ExecutionTimeout = time.Duration(*timeouts[i]) * time.Millisecond
		}
		jobs[i] = job
	}
	return jobs, nil
}

// HeartbeatJobs extends the lease of each claim to now + lease and says for each, in the order given, whether it still
// holds, and until when all that hold are held now, by the database's clock, in UTC. A claim that does not hold any more has
// lost its job: stop working on it. A lease that has run out, but was not taken back yet, is extended like any other.
//
// The lease is 1 ms–24 h, truncated to milliseconds; there is no default. There are at most 10,000 claims ([MaxClaim]). The
// same claim twice is answered twice and extended once; of no claims the answer is nil and the zero time. It appends no event,
// waits for whoever holds a row, and runs in a transaction of its own. Out of bounds it returns an [*InvalidRequestError],
// otherwise a [*CallError]; in both cases no claim may be taken to hold.
func (q *Queue) HeartbeatJobs(ctx context.Context, lease time.Duration, claims ...Claim) (held []bool, until time.Time, err error) {
	if q.pool == nil {
		return nil, time.Time{}, errNoPool
	}
	c := checker{}
	ms := c.lease(lease)
	c.number("claims", len(claims), 0, MaxClaim)
	if c.err != nil || len(claims) == 0 {
		return nil, time.Time{}, c.err
	}
	ids, fences := split(claims)
	if err := (poolTx{q.pool}).QueryRow(ctx, heartbeatJobsSQL, ids, fences, ms).Scan(&held, &until); err != nil {
		return nil, time.Time{}, newCallError("heartbeat jobs", true, err)
	}
	return held, until.UTC(), nil
}

func (c *checker) lease(d time.Duration) int64 {
	if d < MinLease || d.Truncate(time.Millisecond) > MaxLease {
		c.refuse("lease", fmt.Sprintf("is %v, must be %v to %v", d, MinLease, MaxLease))
	}
	return d.Milliseconds()
}

func split(claims []Claim) (ids []uuid.UUID, fences []int64) {
	for _, claim := range claims {
		ids = append(ids, claim.JobID)
		fences = append(fences, claim.Fence)
	}
	return ids, fences
}
