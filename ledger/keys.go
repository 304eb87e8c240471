package ledger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a key and of a scope, in bytes.
const (
	MaxKeyBytes   = 512
	MaxScopeBytes = 256
)

// MinSecretBytes is the least length of an HMAC secret.
const MinSecretBytes = 16

// hashDomain begins everything that is hashed for a key. A later encoding gets another one.
const hashDomain = "daybook.key.v1\x00"

// KeyHash is what stands for a key in the database: 32 bytes of SHA-256 or HMAC-SHA-256. It prints as its digest.
type KeyHash [sha256.Size]byte

// Digest returns what people see of the hash.
func (h KeyHash) Digest() KeyDigest { return KeyDigest(hex.EncodeToString(h[:6])) }

// String returns the digest.
func (h KeyHash) String() string { return string(h.Digest()) }

// KeyDigest is what people see of a key: the first 12 hex digits of its hash.
type KeyDigest string

// Keys hashes keys. The zero Keys uses SHA-256, which is right where keys cannot be guessed (UUIDs). Where they
// can (order numbers, addresses), use [NewHMACKeys]: without the secret a dump of the database does not yield to
// a dictionary.
//
// Keys holds secrets and prints none of them.
type Keys struct {
	// The first hashes new bindings; under each of the others an existing binding is still found. A nil secret is
	// plain SHA-256, and so is a nil ring.
	//
	// A function, not the slice: fmt follows a pointer to a slice where the verb does not fit, and prints the secrets;
	// of a function it has only an address.
	ring func() [][]byte
}

// NewHMACKeys returns Keys that bind under current and also find what was bound under any of the others. Each secret
// has at least [MinSecretBytes] bytes; a secret given twice is refused.
//
// To rotate a secret in a rolling deploy: first list the new secret among the others in every process, then make
// it current and list the old one, then drop the old one, no earlier than the longest TTL after the last process
// stopped using it as current. In each step the rings of any two processes share a secret, and so the key is
// claimed under a common hash: it is never accepted twice, also when two processes race.
func NewHMACKeys(current []byte, others ...[]byte) (Keys, error) {
	ring := [][]byte{}
	for i, secret := range append([][]byte{current}, others...) {
		if len(secret) < MinSecretBytes {
			return Keys{}, fmt.Errorf("daybook: secret %d of the key ring has %d bytes, at least %d are needed", i, len(secret), MinSecretBytes)
		}
		if slices.ContainsFunc(ring, func(s []byte) bool { return hmac.Equal(s, secret) }) {
			return Keys{}, fmt.Errorf("daybook: secret %d of the key ring is there twice", i)
		}
		ring = append(ring, slices.Clone(secret))
	}
	return Keys{ring: func() [][]byte { return ring }}, nil
}

// AlsoSHA256 returns the same ring with plain SHA-256 as one more of the others: for moving from the zero Keys
// to a secret.
func (k Keys) AlsoSHA256() Keys {
	if k.ring == nil || slices.ContainsFunc(k.ring(), func(s []byte) bool { return s == nil }) {
		return k
	}
	ring := append(slices.Clone(k.ring()), nil)
	return Keys{ring: func() [][]byte { return ring }}
}

// Hash returns the hash of a key under the current secret, and its hashes under the others.
func (k Keys) Hash(scope string, key Key) (current KeyHash, others []KeyHash) {
	if k.ring == nil {
		return hash(nil, scope, key), nil
	}
	for i, secret := range k.ring() {
		if i == 0 {
			current = hash(secret, scope, key)
			continue
		}
		others = append(others, hash(secret, scope, key))
	}
	return current, others
}

// hash covers domain ‖ len(scope) ‖ scope ‖ len(key) ‖ key, lengths as four bytes, big-endian, so that scope and key
// can't be confused.
func hash(secret []byte, scope string, key Key) KeyHash {
	raw := key.reveal()
	input := make([]byte, 0, len(hashDomain)+8+len(scope)+len(raw))
	input = append(input, hashDomain...)
	input = binary.BigEndian.AppendUint32(input, uint32(len(scope)))
	input = append(input, scope...)
	input = binary.BigEndian.AppendUint32(input, uint32(len(raw)))
	input = append(input, raw...)
	if secret == nil {
		return sha256.Sum256(input)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(input)
	return KeyHash(mac.Sum(nil))
}

// String names the kind of ring, never a secret.
func (k Keys) String() string {
	if k.ring == nil {
		return "SHA-256"
	}
	return fmt.Sprintf("HMAC-SHA-256 (%d secrets)", len(k.ring()))
}

// GoString is String: %#v would print the secrets.
func (k Keys) GoString() string { return k.String() }

// ellipsis ends every preview.
const ellipsis = "…"

// KeyPreview returns what people see of a key beside its digest: its first characters, at most 8 and at most a third
// of them, then "…". Of a key shorter than 12 characters it is "…" alone. It ends before the first character
// that is not printable, so that a preview never moves a terminal's cursor.
func KeyPreview(key Key) string {
	raw := key.reveal()
	n := utf8.RuneCountInString(raw)
	if n < 12 {
		return ellipsis
	}
	var b strings.Builder
	shown := 0
	for _, r := range raw {
		if shown == min(8, n/3) || !unicode.IsPrint(r) {
			break
		}
		b.WriteRune(r)
		shown++
	}
	return b.String() + ellipsis
}

// CheckKey says what is wrong with a key, in words that hold nothing of it; "" where nothing is.
func CheckKey(key Key) string { return checkText(key.reveal(), MaxKeyBytes) }

// CheckScope says what is wrong with a scope; "" where nothing is.
func CheckScope(scope string) string { return checkText(scope, MaxScopeBytes) }

func checkText(s string, maxBytes int) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > maxBytes:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(s), maxBytes)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsRune(s, 0):
		return "holds a NUL"
	case strings.TrimSpace(s) == "":
		return "is all white space"
	}
	return ""
}
