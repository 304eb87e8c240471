package ledger_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/ledger"
)

// vector is a line of KEYS.md.
type vector struct {
	Scope   string  `json:"scope"`
	Key     string  `json:"key"`
	Secret  *string `json:"secret"`
	Hash    string  `json:"hash"`
	Digest  string  `json:"digest"`
	Preview string  `json:"preview"`
}

// fenced returns the text of KEYS.md's one block in a language.
func fenced(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("KEYS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```"+language+"\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("KEYS.md has no block of %s", language)
	}
	return block
}

func TestKeysOfTheDocument(t *testing.T) {
	t.Parallel()
	decoder := json.NewDecoder(strings.NewReader(fenced(t, "jsonl")))
	plain, secret := 0, 0
	for decoder.More() {
		var want vector
		if err := decoder.Decode(&want); err != nil {
			t.Fatal(err)
		}
		var keys ledger.Keys
		if want.Secret == nil {
			plain++
		} else {
			secret++
			raw, err := hex.DecodeString(*want.Secret)
			if err != nil {
				t.Fatal(err)
			}
			if keys, err = ledger.NewHMACKeys(raw); err != nil {
				t.Fatal(err)
			}
		}
		hash, others := keys.Hash(want.Scope, ledger.NewKey(want.Key))
		got := vector{
			Scope: want.Scope, Key: want.Key, Secret: want.Secret, Hash: hex.EncodeToString(hash[:]),
			Digest: string(hash.Digest()), Preview: ledger.KeyPreview(ledger.NewKey(want.Key)),
		}
		if diff := cmp.Diff(want, got); diff != "" || others != nil || hash.String() != want.Digest {
			t.Errorf("KEYS.md against the code (-want +got), others %v:\n%s", others, diff)
		}
	}
	if plain < 5 || secret < 5 {
		t.Errorf("%d vectors without and %d with a secret", plain, secret)
	}

	input, err := hex.DecodeString(strings.Join(strings.Fields(fenced(t, "hex")), ""))
	if err != nil {
		t.Fatal(err)
	}
	if hash, _ := (ledger.Keys{}).Hash("default", ledger.NewKey("order-1")); hash != sha256.Sum256(input) {
		t.Errorf("the input of the document hashes to %x, the code says %x", sha256.Sum256(input), hash[:])
	}
}

func mustKeys(t testing.TB, current string, others ...string) ledger.Keys {
	t.Helper()
	var rest [][]byte
	for _, other := range others {
		rest = append(rest, []byte(other))
	}
	keys, err := ledger.NewHMACKeys([]byte(current), rest...)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestKeyRings(t *testing.T) {
	t.Parallel()
	const first, second = "the first secret", "the second secret"
	key := ledger.NewKey(rawKey)
	a, _ := mustKeys(t, first).Hash("s", key)
	b, _ := mustKeys(t, second).Hash("s", key)
	plain, _ := ledger.Keys{}.Hash("s", key)
	for name, ring := range map[string]struct {
		keys    ledger.Keys
		current ledger.KeyHash
		others  []ledger.KeyHash
	}{
		"one":            {mustKeys(t, first), a, nil},
		"two":            {mustKeys(t, first, second), a, []ledger.KeyHash{b}},
		"turned round":   {mustKeys(t, second, first), b, []ledger.KeyHash{a}},
		"also plain":     {mustKeys(t, first).AlsoSHA256(), a, []ledger.KeyHash{plain}},
		"plain twice":    {mustKeys(t, first).AlsoSHA256().AlsoSHA256(), a, []ledger.KeyHash{plain}},
		"plain and more": {mustKeys(t, first, second).AlsoSHA256(), a, []ledger.KeyHash{b, plain}},
		"plain alone":    {ledger.Keys{}.AlsoSHA256(), plain, nil},
	} {
		current, others := ring.keys.Hash("s", key)
		if current != ring.current || cmp.Diff(ring.others, others) != "" {
			t.Errorf("%s: %v, %v; want %v, %v", name, current, others, ring.current, ring.others)
		}
	}

	// A ring is a copy: the caller may wipe the secret.
	secret := []byte(first)
	kept, err := ledger.NewHMACKeys(secret)
	if err != nil {
		t.Fatal(err)
	}
	clear(secret)
	if hash, _ := kept.Hash("s", key); hash != a {
		t.Error("the ring changed with the caller's slice")
	}
	base := mustKeys(t, first)
	_ = base.AlsoSHA256()
	if _, others := base.Hash("s", key); others != nil {
		t.Error("AlsoSHA256 changed the ring it was called on")
	}
}

func TestKeyRingsRefused(t *testing.T) {
	t.Parallel()
	enough := []byte("0123456789abcdef")
	for name, secrets := range map[string][][]byte{
		"none": {nil}, "empty": {{}}, "one byte short": {enough[1:]}, "a short other": {enough, enough[:15]}, "twice": {enough, enough},
	} {
		if _, err := ledger.NewHMACKeys(secrets[0], secrets[1:]...); err == nil || strings.Contains(err.Error(), string(enough[:8])) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ledger.NewHMACKeys(enough); err != nil {
		t.Errorf("%d bytes: %v", len(enough), err)
	}
}

func TestKeyPreview(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"":                            "…",
		"k":                           "…",
		strings.Repeat("a", 11):       "…",
		"abcdefghijkl":                "abcd…", // 12 characters: a third is 4
		"abcdefghijklmn":              "abcd…", // 14: still 4
		"abcdefghijklmno":             "abcde…",
		"abcdefghijklmnopqrstuvw":     "abcdefg…",  // 23: 7
		"abcdefghijklmnopqrstuvwx":    "abcdefgh…", // 24: 8
		strings.Repeat("x", 512):      "xxxxxxxx…",
		strings.Repeat("é", 11):       "…", // 22 bytes, 11 characters
		strings.Repeat("é", 12):       "éééé…",
		strings.Repeat("東", 24):       "東東東東東東東東…",
		strings.Repeat("🙂", 128):      "🙂🙂🙂🙂🙂🙂🙂🙂…",
		"e\u0301e\u0301e\u0301abcdef": "e\u0301e\u0301…",
		"ab\x1b[2Jcdefghijklmnopq":    "ab…",
		"\nabcdefghijklmnopq":         "…",
		"ab\tcdefghijklmnopq":         "ab…",
		"ab\u202ecdefghijklmnopq":     "ab…", // right-to-left override
		"ab\u00a0cdefghijklmnopq":     "ab…", // no-break space
		"ab cdefghijklmnopqrstuv":     "ab cdef…",
	} {
		if got := ledger.KeyPreview(ledger.NewKey(key)); got != want {
			t.Errorf("preview of %q: %q, want %q", key, got, want)
		}
	}
}

func TestCheckKeyAndScope(t *testing.T) {
	t.Parallel()
	check := map[string]func(string) string{
		"key":   func(s string) string { return ledger.CheckKey(ledger.NewKey(s)) },
		"scope": ledger.CheckScope,
	}
	for name, bound := range map[string]int{"key": ledger.MaxKeyBytes, "scope": ledger.MaxScopeBytes} {
		for text, want := range map[string]string{
			"k":                                   "",
			strings.Repeat("k", bound):            "",
			strings.Repeat("é", bound/2):          "",
			" k ":                                 "",
			"\n.":                                 "",
			"\u200b":                              "", // zero width space is not white space
			"":                                    "is empty",
			strings.Repeat("k", bound+1):          fmt.Sprintf("has %d bytes, at most %d are allowed", bound+1, bound),
			strings.Repeat("é", bound/2) + "k":    fmt.Sprintf("has %d bytes, at most %d are allowed", bound+1, bound),
			" ":                                   "is all white space",
			"\t\n\v\f\r \u0085\u00a0\u2003\u3000": "is all white space",
			"k\x00":                               "holds a NUL",
			"\x00":                                "holds a NUL",
			"k\xff":                               "is not valid UTF-8",
			"\xed\xa0\x80":                        "is not valid UTF-8", // a surrogate
			"\xc0\x80":                            "is not valid UTF-8", // NUL, overlong
			"é"[:1]:                               "is not valid UTF-8",
		} {
			if got := check[name](text); got != want {
				t.Errorf("%s %q: %q, want %q", name, text, got, want)
			}
		}
	}
}

func FuzzKeyPreview(f *testing.F) {
	for _, seed := range []string{"", "k", rawKey, strings.Repeat("é", 40), "ab\x1b[2Jcdefghijklmnopq", "\xff\xfe\xfd0123456789abcdef"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		preview := ledger.KeyPreview(ledger.NewKey(raw))
		shown, found := strings.CutSuffix(preview, "…")
		n, total := utf8.RuneCountInString(shown), utf8.RuneCountInString(raw)
		if !found || !utf8.ValidString(preview) || n > 8 || 3*n > total || (total < 12 && n > 0) {
			t.Errorf("preview of %q: %q", raw, preview)
		}
		if utf8.ValidString(raw) && !strings.HasPrefix(raw, shown) {
			t.Errorf("preview of %q does not begin it: %q", raw, preview)
		}
		if strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("preview of %q would move a terminal's cursor: %q", raw, preview)
		}
	})
}

func FuzzCheckKey(f *testing.F) {
	for _, seed := range []string{"", "k", " ", "k\x00", "k\xff", strings.Repeat("k", 513)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		problem := ledger.CheckKey(ledger.NewKey(raw))
		fine := len(raw) >= 1 && len(raw) <= 512 && utf8.ValidString(raw) && !strings.Contains(raw, "\x00") &&
			strings.ContainsFunc(raw, func(r rune) bool { return !unicode.IsSpace(r) })
		if (problem == "") != fine {
			t.Errorf("%q: %q", raw, problem)
		}
	})
}

// The input is decoded again, so no two pairs of scope and key can share one.
func FuzzHash(f *testing.F) {
	f.Add("a", "bc", "ab", "c")
	f.Add("default", rawKey, "default", rawKey)
	f.Add("", "", "\x00\x00\x00\x00", "")
	f.Fuzz(func(t *testing.T, scope, key, otherScope, otherKey string) {
		hash, _ := ledger.Keys{}.Hash(scope, ledger.NewKey(key))
		other, _ := ledger.Keys{}.Hash(otherScope, ledger.NewKey(otherKey))
		if same := scope == otherScope && key == otherKey; same != (hash == other) {
			t.Errorf("(%q, %q) and (%q, %q) hash to %x and %x", scope, key, otherScope, otherKey, hash[:], other[:])
		}
		var input bytes.Buffer
		input.WriteString("daybook.key.v1\x00")
		for _, text := range []string{scope, key} {
			_ = binary.Write(&input, binary.BigEndian, uint32(len(text)))
			input.WriteString(text)
		}
		if want := ledger.KeyHash(sha256.Sum256(input.Bytes())); hash != want {
			t.Errorf("(%q, %q) hashes to %x, want %x", scope, key, hash[:], want[:])
		}
	})
}
