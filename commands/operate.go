package commands

import (
	"context"
	_ "embed" // the statements
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/ledger"
)

var (
	//go:embed sql/cancel_job.sql
	cancelJobSQL string
	//go:embed sql/run_job_now.sql
	runJobNowSQL string
	//go:embed sql/release_key.sql
	releaseKeySQL string
)

// Act is who does something to a job or a key, and why. Both go into the ledger, where they stay.
type Act struct {
	// Actor: 1–200 bytes, required.
	Actor string
	// Reason: 1–1,000 bytes, required.
	Reason string
}

// Errors of an operator's commands.
var (
	// ErrJobNotFound: there is no such job; it may have been purged or pruned.
	ErrJobNotFound = errors.New("daybook: no such job")
	// ErrKeyNotFound: no key with that digest is bound in that scope.
	ErrKeyNotFound = errors.New("daybook: no such key is bound in this scope")
	// ErrKeyAmbiguous: several keys of the scope begin with that digest; give more of the hash.
	ErrKeyAmbiguous = errors.New("daybook: several keys of this scope begin with that digest; give the whole hash")
)

// JobStateError says that a job is not in a state in which the command means anything. Nothing was changed.
type JobStateError struct {
	// Op is the command: "cancel job", "run job now", "redrive".
	Op    string
	JobID uuid.UUID
	State JobState
}

// Error names the job and its state.
func (e *JobStateError) Error() string {
	return fmt.Sprintf("daybook: %s: job %s is %s", e.Op, e.JobID, e.State)
}

// CancelJob ends a job that is scheduled, ready or active, and appends job.cancelled. A worker that holds it finds its
// claim stale. The job's key stays bound. It returns [ErrJobNotFound], or a [*JobStateError] where the job is finished.
func (q *Queue) CancelJob(ctx context.Context, jobID uuid.UUID, act Act) error {
	if q.pool == nil {
		return errNoPool
	}
	return q.operate(ctx, poolTx{q.pool}, true, "cancel job", cancelJobSQL, jobID, act)
}

// CancelJobTx is [Queue.CancelJob] in the caller's transaction, which stays usable after either error.
func (q *Queue) CancelJobTx(ctx context.Context, tx Tx, jobID uuid.UUID, act Act) error {
	return q.operate(ctx, tx, false, "cancel job", cancelJobSQL, jobID, act)
}

// RunJobNow lets a job run that waits: for its run time, its next attempt, or its predecessor. It appends job.released. Of
// a debounced job it also releases the key, with binding.released, so that the next request is new work. It returns
// [ErrJobNotFound], or a [*JobStateError] where the job does not wait.
func (q *Queue) RunJobNow(ctx context.Context, jobID uuid.UUID, act Act) error {
	if q.pool == nil {
		return errNoPool
	}
	return q.operate(ctx, poolTx{q.pool}, true, "run job now", runJobNowSQL, jobID, act)
}

// RunJobNowTx is [Queue.RunJobNow] in the caller's transaction, which stays usable after either error.
func (q *Queue) RunJobNowTx(ctx context.Context, tx Tx, jobID uuid.UUID, act Act) error {
	return q.operate(ctx, tx, false, "run job now", runJobNowSQL, jobID, act)
}

func (q *Queue) operate(ctx context.Context, tx Tx, own bool, op, statement string, jobID uuid.UUID, act Act) error {
	if err := act.check(); err != nil {
		return err
	}
	var (
		outcome string
		state   *string
	)
	if err := tx.QueryRow(ctx, statement, jobID, act.Actor, act.Reason).Scan(&outcome, &state); err != nil {
		return newCallError(op, own, err)
	}
	switch outcome {
	case "done":
		return nil
	case "not_found":
		return fmt.Errorf("daybook: %s %s: %w", op, jobID, ErrJobNotFound)
	case outcomeInvalid:
		return &InvalidRequestError{Field: *state, Problem: "is refused by the database"}
	}
	return &JobStateError{Op: op, JobID: jobID, State: JobState(*state)}
}

// ReleaseKey frees a key before its time and returns the job that owned it, appending binding.released. The key is named
// by its scope ("" is "default") and its digest, as people see it, or by more of its hash in hex: 12 to 64 digits, an even
// number. What the key's job does is not touched. It returns [ErrKeyNotFound], or [ErrKeyAmbiguous] where several keys of the scope begin like that.
func (q *Queue) ReleaseKey(ctx context.Context, scope string, digest ledger.KeyDigest, act Act) (uuid.UUID, error) {
	if q.pool == nil {
		return uuid.Nil, errNoPool
	}
	return q.releaseKey(ctx, poolTx{q.pool}, true, scope, digest, act)
}

// ReleaseKeyTx is [Queue.ReleaseKey] in the caller's transaction, which stays usable after either error.
func (q *Queue) ReleaseKeyTx(ctx context.Context, tx Tx, scope string, digest ledger.KeyDigest, act Act) (uuid.UUID, error) {
	return q.releaseKey(ctx, tx, false, scope, digest, act)
}

func (q *Queue) releaseKey(ctx context.Context, tx Tx, own bool, scope string, digest ledger.KeyDigest, act Act) (uuid.UUID, error) {
	if err := act.check(); err != nil {
		return uuid.Nil, err
	}
	scope = orDefault(scope, DefaultScope)
	if problem := ledger.CheckScope(scope); problem != "" {
		return uuid.Nil, &InvalidRequestError{Field: "scope", Problem: problem}
	}
	prefix, err := hex.DecodeString(string(digest))
	if err != nil || len(prefix) < 6 || len(prefix) > 32 {
		return uuid.Nil, &InvalidRequestError{Field: "key_digest", Problem: "must be 12 to 64 hex digits, an even number"}
	}
	var (
		outcome string
		jobID   *uuid.UUID
	)
	if err := tx.QueryRow(ctx, releaseKeySQL, scope, prefix, act.Actor, act.Reason).Scan(&outcome, &jobID); err != nil {
		return uuid.Nil, newCallError("release key", own, err)
	}
	switch outcome {
	case "done":
		return *jobID, nil
	case "ambiguous":
		return uuid.Nil, fmt.Errorf("daybook: release key %s: %w", digest, ErrKeyAmbiguous)
	case "not_found":
		return uuid.Nil, fmt.Errorf("daybook: release key %s: %w", digest, ErrKeyNotFound)
	}
	return uuid.Nil, &InvalidRequestError{Field: "key_digest", Problem: "is refused by the database"}
}

func (a Act) check() error {
	c := checker{}
	c.text("actor", a.Actor, 200)
	c.text("reason", a.Reason, 1000)
	return c.err
}

// storable makes a text that PostgreSQL can hold of any.
func storable(text string) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return strings.ReplaceAll(text, "\x00", "\uFFFD")
}
