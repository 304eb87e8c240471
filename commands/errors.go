package commands

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/ledger"
)

// InvalidRequestError says that a request is out of its bounds. It was refused before it did anything: no row is
// written, and the caller's transaction stays usable. Of a batch nothing is enqueued.
type InvalidRequestError struct {
	// Ordinal is the request's place in the batch, from 0; 0 for a single request.
	Ordinal int
	// Field is the field's name. Of an enqueue, as in event bodies: type, payload, queue, priority, concurrency_key, tags,
	// attempt_budget, retry_policy, run_at, deadline, execution_timeout, mode, key, scope, ttl, window, max_wait,
	// schedule. Of a batch: requests. Of the other calls: worker, limit, lease, claims, actor, reason, request_id, key_digest,
	// batch_size, retention, request_retention.
	Field string
	// Problem is what is wrong with it, with the bound, and nothing of the value.
	Problem string
}

// Error names ordinal, field and problem.
func (e *InvalidRequestError) Error() string {
	return fmt.Sprintf("daybook: invalid request (ordinal %d): %s %s", e.Ordinal, e.Field, e.Problem)
}

// EnqueueIdempotencyConflictError says that a key is bound to other work than was asked for now. Nothing of the
// rejected request was written, and the caller's transaction stays usable. The refusal was appended to the ledger in
// that transaction, once for each different request.
type EnqueueIdempotencyConflictError struct {
	// Ordinal is the request's place in the batch, from 0; 0 for a single request.
	Ordinal int
	// Scope, KeyPreview and KeyDigest are those of the key.
	Scope      string
	KeyPreview string
	KeyDigest  ledger.KeyDigest
	// Mode is how the owner used the key.
	Mode Mode
	// JobID is the job that owns the key, and State where that job is. Both are zero where the key was claimed by an
	// earlier request of the same batch, TwinOrdinal, and the batch was withdrawn with it.
	JobID uuid.UUID
	State JobState
	// TwinOrdinal is the earlier request of the same batch that claimed the key; -1 where the key was bound before.
	TwinOrdinal int
	// BoundAt and ExpiresAt are the owner's hold on the key, in UTC.
	BoundAt   time.Time
	ExpiresAt time.Time
	// Fields are the names of the fields that differ, sorted; never empty. Values are never told.
	Fields []string
	// RequestDigest is the rejected request's, ExistingRequestDigest the owner's.
	RequestDigest         RequestDigest
	ExistingRequestDigest RequestDigest

	// rejection is what RecordRejection sends.
	rejection rejection
}

// Error names the key by its digest, the job and the fields.
func (e *EnqueueIdempotencyConflictError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "daybook: idempotency conflict (ordinal %d): key %s (%s) in scope %q ", e.Ordinal, e.KeyDigest, e.KeyPreview, e.Scope)
	if e.TwinOrdinal >= 0 {
		fmt.Fprintf(&b, "is used by request %d of the same batch", e.TwinOrdinal)
	} else {
		fmt.Fprintf(&b, "belongs to job %s", e.JobID)
	}
	fmt.Fprintf(&b, "; different: %s", strings.Join(e.Fields, ", "))
	return b.String()
}

// EnqueueManyConflictError lists every conflict of a batch of which, therefore, nothing was enqueued. errors.As finds
// the first [*EnqueueIdempotencyConflictError] in it.
type EnqueueManyConflictError struct {
	// Conflicts are in the order of their ordinals; never empty.
	Conflicts []*EnqueueIdempotencyConflictError
}

// Error counts the conflicts and shows the first.
func (e *EnqueueManyConflictError) Error() string {
	return fmt.Sprintf("daybook: nothing enqueued, %d of the batch in conflict; the first: %v", len(e.Conflicts), e.Conflicts[0])
}

// Unwrap returns the conflicts.
func (e *EnqueueManyConflictError) Unwrap() []error {
	all := make([]error, len(e.Conflicts))
	for i, conflict := range e.Conflicts {
		all[i] = conflict
	}
	return all
}

// CallError says that a call did not get its answer: a time-out, a lost connection, a cancelled context, a
// serialization failure. It wraps the cause: errors.As finds a *pgconn.PgError, errors.Is a context's error. A
// transaction of the caller's in which the call was made cannot go on; roll it back.
type CallError struct {
	// Op is the call: "enqueue", "enqueue many", "record rejection", "claim jobs", "heartbeat jobs", "complete jobs",
	// "fail job", "cancel job", "run job now", "release key", "purge", "redrive", "list failed jobs" (of RedriveJobs),
	// "expire leases", "expire bindings", "prune jobs", "forget requests" (of Maintain).
	Op string
	// Unknown is true where the call ran in a transaction of its own and the answer was lost after PostgreSQL may
	// have committed. Repeat the request with its key to learn what was decided.
	Unknown bool

	err error
}

// Error names the call and the cause.
func (e *CallError) Error() string { return fmt.Sprintf("daybook: %s: %v", e.Op, e.err) }

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.err }

// newCallError wraps what pgx returned. Where PostgreSQL itself answered with an error it has rolled back; where
// nothing was sent nothing has happened. In between the outcome of an own transaction is unknown, and so it is where the
// server ended the connection: a backend can be terminated between its commit and its answer.
func newCallError(op string, own bool, err error) error {
	var pgErr *pgconn.PgError
	var connectErr *pgconn.ConnectError
	answered := errors.As(err, &pgErr) && pgErr.SeverityUnlocalized == "ERROR"
	nothingSent := errors.As(err, &connectErr) || pgconn.SafeToRetry(err)
	return &CallError{Op: op, Unknown: own && !answered && !nothingSent, err: err}
}

// Retryable reports whether the transaction lost a race (40001, 40P01) or waited too long for a lock (55P03). It must
// be rolled back and may be run again from its beginning; repeating the single call in the same transaction cannot
// succeed.
func Retryable(err error) bool {
	// Of pgx's errors and of lib/pq's: a caller's transaction may be any driver's.
	var failure interface{ SQLState() string }
	if !errors.As(err, &failure) {
		return false
	}
	switch failure.SQLState() {
	case "40001", "40P01", "55P03":
		return true
	}
	return false
}
