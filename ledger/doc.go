// Package ledger is what Daybook records: events, the keys they are about, and the order they stand in.
//
// An event is appended in the transaction that decided it and is never altered. Its place in the ledger, a
// [Position], is given after commit by [Sequence]: positions are dense (1, 2, 3 …), and for one key they follow
// the order of commits. Readers ask for what lies beyond the last position they have seen, with [Read] or [All].
// SEQUENCING.md beside this file says why that misses nothing and why the order is right.
//
// A caller's idempotency key never leaves the process. [Keys] turns it into a [KeyHash]; people see its
// [KeyDigest] and its preview. See KEYS.md beside this file for the encoding, byte for byte, with test vectors.
package ledger
