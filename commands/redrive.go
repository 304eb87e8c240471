package commands

import (
	"context"
	_ "embed" // the statements
	"fmt"
	"time"

	"github.com/google/uuid"
)

var (
	//go:embed sql/redrive_job.sql
	redriveJobSQL string
	//go:embed sql/failed_jobs.sql
	failedJobsSQL string
)

// RedriveOutcome is what became of a redrive.
type RedriveOutcome string

// The outcomes of a redrive.
const (
	// RedriveMade: a new job was made from the failed one.
	RedriveMade RedriveOutcome = "redriven"
	// RedriveReplayed: the same redrive again; the first one's job is returned.
	RedriveReplayed RedriveOutcome = "replayed"
	// RedrivePlanned: a dry run; nothing was written.
	RedrivePlanned RedriveOutcome = "planned"
)

// KeyOwnedError says that a job was not redriven because its key is meanwhile owned by another one, which does the
// work or has done it. Redrive that one, or release the key first.
type KeyOwnedError struct {
	// JobID is the failed job, OwnerJobID the one that owns its key now.
	JobID, OwnerJobID uuid.UUID
}

// Error names both jobs.
func (e *KeyOwnedError) Error() string {
	return fmt.Sprintf("daybook: redrive: the key of job %s belongs to job %s by now; redrive that one, or release the key first", e.JobID, e.OwnerJobID)
}

// RedriveJob makes a new job from a failed one, with all its content but no key, no deadline and a fresh attempt budget,
// and appends job.redriven. It is idempotent by source and request ID: an exact repeat returns the first new job; another
// actor or reason under the same request ID is a [*RequestIDConflictError]. [Queue.Maintain] forgets a request ID after
// MaintainOptions.RequestRetention; from then on it counts as new.
//
// It returns [ErrJobNotFound], a [*JobStateError] where the job has not failed, and a [*KeyOwnedError] where the
// source's key is owned by another job. The request ID is 1–200 bytes ([MaxRequestIDBytes]), required.
func (q *Queue) RedriveJob(ctx context.Context, jobID uuid.UUID, act Act, requestID string) (uuid.UUID, RedriveOutcome, error) {
	if q.pool == nil {
		return uuid.Nil, "", errNoPool
	}
	return q.redriveJob(ctx, poolTx{q.pool}, true, jobID, act, requestID)
}

// RedriveJobTx is [Queue.RedriveJob] in the caller's transaction, which stays usable after any of these errors.
func (q *Queue) RedriveJobTx(ctx context.Context, tx Tx, jobID uuid.UUID, act Act, requestID string) (uuid.UUID, RedriveOutcome, error) {
	return q.redriveJob(ctx, tx, false, jobID, act, requestID)
}

func (q *Queue) redriveJob(ctx context.Context, tx Tx, own bool, jobID uuid.UUID, act Act, requestID string) (uuid.UUID, RedriveOutcome, error) {
	if err := act.check(); err != nil {
		return uuid.Nil, "", err
	}
	c := checker{}
	c.text("request_id", requestID, MaxRequestIDBytes)
	if c.err != nil {
		return uuid.Nil, "", c.err
	}
	var (
		outcome string
		other   *uuid.UUID
		fields  []string
	)
	err := tx.QueryRow(ctx, redriveJobSQL, jobID, requestID, act.Actor, act.Reason).Scan(&outcome, &other, &fields)
	if err != nil {
		return uuid.Nil, "", newCallError("redrive", own, err)
	}
	switch outcome {
	case "redriven", "replayed":
		return *other, RedriveOutcome(outcome), nil
	case "conflict":
		return uuid.Nil, "", &RequestIDConflictError{Op: "redrive", RequestID: requestID, Fields: fields}
	case "key_conflict":
		return uuid.Nil, "", &KeyOwnedError{JobID: jobID, OwnerJobID: *other}
	case "not_failed":
		return uuid.Nil, "", &JobStateError{Op: "redrive", JobID: jobID, State: JobState(fields[0])}
	case "not_found":
		return uuid.Nil, "", fmt.Errorf("daybook: redrive %s: %w", jobID, ErrJobNotFound)
	}
	return uuid.Nil, "", &InvalidRequestError{Field: fields[0], Problem: "is refused by the database"}
}

// RedriveOptions says which failed jobs to redrive.
type RedriveOptions struct {
	// Queue and Type restrict them: 1–200 bytes each; "" is every one.
	Queue, Type string
	// FailedBefore restricts them to those that failed before an instant; zero is all.
	FailedBefore time.Time
	// Limit is how many one call looks at: 1–1,000; 0 is the default, 100.
	Limit int
	// After is where the last page ended; the zero cursor begins with the job that failed first.
	After RedriveCursor
	// DryRun writes nothing and says what would be tried.
	DryRun bool
}

// RedriveCursor is where a page of failed jobs ended.
type RedriveCursor struct {
	FinishedAt time.Time
	JobID      uuid.UUID
}

// Redriven is what became of one failed job of a page.
type Redriven struct {
	// SourceJobID is the failed job; TargetJobID the new one, zero in a dry run and after an error.
	SourceJobID, TargetJobID uuid.UUID
	Outcome                  RedriveOutcome
	// Err is why this one was not redriven, such as a *KeyOwnedError; the others of the page were.
	Err error
}

// RedriveJobs redrives a page of failed jobs, those that failed first before the others, each as [Queue.RedriveJob] does
// with the same request ID. It returns what became of each, and the cursor for the next page, nil at the end. An error of
// its own means that the page ended early: what is returned was done. It is an [*InvalidRequestError] before anything is
// done, or a [*CallError]; repeat the call with the same request ID and cursor. Each job is redriven in a transaction of its own.
func (q *Queue) RedriveJobs(ctx context.Context, options RedriveOptions, act Act, requestID string) ([]Redriven, *RedriveCursor, error) {
	if q.pool == nil {
		return nil, nil, errNoPool
	}
	if err := act.check(); err != nil {
		return nil, nil, err
	}
	c := checker{}
	c.text("request_id", requestID, MaxRequestIDBytes)
	limit := c.number("limit", orDefault(options.Limit, 100), 1, 1000)
	queue := c.optionalText("queue", options.Queue, MaxQueueBytes)
	typ := c.optionalText("type", options.Type, MaxTypeBytes)
	if c.err != nil {
		return nil, nil, c.err
	}
	var afterTime *time.Time
	var afterJob *uuid.UUID
	if options.After != (RedriveCursor{}) {
		afterTime, afterJob = &options.After.FinishedAt, &options.After.JobID
	}
	var before *time.Time
	if !options.FailedBefore.IsZero() {
		before = &options.FailedBefore
	}
	var (
		ids          []uuid.UUID
		lastFinished *time.Time
		lastJob      *uuid.UUID
	)
	err := poolTx{q.pool}.QueryRow(ctx, failedJobsSQL, queue, typ, before, afterTime, afterJob, limit).
		Scan(&ids, &lastFinished, &lastJob)
	if err != nil {
		return nil, nil, newCallError("list failed jobs", true, err)
	}
	var next *RedriveCursor
	if len(ids) == int(limit) {
		next = &RedriveCursor{FinishedAt: lastFinished.UTC(), JobID: *lastJob}
	}
	page := make([]Redriven, 0, len(ids))
	for _, id := range ids {
		if options.DryRun {
			page = append(page, Redriven{SourceJobID: id, Outcome: RedrivePlanned})
			continue
		}
		target, outcome, err := q.RedriveJob(ctx, id, act, requestID)
		if _, ok := err.(*CallError); ok { //nolint:errorlint // redriveJob returns it as it is
			return page, nil, err
		}
		page = append(page, Redriven{SourceJobID: id, TargetJobID: target, Outcome: outcome, Err: err})
	}
	return page, next, nil
}
