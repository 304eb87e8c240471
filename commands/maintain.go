package commands

import (
	"context"
	_ "embed" // the statements
	"fmt"
	"time"

	"github.com/google/uuid"
)

var (
	//go:embed sql/expire_bindings.sql
	expireBindingsSQL string
	//go:embed sql/prune_jobs.sql
	pruneJobsSQL string
	//go:embed sql/forget_requests.sql
	forgetRequestsSQL string
)

// MaintainOptions says how upkeep is done.
type MaintainOptions struct {
	// Retention is how long a finished job is kept: at most 3,650 days, truncated to milliseconds. 0 is the default, 30 days;
	// a negative one prunes at once. A job whose key is bound is kept until the key is free.
	Retention time.Duration
	// RequestRetention is how long the request ID of a purge that has finished, or of a redrive, is remembered: at most 3,650
	// days, truncated to milliseconds. 0 is the default, 90 days; a negative one forgets at once. After that a repeated
	// request ID counts as new.
	RequestRetention time.Duration
	// BatchSize is how many rows one transaction takes: 1–10,000; 0 is the default, 500.
	BatchSize int
}

// Maintained is what one pass of upkeep did.
type Maintained struct {
	// ExpiredBindings were removed, ExpiredLeases taken back, PrunedJobs removed.
	ExpiredBindings, ExpiredLeases, PrunedJobs int
	// ForgottenRequests are the records of purges and redrives that were removed.
	ForgottenRequests int
}

// Maintain does one whole pass of upkeep: it takes back leases that have run out, removes expired bindings, appending
// binding.expired for each, and prunes finished jobs and forgets request IDs of purges and redrives after their retention.
// It works in short transactions that pass over whatever somebody holds, batch after batch until nothing is left, so
// that one pass keeps pace with any backlog. After each batch of bindings it rests for as long as that took, up to 50 ms.
// Any number of processes may run it at once.
//
// Out of bounds it returns an [*InvalidRequestError] before it does anything; otherwise a [*CallError], or the context's
// error, with what was done until then. The next call goes on from there: a loop around it, unless its context has
// ended, waits and calls it again where [ledger.MayPass] says so, or where the answer was lost, see [CallError].
func (q *Queue) Maintain(ctx context.Context, options MaintainOptions) (Maintained, error) {
	if q.pool == nil {
		return Maintained{}, errNoPool
	}
	c := checker{}
	batch := c.number("batch_size", orDefault(options.BatchSize, 500), 1, 10_000)
	retention := max(0, orDefault(options.Retention, 30*24*time.Hour))
	if retention > 3650*24*time.Hour {
		c.refuse("retention", fmt.Sprintf("is %v, must be at most 3650 days", retention))
	}
	requests := max(0, orDefault(options.RequestRetention, 90*24*time.Hour))
	if requests > 3650*24*time.Hour {
		c.refuse("request_retention", fmt.Sprintf("is %v, must be at most 3650 days", requests))
	}
	if c.err != nil {
		return Maintained{}, c.err
	}
	var done Maintained
	for {
		n, err := q.ExpireLeases(ctx, int(batch))
		done.ExpiredLeases += n
		if err != nil {
			return done, err
		}
		if n < int(batch) {
			break
		}
	}
	var lastExpires *time.Time
	for {
		var n int
		began := time.Now()
		if err := q.passingOver(ctx, expireBindingsSQL, []any{lastExpires, batch}, &n, &lastExpires); err != nil {
			return done, newCallError("expire bindings", true, err)
		}
		done.ExpiredBindings += n
		if n < int(batch) {
			break
		}
		// As long a rest as the work took: so enqueues share the server with it for half of the time only.
		if err := rest(ctx, min(time.Since(began), longestRest)); err != nil {
			return done, fmt.Errorf("daybook: maintain: %w", err)
		}
	}
	var (
		lastFinished *time.Time
		lastJob      *uuid.UUID
	)
	for {
		var pruned, looked int
		err := q.passingOver(ctx, pruneJobsSQL, []any{retention.Milliseconds(), lastFinished, lastJob, batch},
			&pruned, &looked, &lastFinished, &lastJob)
		if err != nil {
			return done, newCallError("prune jobs", true, err)
		}
		done.PrunedJobs += pruned
		if looked < int(batch) {
			break
		}
	}
	for {
		var purges, redrives int
		err := q.passingOver(ctx, forgetRequestsSQL, []any{requests.Milliseconds(), batch}, &purges, &redrives)
		if err != nil {
			return done, newCallError("forget requests", true, err)
		}
		done.ForgottenRequests += purges + redrives
		if max(purges, redrives) < int(batch) {
			return done, nil
		}
	}
}

// longestRest bounds the rest after a batch: a server that is slow already must not fall behind for it.
const longestRest = 50 * time.Millisecond

func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
