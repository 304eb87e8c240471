package ledger_test

import (
	"bytes"
	"database/sql/driver"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"text/template"

	"github.com/daybook-go/daybook/ledger"
)

const (
	rawKey    = "customer-4711-order-0815"
	rawSecret = "correct horse battery staple"
)

// holder keeps a key and a ring where a printer that looks into structs finds them: exported, unexported, behind
// pointers, in slices, maps and interfaces.
type holder struct {
	Key     ledger.Key
	Keys    ledger.Keys
	Pointer *ledger.Key
	Any     any
	key     ledger.Key
	keys    ledger.Keys
	pointer *ledger.Key
	any     any
	nested  struct{ deeper struct{ key ledger.Key } }
	slice   []ledger.Key
	array   [1]ledger.Key
	byName  map[string]ledger.Key
}

func newHolder(t *testing.T) holder {
	t.Helper()
	key := ledger.NewKey(rawKey)
	keys, err := ledger.NewHMACKeys([]byte(rawSecret))
	if err != nil {
		t.Fatal(err)
	}
	h := holder{
		Key: key, Keys: keys, Pointer: &key, Any: key,
		key: key, keys: keys, pointer: &key, any: &key,
		slice: []ledger.Key{key}, array: [1]ledger.Key{key},
		byName: map[string]ledger.Key{"k": key},
	}
	h.nested.deeper.key = key
	return h
}

// wantHidden fails where a text holds the key or the secret, or eight bytes of either, as text, hex or a list of numbers.
func wantHidden(t *testing.T, how, text string) {
	t.Helper()
	for _, raw := range []string{rawKey, rawSecret} {
		part := raw[:8]
		numbers := fmt.Sprintf("%d", []byte(part))
		for _, forbidden := range []string{
			part, fmt.Sprintf("%x", part), fmt.Sprintf("%X", part), numbers[1 : len(numbers)-1], fmt.Sprintf("% x", part),
		} {
			if strings.Contains(text, forbidden) {
				t.Errorf("%s shows %q: %s", how, forbidden, text)
			}
		}
	}
}

func TestKeyPrintsRedactedThroughFmt(t *testing.T) {
	t.Parallel()
	h := newHolder(t)
	verbs := []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c", "%U", "%p", "%T", "%t", "%e", "%10v", "%-30s", "%.3s", "%+q", "% x", "%#x", "%w"}
	for _, verb := range verbs {
		for name, value := range map[string]any{
			"holder": h, "pointer to holder": &h, "slice": h.slice, "pointer to slice": &h.slice, "map": h.byName,
			"keys": h.keys, "pointer to keys": &h.keys, "pointer to key": h.pointer, "any": h.any, "a slice of any": []any{h.key, h.keys},
		} {
			wantHidden(t, verb+" of "+name, fmt.Sprintf(verb, value))
		}
		// These ask nothing of the value.
		asksNothing := verb == "%T" || verb == "%p" || verb == "%w"
		if got := fmt.Sprintf(verb, h.key); got != "[redacted]" && !asksNothing {
			t.Errorf("%s of a Key: %q", verb, got)
		}
	}
	for name, got := range map[string]string{
		"Sprint": fmt.Sprint(h.key), "String": h.key.String(), "Sprint of a pointer": fmt.Sprint(&h.key),
		"the zero Key": fmt.Sprint(ledger.Key{}), "Errorf": fmt.Errorf("%v", h.key).Error(),
	} {
		if got != "[redacted]" {
			t.Errorf("%s: %q", name, got)
		}
	}
	// The check itself can fail.
	if shown := fmt.Sprintf("%x", rawKey); !strings.Contains(shown, fmt.Sprintf("%x", rawKey[:8])) {
		t.Errorf("a plain string is not found in %s", shown)
	}
}

func TestKeyPrintsRedactedThroughErrorsAndLogs(t *testing.T) {
	t.Parallel()
	h := newHolder(t)
	err := errors.Join(fmt.Errorf("enqueue %v: %w", h, io.EOF), fmt.Errorf("%+v", &h))
	wantHidden(t, "errors", fmt.Sprintf("%v %+v %#v", err, err, err))

	var out bytes.Buffer
	logger := log.New(&out, "", 0)
	logger.Println(h, &h, h.key, h.keys)
	logger.Printf("%+v %#v", h, h)
	tmpl := template.Must(template.New("").Parse("{{.}} {{.Key}} {{.Keys}} {{printf \"%#v\" .}} {{.Any}}"))
	if err := tmpl.Execute(&out, h); err != nil {
		t.Fatal(err)
	}
	wantHidden(t, "log and text/template", out.String())
}

func TestKeyPrintsRedactedThroughSlog(t *testing.T) {
	t.Parallel()
	h := newHolder(t)
	options := &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}
	for name, handler := range map[string]func(io.Writer) slog.Handler{
		"text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, options) },
		"json": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, options) },
	} {
		var out bytes.Buffer
		logger := slog.New(handler(&out)).With("with", h.key, "keys", h.keys).WithGroup("group")
		logger.Debug("one", "key", h.key)
		if got := out.String(); strings.Count(got, "[redacted]") != 2 {
			t.Errorf("%s: %s", name, got)
		}
		logger.Info("all", "holder", h, "pointer", &h, "slice", h.slice, "map", h.byName, "any", h.any,
			slog.Group("deeper", slog.Any("key", h.pointer)), "keys", &h.keys)
		wantHidden(t, name, out.String())
	}
}

func TestKeyPrintsRedactedThroughEncoders(t *testing.T) {
	t.Parallel()
	h := newHolder(t)
	got, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"Key":"[redacted]","Keys":{},"Pointer":"[redacted]","Any":"[redacted]"}`
	if string(got) != want {
		t.Errorf("JSON %s, want %s", got, want)
	}
	type element struct{ Key ledger.Key }
	text, err := xml.Marshal(element{h.Key})
	if err != nil || !strings.Contains(string(text), "<Key>[redacted]</Key>") {
		t.Errorf("XML %s, %v", text, err)
	}
	var out bytes.Buffer
	err = gob.NewEncoder(&out).Encode(h.Key)
	wantHidden(t, "gob", out.String()+fmt.Sprint(err))
	if value, err := h.Key.Value(); err == nil || value != nil || strings.Contains(err.Error(), rawKey[:8]) {
		t.Errorf("database/sql gets %v, %v", value, err)
	}
	var _ driver.Valuer = h.Key
}

func TestKeyEquality(t *testing.T) {
	t.Parallel()
	a, b := ledger.NewKey(rawKey), ledger.NewKey(strings.Clone(rawKey))
	if !a.Equal(b) || a.Equal(ledger.NewKey(rawKey+" ")) || a.Equal(ledger.Key{}) || a.IsZero() {
		t.Error("keys are equal when their bytes are")
	}
	if !ledger.NewKey("").IsZero() || !ledger.NewKey("").Equal(ledger.Key{}) {
		t.Error("the empty key is the zero key")
	}
	if reflect.TypeFor[ledger.Key]().Comparable() {
		t.Error("== would compare addresses")
	}
}
