package ledger

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Position is a place in the ledger: dense, 1, 2, 3 …; 0 is before the first event. It is given after commit.
type Position int64

// Kind says what happened. An event's body is documented by kind in the JSON Schemas beside package outbox.
type Kind string

// The kinds of events.
const (
	// KindAccepted: new work was accepted.
	KindAccepted Kind = "enqueue.accepted"
	// KindReplaced: a debounced request replaced a pending job's.
	KindReplaced Kind = "enqueue.replaced"
	// KindNonReplaceable: a debounced request was refused.
	KindNonReplaceable Kind = "enqueue.non_replaceable"
	// KindConflictRejected: a key was used again for different work.
	KindConflictRejected Kind = "enqueue.conflict_rejected"
	// KindBindingExpired: a binding was found expired, on reuse of its key or by maintenance.
	KindBindingExpired Kind = "binding.expired"
	// KindBindingReleased: a binding was released before its time.
	KindBindingReleased Kind = "binding.released"

	KindJobStarted       Kind = "job.started"        // an attempt began
	KindJobSucceeded     Kind = "job.succeeded"      // an attempt succeeded; the job is finished
	KindJobAttemptFailed Kind = "job.attempt_failed" // an attempt failed; there will be another
	KindJobFailed        Kind = "job.failed"         // the last attempt failed; the job is finished
	KindJobLeaseExpired  Kind = "job.lease_expired"  // a worker's lease ran out
	KindJobCancelled     Kind = "job.cancelled"      // cancelled before it finished
	KindJobPurged        Kind = "job.purged"         // removed by a purge
	KindJobReleased      Kind = "job.released"       // an operator let it run now
	KindJobRedriven      Kind = "job.redriven"       // a new job was made from a failed one
)

// Event is one appended fact. It is never altered.
type Event struct {
	// Position is the place in the ledger.
	Position Position
	// ID is the event's identity: unique, ascending, with holes. It is not an order; Position is.
	ID int64
	// Kind says what happened.
	Kind Kind
	// JobID is the job that the event is about.
	JobID uuid.UUID
	// Scope, KeyHash and KeyPreview are those of the key; KeyHash is nil where the request had none. Events about a
	// job's life (job.*) carry the hash of its key alone.
	Scope      string
	KeyHash    *KeyHash
	KeyPreview string
	// Body is the event's JSON, with the bytes that were stored.
	Body json.RawMessage
	// RecordedAt is the ledger's clock when it was decided, in UTC, in microseconds.
	RecordedAt time.Time
	// SequencedAt is when it got its position, in UTC.
	SequencedAt time.Time
}

// KeyDigest returns the digest of the event's key, "" where it has none.
func (e Event) KeyDigest() KeyDigest {
	if e.KeyHash == nil {
		return ""
	}
	return e.KeyHash.Digest()
}
