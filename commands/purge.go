package commands

import (
	"context"
	_ "embed" // the statement
	"fmt"
	"strings"
)

//go:embed sql/purge_jobs.sql
var purgeJobsSQL string

// MaxRequestIDBytes bounds the ID of a purge or a redrive.
const MaxRequestIDBytes = 200

// purgeBatch is how many jobs of each state one transaction of a purge removes.
const purgeBatch = 1000

// RequestIDConflictError says that a request ID was used before with other arguments. Nothing was done.
type RequestIDConflictError struct {
	// Op is the command: "purge", "redrive".
	Op string
	// RequestID is the ID that was used again.
	RequestID string
	// Fields are the names of those that differ, sorted; never empty.
	Fields []string
}

// Error names the request ID and the fields.
func (e *RequestIDConflictError) Error() string {
	return fmt.Sprintf("daybook: %s: request ID %q was used before with another %s", e.Op, e.RequestID, strings.Join(e.Fields, ", "))
}

// Purge removes the jobs of a queue that are scheduled or ready and were accepted by when it was first asked for, and
// releases their keys at once. Each job's purge is appended as job.purged, each key's release as binding.released. It
// returns how many jobs this purge has removed in all.
//
// It works in batches, each in a transaction of its own; after an error call it again with the same request ID, and it
// goes on. The same request ID after the end returns the same number and does nothing. With another queue, actor or
// reason it is a [*RequestIDConflictError]. [Queue.Maintain] forgets the request ID of a purge that has finished after
// MaintainOptions.RequestRetention; from then on it counts as new.
//
// The queue, 1–200 bytes, is required: there is no default, so that none is purged by an omission. The request ID is 1–200
// bytes ([MaxRequestIDBytes]), required. Out of bounds it returns an [*InvalidRequestError] before it does anything;
// otherwise a [*CallError], with the number of jobs removed so far.
func (q *Queue) Purge(ctx context.Context, queue string, act Act, requestID string) (int64, error) {
	if q.pool == nil {
		return 0, errNoPool
	}
	c := checker{}
	c.text("queue", queue, MaxQueueBytes)
	c.text("request_id", requestID, MaxRequestIDBytes)
	if c.err != nil {
		return 0, c.err
	}
	if err := act.check(); err != nil {
		return 0, err
	}
	var purged int64
	for {
		var (
			outcome  string
			total    *int64
			finished *bool
			fields   []string
		)
		err := poolTx{q.pool}.QueryRow(ctx, purgeJobsSQL, queue, act.Actor, act.Reason, requestID, purgeBatch).
			Scan(&outcome, &total, &finished, &fields)
		if err != nil {
			return purged, newCallError("purge", true, err)
		}
		switch outcome {
		case "conflict":
			return 0, &RequestIDConflictError{Op: "purge", RequestID: requestID, Fields: fields}
		case outcomeInvalid:
			return 0, &InvalidRequestError{Field: fields[0], Problem: "is refused by the database"}
		}
		purged = *total
		if *finished {
			return purged, nil
		}
	}
}
