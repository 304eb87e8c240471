package commands

import (
	"encoding/hex"
	"time"

	"github.com/google/uuid"
)

// EnqueueOutcome is what PostgreSQL decided about a request.
type EnqueueOutcome string

// The outcomes.
const (
	// OutcomeAccepted: new work; JobID is a new job.
	OutcomeAccepted EnqueueOutcome = "accepted"
	// OutcomeReplayed: the same request again; JobID is the first one's job, and nothing was written.
	OutcomeReplayed EnqueueOutcome = "replayed"
	// OutcomeReplaced: a debounced request took a pending job's place, under its ID.
	OutcomeReplaced EnqueueOutcome = "replaced"
	// OutcomeNonReplaceable: a debounced request was refused; Reason says why.
	OutcomeNonReplaceable EnqueueOutcome = "non_replaceable"
	// OutcomeCoalesced: a throttled request within the window; JobID is the first one's job, and nothing was written.
	OutcomeCoalesced EnqueueOutcome = "coalesced"
	// OutcomeConflictRejected: the key is bound to other work; Conflict says which. JobID is the owner.
	OutcomeConflictRejected EnqueueOutcome = "conflict_rejected"
)

// Mode is how a key is used.
type Mode string

// The modes.
const (
	ModeIdempotency Mode = "idempotency"
	ModeDebounce    Mode = "debounce"
	ModeThrottle    Mode = "throttle"
)

// JobState is where a job is.
type JobState string

// The states of a job.
const (
	JobScheduled JobState = "scheduled" // its run time is in the future
	JobReady     JobState = "ready"     // it may be claimed
	JobActive    JobState = "active"    // an attempt runs
	JobSucceeded JobState = "succeeded" // finished
	JobFailed    JobState = "failed"    // finished, no attempts left
	JobCancelled JobState = "cancelled" // finished
)

// EnqueueResult is the answer to one request.
type EnqueueResult struct {
	// JobID is the accepted job, or the one that owns the key.
	JobID uuid.UUID
	// Outcome is what PostgreSQL decided.
	Outcome EnqueueOutcome
	// Reason says why a debounced request was refused; "" for every other outcome.
	Reason string
	// BoundAt is when the job was accepted and its key bound, ExpiresAt when the key is free again, both by the
	// database's clock, in UTC. ExpiresAt is zero for a request without a key.
	BoundAt   time.Time
	ExpiresAt time.Time
	// Conflict is not nil exactly where Outcome is OutcomeConflictRejected.
	Conflict *EnqueueIdempotencyConflictError
}

// RequestDigest is a version byte and a SHA-256 over everything material of a request. Equal digests are equal
// requests; unequal ones prove nothing.
type RequestDigest [33]byte

// String returns the digest in hex.
func (d RequestDigest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText returns the digest in hex.
func (d RequestDigest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
