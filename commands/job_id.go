package commands

import (
	"crypto/rand"
	"encoding/hex"
)

// newJobIDTail draws the random part of a job's ID, a UUIDv7: its last 20 hex digits, the first of which is the version.
// PostgreSQL puts its own clock before it. What is not accepted leaves its tail unused.
func newJobIDTail() string {
	var random [10]byte
	// It never fails.
	_, _ = rand.Read(random[:])
	random[0] = 0x70 | random[0]&0x0f
	random[2] = 0x80 | random[2]&0x3f
	return hex.EncodeToString(random[:])
}
