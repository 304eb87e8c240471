package ledger

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
)

// redacted is what a Key prints as, everywhere.
const redacted = "[redacted]"

// Key is the caller's idempotency key: 1–512 bytes of valid UTF-8 that hold no NUL and are not all white space.
// Bytes are compared as they are; nothing is trimmed or normalised. The bounds are checked where a key is used.
//
// A Key cannot be printed. Through fmt (every verb), slog, JSON, text marshalling and %#v it is "[redacted]",
// also inside an unexported field of another struct; database/sql refuses it as an argument. Keys are compared with
// [Key.Equal]; == does not compile. The zero Key is empty.
type Key struct {
	// An address would be compared, and not the text.
	_ [0]func()
	// A pointer, not the string: fmt prints unexported fields without asking their methods, and follows none inside
	// of a struct.
	text *string
}

// NewKey returns s as a Key.
func NewKey(s string) Key {
	if s == "" {
		return Key{}
	}
	return Key{text: &s}
}

// IsZero reports whether the key is empty.
func (k Key) IsZero() bool { return k.text == nil }

// Equal reports whether the bytes of both keys are the same.
func (k Key) Equal(other Key) bool { return k.reveal() == other.reveal() }

// reveal returns the raw key. It stays in this package: keys leave it only as hashes and previews.
func (k Key) reveal() string {
	if k.IsZero() {
		return ""
	}
	return *k.text
}

// String returns "[redacted]".
func (k Key) String() string { return redacted }

// Format writes "[redacted]", whatever the verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue returns "[redacted]".
func (k Key) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "[redacted]", for encoding/json, YAML and whatever else marshals text.
func (k Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Value refuses: a raw key is never an argument of a statement.
func (k Key) Value() (driver.Value, error) {
	return nil, errors.New("daybook: a ledger.Key is never sent to the database; send its hash")
}
