package commands_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// §4.2: two payloads are the same when they are equal as JSON values.
func TestPayloadsAreComparedAsValues(t *testing.T) {
	t.Parallel()
	queue := newQueue(t, pgtest.New(t).Pool)
	for i, test := range []struct {
		name, first, second string
		same                bool
	}{
		{"order of names, nested", `{"a":{"b":1,"c":[{"d":2,"e":3}]},"f":4}`, `{"f":4,"a":{"c":[{"e":3,"d":2}],"b":1}}`, true},
		{"white space", `{"a":[1,2]}`, "\n{ \"a\" :\t[ 1 , 2 ] }", true},
		{"1 and 1.0", `{"a":1}`, `{"a":1.0}`, true},
		{"1 and 1e0", `1`, `1e0`, true},
		{"1.0 and 10e-1", `[1.0]`, `[10e-1]`, true},
		{"0 and -0.0", `0`, `-0.0`, true},
		{"an escape and its character", `{"\u00e9":"\u00e9"}`, `{"é":"é"}`, true},
		{"a surrogate pair and its character", `"\ud83d\ude00"`, `"😀"`, true},
		{"a name twice, the last one counts", `{"a":1,"b":2,"a":3}`, `{"b":2,"a":3}`, true},
		{"a name twice, the first one does not", `{"a":1,"a":3}`, `{"a":1}`, false},
		{"NFC and NFD", `"é"`, `"` + "e\u0301" + `"`, false},
		{"neighbours beyond 2^53", `9007199254740992`, `9007199254740993`, false},
		{"numbers and their text", `{"a":1}`, `{"a":"1"}`, false},
		{"nothing and something", `{}`, `{"a":1}`, false},
		{"something and nothing", `{"a":1}`, `{}`, false},
		{"null and absent", `{"a":null}`, `{}`, false},
		{"a path and an object", `{"a.b":1}`, `{"a":{"b":1}}`, false},
		{"two names with a dot", `{"a.b":1}`, `{"a.c":1}`, false},
		{"a star", `{"*":1}`, `{"a":1}`, false},
		{"a hash", `{"#":1}`, `{"*":1}`, false},
		{"the empty name", `{"":1}`, `{}`, false},
		{"the empty name's value", `{"":1}`, `{"":2}`, false},
		{"order of elements", `[1,2]`, `[2,1]`, false},
		{"an array and its element", `[1]`, `1`, false},
		{"an array and nothing in it", `[]`, `[[]]`, false},
		{"an empty array and an empty object", `[]`, `{}`, false},
		{"null and false", `null`, `false`, false},
		{"one digit of a fraction", `0.1`, `0.10000000000000000000000000001`, false},
		{"one digit of a very large number", `1e131071`, `1` + strings.Repeat("0", 131070) + `1`, false},
	} {
		first := decide(t, queue, order(fmt.Sprint("single ", i), test.first))
		wantOutcome(t, first, commands.OutcomeAccepted)
		second := decide(t, queue, order(fmt.Sprint("single ", i), test.second))
		batch, err := queue.DecideMany(context.Background(), []commands.EnqueueOptions{
			order(fmt.Sprint("twins ", i), test.first), order(fmt.Sprint("twins ", i), test.second),
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string]commands.EnqueueResult{"single": second, "batch": batch[1]} {
			switch {
			case test.same && got.Outcome != commands.OutcomeReplayed:
				t.Errorf("%s, %s: %s, want replayed", test.name, name, got.Outcome)
			case !test.same && (got.Conflict == nil || !cmp.Equal(got.Conflict.Fields, []string{"payload"})):
				t.Errorf("%s, %s: %s %v, want a conflict of payload", test.name, name, got.Outcome, got.Conflict)
			}
		}
	}
}

// A job as deep as may be is stored, read and compared like any other, and so is one that another language sent.
func TestDeepestPayload(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool)
	depth := commands.MaxPayloadDepth
	for name, text := range map[string]json.RawMessage{
		"objects": nested(`{"a":`, "1", "}", depth),
		"arrays":  nested("[", "1", "]", depth),
		"both":    nested(`[{"a":`, "1", "}]", depth/2),
	} {
		result := decide(t, queue, order(name, string(text)))
		wantOutcome(t, result, commands.OutcomeAccepted)
		wantOutcome(t, decide(t, queue, order(name, " "+string(text))), commands.OutcomeReplayed)
		wantFields(t, decide(t, queue, order(name, strings.Replace(string(text), "1", "2", 1))), "payload")
		if !query1[bool](t, db.Pool, "select payload = $2::text::jsonb from daybook.job where job_id = $1", result.JobID, string(text)) {
			t.Errorf("%s are stored otherwise", name)
		}
	}
}

// PostgreSQL's jsonb is the authority. What the Go package accepts jsonb accepts, and what it refuses jsonb refuses or renders
// too large; the sizes are equal to the byte; and the digests are equal exactly where jsonb says that the values are.
func TestPayloadsAgreeWithJSONB(t *testing.T) {
	db := pgtest.New(t)
	pool := db.Pool
	queue := newQueue(t, pool)
	rapid.Check(t, func(t *rapid.T) {
		first := jsonText(t, 4)
		second := first.vary(t)
		a, b := first.render(t), second.render(t)
		sizeA, okA := jsonbSize(t, pool, a)
		_, okB := jsonbSize(t, pool, b)
		digestA, errA := digestOf(a, commands.DefaultMaxPayloadBytes)
		digestB, errB := digestOf(b, commands.DefaultMaxPayloadBytes)
		if okA != (errA == nil) {
			t.Fatalf("%q: jsonb takes it: %v; newPayload says %v", a, okA, errA)
		}
		if okB != (errB == nil) {
			t.Fatalf("%q: jsonb takes it: %v; newPayload says %v", b, okB, errB)
		}
		if !okA || !okB {
			return
		}
		// White space and escapes are not counted, but they are not without end either.
		if _, err := digestOf(a, sizeA); err != nil && len(a) <= 8*sizeA {
			t.Fatalf("%q has %d bytes as jsonb renders it: %v", a, sizeA, err)
		}
		if _, err := digestOf(a, max(1, sizeA-1)); err == nil && sizeA > 1 {
			t.Fatalf("%q has %d bytes as jsonb renders it, and is taken for less", a, sizeA)
		}
		same := query1[bool](t, pool, "select $1::text::jsonb = $2::text::jsonb", a, b)
		if (digestA == digestB) != same {
			t.Fatalf("%q and %q: equal in jsonb: %v, digests %s and %s", a, b, same, digestA, digestB)
		}
		// And so decides the database.
		key := rapid.StringMatching(`[a-z]{12}`).Draw(t, "key")
		tx, err := pool.Begin(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		wantOutcome(t, decideTx(t, queue, tx, order(key, a)), commands.OutcomeAccepted)
		got := decideTx(t, queue, tx, order(key, b))
		if same {
			wantOutcome(t, got, commands.OutcomeReplayed)
		} else {
			wantFields(t, got, "payload")
		}
	})
}

// digestOf returns the request digest that a payload leads to, from the conflict of a request with it: the only place that
// shows one.
func digestOf(text string, maxBytes int) (string, error) {
	queue, err := commands.NewQueue(commands.Config{MaxPayloadBytes: maxBytes})
	if err != nil {
		return "", err
	}
	sent := &lastArguments{}
	_, err = queue.DecideTx(context.Background(), sent, order("k", text))
	var call *commands.CallError
	if !errors.As(err, &call) {
		return "", err
	}
	// See commands/sql/enqueue.sql.
	return fmt.Sprintf("%x", sent.arguments[22]), nil
}

// lastArguments is a transaction that keeps what is sent, and answers with an error.
type lastArguments struct{ arguments []any }

func (l *lastArguments) QueryRow(_ context.Context, _ string, arguments ...any) pgx.Row {
	l.arguments = arguments
	return noSQL{}
}

// jsonbSize returns the size of jsonb's rendering, and whether it takes the text at all.
func jsonbSize(t *rapid.T, db querier, text string) (size int, ok bool) {
	rows, err := db.Query(context.Background(), "select octet_length(convert_from($1::bytea, 'UTF8')::jsonb::text)", []byte(text))
	if err == nil {
		size, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	}
	return size, err == nil && size <= commands.DefaultMaxPayloadBytes
}
