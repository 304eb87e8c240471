package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/google/uuid"
)

// leafPrefix begins a leaf's input and tells it from an inner node's (RFC 6962).
const leafPrefix = 0

// postgresEpoch is where PostgreSQL counts a timestamptz from, 2000-01-01 UTC, in microseconds of Unix time.
const postgresEpoch = 946_684_800_000_000

// LeafHash returns the hash under which an event stands in the ledger: ledger_order.leaf_hash, which daybook.sequence
// computed from the stored row. It covers neither Position nor SequencedAt, so it can be computed as soon as
// the event is there. It is the SHA-256 of
//
//	1 byte   0
//	8 bytes  ID, signed, big-endian
//	8 bytes  RecordedAt in microseconds since 2000-01-01 00:00:00 UTC, signed, big-endian
//	text     JobID, 36 characters in lower case; empty where the event is about no job
//	text     KeyHash, 64 hex digits in lower case; empty where there is no key
//	text     Kind
//	text     Scope; empty where there is no key
//	text     KeyPreview; empty where there is no key, or previews are switched off
//	rest     Body, the bytes that were stored
//
// where each text is UTF-8 and followed by one NUL, which no text in PostgreSQL can hold.
func LeafHash(e Event) [sha256.Size]byte {
	in := make([]byte, 0, 256+len(e.Body))
	in = append(in, leafPrefix)
	in = binary.BigEndian.AppendUint64(in, uint64(e.ID))
	// Not a Duration, which ends after 292 years.
	in = binary.BigEndian.AppendUint64(in, uint64(e.RecordedAt.UnixMicro()-postgresEpoch))
	if e.JobID != uuid.Nil {
		in = append(in, e.JobID.String()...)
	}
	in = append(in, 0)
	if e.KeyHash != nil {
		in = hex.AppendEncode(in, e.KeyHash[:])
	}
	in = append(in, 0)
	for _, text := range []string{string(e.Kind), e.Scope, e.KeyPreview} {
		in = append(in, text...)
		in = append(in, 0)
	}
	in = append(in, e.Body...)
	return sha256.Sum256(in)
}
