package commands

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

// §4.2: two payloads are the same when they are equal as JSON values. Each group is one value; no two groups are the same.
func TestCanonicalPayload(t *testing.T) {
	t.Parallel()
	groups := [][]string{
		{`null`, " null\n", "\t\r\nnull"},
		{`true`},
		{`1`, `1.0`, `1e0`, `1E+0`, `10e-1`, `0.1e1`, `1.000`},
		{`"1"`, `"\u0031"`},
		{`-1`, `-1.0`},
		{`0`, `-0`, `0.0`, `-0e5`, `0e-5`},
		{`1e5`, `100000`, `100000.0`, `1000e2`},
		{`9007199254740992`},
		{`9007199254740993`},
		{`"é"`, `"\u00e9"`, `"\u00E9"`},
		{`"` + "e\u0301" + `"`},
		{`"😀"`, `"\ud83d\ude00"`},
		{`"/"`, `"\/"`},
		{`{}`, `{ }`},
		{`[]`},
		{`{"a":1}`, `{"a":2,"a":1}`, `{"\u0061":1.0}`},
		{`{"a":{"b":1,"c":[1,{"d":2,"e":3}]}}`, `{"a":{"c":[1.0,{"e":3,"d":2}],"b":1}}`},
		{`[1,2]`, `[1, 2]`},
		{`[2,1]`},
		{`{"a":{"b":1}}`},
		{`{"a.b":1}`},
		{`{"":1}`},
		{`{"*":1}`},
		{`{"#":1}`},
		{`{"a":null}`},
	}
	seen := map[string]int{}
	for i, group := range groups {
		for _, text := range group {
			p, problem := newPayload(json.RawMessage(text), 100)
			if problem != "" {
				t.Errorf("%s %s", text, problem)
				continue
			}
			if p.text != text {
				t.Errorf("%s is sent as %s", text, p.text)
			}
			if other, ok := seen[string(p.canonical)]; ok && other != i {
				t.Errorf("%s is taken for %s", text, groups[other][0])
			} else if !ok && text != group[0] {
				t.Errorf("%s is not taken for %s", text, group[0])
			}
			seen[string(p.canonical)] = i
		}
	}
}

// §4.1: refused before any SQL, in words that hold nothing of the payload.
func TestPayloadRefused(t *testing.T) {
	t.Parallel()
	deep := func(open, middle, shut string, n int) json.RawMessage {
		return json.RawMessage(strings.Repeat(open, n) + middle + strings.Repeat(shut, n))
	}
	for _, test := range []struct {
		name    string
		payload any
		want    string
	}{
		{"nothing", json.RawMessage(``), "is not valid JSON: it ends too soon"},
		{"white space only", json.RawMessage(" \n"), "is not valid JSON: it ends too soon"},
		{"cut short", json.RawMessage(`{"secret":`), "is not valid JSON at byte 10"},
		{"not JSON", json.RawMessage(`secret`), "is not valid JSON at byte 0"},
		{"two values", json.RawMessage(`1 2`), "is followed by something else"},
		{"rubbish behind", json.RawMessage(`{} secret`), "is not valid JSON at byte 3"},
		{"leading zero", json.RawMessage(`01`), "is followed by something else"},
		{"trailing comma", json.RawMessage(`[1,]`), "is not valid JSON at byte 2"},
		{"name is no string", json.RawMessage(`{1:2}`), "is not valid JSON at byte 1"},
		{"no colon", json.RawMessage(`{"secret" 2}`), "is not valid JSON at byte 10"},
		{"control character", json.RawMessage("\"a\nb\""), "is not valid JSON at byte 2"},
		{"a NUL", json.RawMessage(`"\u0000"`), `holds \u0000, which PostgreSQL cannot store`},
		{"a NUL in a name", json.RawMessage(`{"a\u0000":1}`), `holds \u0000, which PostgreSQL cannot store`},
		{"a NUL from Go", "a\x00", `holds \u0000, which PostgreSQL cannot store`},
		{"high surrogate alone", json.RawMessage(`"\ud800"`), "is not valid UTF-8 at byte 1"},
		{"low surrogate alone", json.RawMessage(`"\udc00x"`), "is not valid UTF-8 at byte 1"},
		{"surrogates swapped", json.RawMessage(`"\udc00\ud800"`), "is not valid UTF-8 at byte 1"},
		{"surrogate in a name", json.RawMessage(`{"\ud800":1}`), "is not valid UTF-8 at byte 2"},
		{"invalid UTF-8", json.RawMessage("\"\xff\""), "is not valid UTF-8 at byte 1"},
		{"invalid UTF-8 from Go", map[string]string{"a": "\xff"}, "is not valid UTF-8"},
		{"invalid UTF-8 in a Go name", map[string]int{"\xff": 1}, "is not valid UTF-8"},
		{"too many digits", json.RawMessage(`1e131072`), string(errNumber)},
		{"too many digits of a fraction", json.RawMessage(`1e-16384`), string(errNumber)},
		{"an exponent out of all bounds", json.RawMessage(`1e99999999999999999999`), string(errNumber)},
		{"arrays too deep", deep("[", "", "]", MaxPayloadDepth+1), "is nested more than 512 deep"},
		{"objects too deep", deep(`{"a":`, "1", "}", MaxPayloadDepth+1), "is nested more than 512 deep"},
		{"deeper than the parser goes", deep("[", "", "]", 20_000), "is nested more than 512 deep"},
		{"too large as rendered", json.RawMessage(`1e1000`), "has 1001 bytes as PostgreSQL renders it, at most 1000 are allowed"},
		{"too large as given", json.RawMessage(strings.Repeat(" ", 8000) + "1"), "is too large: a text of 8001 bytes"},
		{"not marshallable", func() {}, "cannot be marshalled to JSON"},
		{"fails to marshal", failing{}, "cannot be marshalled to JSON"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			maxBytes := 1000
			if raw, ok := test.payload.(json.RawMessage); ok && len(raw) > 8*maxBytes+1 {
				maxBytes = DefaultMaxPayloadBytes
			}
			_, got := newPayload(test.payload, maxBytes)
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

type failing struct{}

func (failing) MarshalJSON() ([]byte, error) { return nil, payloadSecret{} }

type payloadSecret struct{}

func (payloadSecret) Error() string { return "secret" }

// §4.1: the size that counts is that of PostgreSQL's rendering, to the byte.
func TestPayloadSize(t *testing.T) {
	t.Parallel()
	for text, rendered := range map[string]string{
		`null`:                       `null`,
		`{"b":1,"a":[1,2],"b":2}`:    `{"a": [1, 2], "b": 2}`,
		`"\u0041\u00e9\ud83d\ude00"`: `"Aé😀"`,
		`"\u0001\u007f\n\/\""`:       `"\u0001` + "\x7f" + `\n/\""`,
		`-0.0`:                       `0.0`,
		`1.50`:                       `1.50`,
		`1.50e1`:                     `15.0`,
		`1.5e3`:                      `1500`,
		`-12e-4`:                     `-0.0012`,
		`0e-3`:                       `0.000`,
		`[ [ ] , { } ]`:              `[[], {}]`,
	} {
		if _, problem := newPayload(json.RawMessage(text), len(rendered)); problem != "" {
			t.Errorf("%s: %s", text, problem)
		}
		if _, problem := newPayload(json.RawMessage(text), len(rendered)-1); problem == "" && len(rendered) > 1 {
			t.Errorf("%s is smaller than %s", text, rendered)
		}
	}
}

// A payload is what encoding/json makes of it.
func TestPayloadOfGoValues(t *testing.T) {
	t.Parallel()
	type order struct {
		ID      int               `json:"id"`
		Note    string            `json:"note,omitempty"`
		Amount  json.Number       `json:"amount"`
		Raw     json.RawMessage   `json:"raw"`
		Names   []string          `json:"names"`
		Labels  map[string]string `json:"labels"`
		ignored int
	}
	for _, value := range []any{
		nil, true, 1, 1.5, "a<b>é\ufffd", `\ufffd`, json.RawMessage(`"\ufffd"`),
		map[json.Number]json.RawMessage{"1": json.RawMessage(`"\ufffd"`)},
		[]byte("bytes"), []int(nil), map[string]int(nil), json.RawMessage(nil),
		json.Number("12.50"), json.RawMessage(`{"a":1}`),
		map[string]any{"b": 1, "a": []int{1}},
		order{ID: 1, Amount: "9007199254740993", Raw: json.RawMessage(`{"a":1,"a":2}`), ignored: 1},
		&order{Amount: "1", Raw: json.RawMessage(`"\ufffd"`), Labels: map[string]string{"x": "y"}}, (*order)(nil),
	} {
		want, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		got, problem := newPayload(value, 1000)
		if problem != "" || got.text != string(want) {
			t.Errorf("%T: %s %s, want %s", value, got.text, problem, want)
		}
	}
	if got, problem := newPayload(jsontext.Value(`{"a": 1}`), 1000); problem != "" || got.text != `{"a": 1}` {
		t.Errorf("a jsontext.Value is %s %s", got.text, problem)
	}
}

// What is accepted is valid JSON and keeps its value; its canonical form is JSON of the same value and canonical itself.
func FuzzPayload(f *testing.F) {
	for _, seed := range []string{
		`null`, `{"a":[1,2.50,-0e3],"b":{"a":"é\n\u0001"},"a":true}`, `"\ud83d\ude00"`, `"\ud800"`, `[[[[]]]]`, `1e131071`,
		`{"":"","\u0000":1}`, ` [ 1 , "x" ] `, "\"\xff\"", `{"a":1}}`, `1e-16383`, `12345678901234567890.123456789`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, problem := newPayload(json.RawMessage(text), 1<<16)
		if problem != "" {
			return
		}
		if !json.Valid(text) {
			t.Fatalf("%q is accepted and is not JSON", text)
		}
		again, problem := newPayload(json.RawMessage(p.canonical), 1<<16)
		if problem != "" {
			t.Fatalf("%q has the canonical form %q, which %s", text, p.canonical, problem)
		}
		if diff := cmp.Diff(string(p.canonical), string(again.canonical)); diff != "" {
			t.Fatalf("the canonical form of %q is not canonical (-first +second):\n%s", text, diff)
		}
		// Numbers have a fuzz target of their own.
		if want, got := withoutNumbers(t, text), withoutNumbers(t, p.canonical); !reflect.DeepEqual(want, got) {
			t.Fatalf("%q is rendered as %q", text, p.canonical)
		}
	})
}

func withoutNumbers(t *testing.T, text []byte) any {
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	var walk func(any) any
	walk = func(value any) any {
		switch v := value.(type) {
		case json.Number:
			return json.Number("")
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case map[string]any:
			for name := range v {
				v[name] = walk(v[name])
			}
		}
		return value
	}
	return walk(value)
}
