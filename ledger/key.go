package ledger

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"unique"
)

// redacted is what a Key prints as, everywhere.
const redacted = "[redacted]"

// Key is the caller's idempotency key: 1–512 bytes of valid UTF-8 that hold no NUL and are not all white space.
// Bytes are compared as they are; nothing is trimmed or normalised. The bounds are checked where a key is used.
//
// A Key cannot be printed. Through fmt (every verb), slog, JSON, text marshalling and %#v it is "[redacted]",
// also inside an unexported field of another struct; database/sql refuses it as an argument. Two Keys are == when
// their bytes are equal. The zero Key is empty.
type Key struct {
	// A handle, not the string: fmt prints unexported fields without asking their methods, and of a handle it
	// finds only an address.
	text unique.Handle[string]
}

// NewKey returns s as a Key.
func NewKey(s string) Key {
	if s == "" {
		return Key{}
	}
	return Key{text: unique.Make(s)}
}

// IsZero reports whether the key is empty.
func (k Key) IsZero() bool { return k == Key{} }

// reveal returns the raw key. It stays in this package: keys leave it only as hashes and previews.
func (k Key) reveal() string {
	if k.IsZero() {
		return ""
	}
	return k.text.Value()
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
