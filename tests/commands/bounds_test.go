package commands_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

const year = 365 * 24 * time.Hour

// bound is one side of a bound of §4.1: a change to a request that is in order.
type bound struct {
	name   string
	field  string // of the error; "" where the request is still in order
	change func(*commands.EnqueueOptions)
}

func bytes(n int) string { return strings.Repeat("x", n) }

// words are n different tags.
func words(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("tag %02d", i)
	}
	return all
}

// nested is a payload of so many arrays, or objects, in one another.
func nested(opening, middle, closing string, depth int) json.RawMessage {
	return json.RawMessage(strings.Repeat(opening, depth) + middle + strings.Repeat(closing, depth))
}

// texts are the bounds of a field of 1 to most bytes.
func texts(field string, most int, set func(*commands.EnqueueOptions, string)) []bound {
	with := func(s string) func(*commands.EnqueueOptions) {
		return func(o *commands.EnqueueOptions) { set(o, s) }
	}
	return []bound{
		{"1 byte", "", with("x")},
		{"most bytes", "", with(bytes(most))},
		{"most bytes in characters of more than one", "", with(strings.Repeat("é", most/2))},
		{"a byte more", field, with(bytes(most + 1))},
		{"a character more", field, with(strings.Repeat("é", most/2) + "é")},
		{"not UTF-8", field, with("a\xff")},
		{"half a character", field, with("é"[:1])},
		{"a surrogate", field, with("\xed\xa0\x80")},
		{"a NUL", field, with("a\x00b")},
	}
}

// durations are the bounds of a field of least to 365 days in whole milliseconds.
func durations(field string, least time.Duration, set func(*commands.EnqueueOptions, time.Duration)) []bound {
	with := func(d time.Duration) func(*commands.EnqueueOptions) {
		return func(o *commands.EnqueueOptions) { set(o, d) }
	}
	return []bound{
		{"least", "", with(least)},
		{"most", "", with(year)},
		{"most and a little, which is truncated", "", with(year + time.Millisecond - 1)},
		{"less than least", field, with(least - 1)},
		{"more than most", field, with(year + time.Millisecond)},
		{"negative", field, with(-time.Hour)},
	}
}

func bounds() map[string][]bound {
	instants := func(field string, set func(*commands.EnqueueOptions, time.Time)) []bound {
		with := func(at time.Time) func(*commands.EnqueueOptions) {
			return func(o *commands.EnqueueOptions) { set(o, at) }
		}
		last := time.Date(10000, 1, 1, 0, 0, 0, -1, time.UTC)
		return []bound{
			{"last", "", with(last)},
			{"after the last", field, with(last.Add(1))},
			{"before the first", field, with(time.Date(0, 12, 31, 23, 59, 59, 999_999_999, time.UTC))},
		}
	}
	numbers := func(field string, least, most int, set func(*commands.EnqueueOptions, int)) []bound {
		with := func(n int) func(*commands.EnqueueOptions) {
			return func(o *commands.EnqueueOptions) { set(o, n) }
		}
		return []bound{
			{"least", "", with(least)},
			{"most", "", with(most)},
			{"more", field, with(most + 1)},
			{"negative", field, with(-1)},
			{"more than 32 bits", field, with(1 << 32)},
		}
	}
	payload := func(p any) func(*commands.EnqueueOptions) {
		return func(o *commands.EnqueueOptions) { o.Payload = p }
	}
	retry := func(p commands.RetryPolicy) func(*commands.EnqueueOptions) {
		return func(o *commands.EnqueueOptions) { o.RetryPolicy = p }
	}
	blank := func(field string, set func(*commands.EnqueueOptions, string)) []bound {
		return []bound{
			{"white space only", field, func(o *commands.EnqueueOptions) { set(o, " \t\n") }},
			{"Unicode's white space only", field, func(o *commands.EnqueueOptions) { set(o, "\u00a0\u2003\u3000") }},
			{"white space around", "", func(o *commands.EnqueueOptions) { set(o, " x ") }},
		}
	}
	setKey := func(o *commands.EnqueueOptions, s string) { o.Idempotency.Key = ledger.NewKey(s) }
	setScope := func(o *commands.EnqueueOptions, s string) { o.Idempotency.Scope = s }
	setRun := func(o *commands.EnqueueOptions, at time.Time) { o.RunAt = at }

	return map[string][]bound{
		"type": append(texts("type", 200, func(o *commands.EnqueueOptions, s string) { o.Type = s }),
			bound{"none", "type", func(o *commands.EnqueueOptions) { o.Type = "" }}),
		"queue":           texts("queue", 200, func(o *commands.EnqueueOptions, s string) { o.Queue = s }),
		"concurrency key": texts("concurrency_key", 256, func(o *commands.EnqueueOptions, s string) { o.ConcurrencyKey = s }),
		"tag":             texts("tags", 100, func(o *commands.EnqueueOptions, s string) { o.Tags = []string{"a", s} }),
		"tags": {
			{"most", "", func(o *commands.EnqueueOptions) { o.Tags = words(20) }},
			{"most, some twice", "", func(o *commands.EnqueueOptions) { o.Tags = append(words(20), words(20)...) }},
			{"more", "tags", func(o *commands.EnqueueOptions) { o.Tags = words(21) }},
			{"an empty one", "tags", func(o *commands.EnqueueOptions) { o.Tags = []string{"a", ""} }},
		},
		"key": append(append(texts("key", 512, setKey), blank("key", setKey)...),
			bound{"none", "key", func(o *commands.EnqueueOptions) { o.Idempotency.Key = ledger.Key{} }}),
		"scope":          append(texts("scope", 256, setScope), blank("scope", setScope)...),
		"priority":       numbers("priority", 0, 100, func(o *commands.EnqueueOptions, n int) { o.Priority = n }),
		"attempt budget": numbers("attempt_budget", 1, 100, func(o *commands.EnqueueOptions, n int) { o.AttemptBudget = n }),
		"ttl": durations("ttl", time.Millisecond,
			func(o *commands.EnqueueOptions, d time.Duration) { o.Idempotency.TTL = d }),
		"execution timeout": durations("execution_timeout", time.Millisecond,
			func(o *commands.EnqueueOptions, d time.Duration) { o.ExecutionTimeout = d }),
		"fixed retry": durations("retry_policy", 0,
			func(o *commands.EnqueueOptions, d time.Duration) { o.RetryPolicy = commands.FixedRetry{Delay: d} }),
		"exponential retry": durations("retry_policy", 0,
			func(o *commands.EnqueueOptions, d time.Duration) { o.RetryPolicy = commands.ExponentialRetry{Max: d} }),
		"jittered retry": append(durations("retry_policy", 0,
			func(o *commands.EnqueueOptions, d time.Duration) {
				o.RetryPolicy = commands.DecorrelatedJitterRetry{Initial: d, Max: d}
			}),
			bound{"max below initial", "retry_policy", retry(commands.DecorrelatedJitterRetry{Initial: time.Second, Max: time.Second - time.Millisecond})},
			bound{"max below initial", "retry_policy", retry(commands.ExponentialRetry{Initial: time.Millisecond})}),
		"run at":   instants("run_at", setRun),
		"deadline": instants("deadline", func(o *commands.EnqueueOptions, at time.Time) { o.Deadline = at }),
		"deadline and run at": {
			{"a microsecond after", "", func(o *commands.EnqueueOptions) { o.RunAt, o.Deadline = noon, noon.Add(time.Microsecond) }},
			{"the same when truncated", "deadline", func(o *commands.EnqueueOptions) { o.RunAt, o.Deadline = noon, noon.Add(999) }},
			{"before", "deadline", func(o *commands.EnqueueOptions) { o.RunAt, o.Deadline = noon, noon.Add(-time.Hour) }},
			// The one bound that only the database can judge.
			{"after the clock", "", func(o *commands.EnqueueOptions) { o.Deadline = noon.Add(time.Microsecond) }},
			{"at the clock", "deadline", func(o *commands.EnqueueOptions) { o.Deadline = noon }},
		},
		"mode": {
			{"none", "", func(o *commands.EnqueueOptions) { o.Idempotency = nil }},
			{"two", "mode", func(o *commands.EnqueueOptions) {
				o.Throttle = &commands.Throttle{Key: ledger.NewKey("k"), Window: time.Hour}
			}},
		},
		"payload": {
			{"most bytes", "", payload(bytes(1<<20 - 2))},
			{"a byte more", "payload", payload(bytes(1<<20 - 1))},
			{"short as given, too long as rendered", "payload", payload(json.RawMessage("[" + strings.Repeat("1e100000,", 11) + "1]"))},
			{"long as given, short as rendered", "", payload(json.RawMessage(strings.Repeat(" ", 1<<20) + "1"))},
			{"deepest arrays", "", payload(nested("[", "", "]", commands.MaxPayloadDepth))},
			{"deepest objects", "", payload(nested(`{"a":`, "1", "}", commands.MaxPayloadDepth))},
			{"arrays too deep", "payload", payload(nested("[", "", "]", commands.MaxPayloadDepth+1))},
			{"objects too deep", "payload", payload(nested(`{"a":`, "1", "}", commands.MaxPayloadDepth+1))},
			{"largest number", "", payload(json.RawMessage("-1e131071"))},
			{"a larger number", "payload", payload(json.RawMessage("1e131072"))},
			{"finest number", "", payload(json.RawMessage("1e-16383"))},
			{"a finer number", "payload", payload(json.RawMessage("1e-16384"))},
			{"a lone surrogate", "payload", payload(json.RawMessage(`{"a":"\ud800"}`))},
			{"a NUL", "payload", payload(json.RawMessage(`{"a":"\u0000"}`))},
			{"invalid UTF-8", "payload", payload(map[string]string{"a": "\xff"})},
			{"not JSON", "payload", payload(json.RawMessage(`{"a"}`))},
			{"nothing", "payload", payload(json.RawMessage{})},
		},
	}
}

// §4.1: everything invalid is refused with a typed error that names the field, single and batch; nothing is written, and
// the caller's transaction stays usable.
func TestBounds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	db.Exec(t, "create table mine (name text primary key)")
	queue := newQueue(t, db.AsRole(t, "daybook_app"))
	for about, all := range bounds() {
		for i, bound := range all {
			name := about + ": " + bound.name
			single := order(fmt.Sprintf("single %s %d", name, i), `{"a":1}`)
			batched := order(fmt.Sprintf("batched %s %d", name, i), `{"a":1}`)
			bound.change(&single)
			bound.change(&batched)
			if about == "key" && bound.field == "" {
				batched.Idempotency.Scope = "the batch's"
			}
			good := order("good "+name+fmt.Sprint(i), "null")
			before := footprintOf(t, db.Pool)

			tx := begin(t, db.Pool, pgx.TxOptions{})
			result, err := queue.DecideTx(ctx, tx, single)
			results, errMany := queue.DecideManyTx(ctx, tx, []commands.EnqueueOptions{good, batched})
			if _, err := tx.Exec(ctx, "insert into mine values ($1)", fmt.Sprint(name, i)); err != nil {
				t.Fatalf("%s: the transaction is no longer usable: %v", name, err)
			}
			commit(t, tx)

			if bound.field == "" {
				if err != nil || result.Outcome != commands.OutcomeAccepted {
					t.Errorf("%s: %s %v", name, result.Outcome, err)
				}
				if errMany != nil || len(results) != 2 || results[1].Outcome != commands.OutcomeAccepted {
					t.Errorf("%s, batch: %v %v", name, outcomes(results), errMany)
				}
				continue
			}
			wantInvalid(t, name, err, bound.field, 0)
			wantInvalid(t, name+", batch", errMany, bound.field, 1)
			if diff := cmp.Diff(before, footprintOf(t, db.Pool)); diff != "" {
				t.Errorf("%s: something is written:\n%s", name, diff)
			}
			if name == "deadline and run at: at the clock" {
				continue
			}
			_, err = queue.DecideTx(ctx, noSQL{}, single)
			wantInvalid(t, name+", before any SQL", err, bound.field, 0)
			_, err = queue.EnqueueManyTx(ctx, noSQL{}, []commands.EnqueueOptions{good, batched})
			wantInvalid(t, name+", batch, before any SQL", err, bound.field, 1)
		}
	}
}

func wantInvalid(t *testing.T, name string, err error, field string, ordinal int) {
	t.Helper()
	var invalid *commands.InvalidRequestError
	if !errors.As(err, &invalid) {
		t.Errorf("%s: error %v, want an *InvalidRequestError", name, err)
	} else if invalid.Field != field || invalid.Ordinal != ordinal || invalid.Problem == "" {
		t.Errorf("%s: %v, want field %s and ordinal %d", name, err, field, ordinal)
	}
}

// noSQL is a transaction in which every statement fails.
type noSQL struct{}

func (noSQL) QueryRow(context.Context, string, ...any) pgx.Row { return noSQL{} }

func (noSQL) Scan(...any) error { return errors.New("a statement was sent") }

// The limit on payloads is configurable up to 16 MiB, and PostgreSQL keeps to it likewise.
func TestPayloadLimit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	const limit = 16 << 20
	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool, MaxPayloadBytes: limit})
	if err != nil {
		t.Fatal(err)
	}
	// Numbers that are short as given, and a string that fills the rest: as PostgreSQL renders it, exactly so many bytes.
	large := func(more int) commands.EnqueueOptions {
		const numbers, digits = 167, 100_001
		rest := limit - numbers*(digits+len(", ")) - len(`[""]`) + more
		return order("large", "["+strings.Repeat("1e100000,", numbers)+`"`+bytes(rest)+`"]`)
	}
	wantOutcome(t, decide(t, queue, large(0)), commands.OutcomeAccepted)
	if got := query1[int](t, db.Pool, "select octet_length(payload::text) from daybook.job"); got != limit {
		t.Errorf("stored with %d bytes", got)
	}
	_, err = queue.Decide(ctx, large(1))
	wantInvalid(t, "a byte more", err, "payload", 0)
	for _, bad := range []int{-1, limit + 1} {
		if _, err := commands.NewQueue(commands.Config{MaxPayloadBytes: bad}); err == nil {
			t.Errorf("a limit of %d bytes is accepted", bad)
		}
	}
}

// A batch has its own bounds: none is answered without SQL, and no more than MaxBatch.
func TestBatchSize(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	queue := newQueue(t, pgtest.New(t).Pool)
	if results, err := queue.EnqueueManyTx(ctx, noSQL{}, nil); len(results) != 0 || err != nil {
		t.Errorf("an empty batch: %v %v", results, err)
	}
	batch := make([]commands.EnqueueOptions, commands.MaxBatch+1)
	for i := range batch {
		batch[i] = order(fmt.Sprint(i), "null")
	}
	var invalid *commands.InvalidRequestError
	if _, err := queue.EnqueueManyTx(ctx, noSQL{}, batch); !errors.As(err, &invalid) || invalid.Field != "requests" {
		t.Errorf("a batch of %d: %v, want an *InvalidRequestError of requests", len(batch), err)
	}
	results, err := queue.EnqueueMany(ctx, batch[1:])
	if err != nil || len(results) != commands.MaxBatch {
		t.Fatalf("a batch of %d: %d results, %v", commands.MaxBatch, len(results), err)
	}
	for _, result := range results {
		wantOutcome(t, result, commands.OutcomeAccepted)
	}
}
