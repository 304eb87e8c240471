package commands_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// parameter is one of daybook.enqueue's: its type, and an SQL expression for a request that is in order.
type parameter struct{ kind, good string }

var parameters = map[string]parameter{
	"type":                 {"text", "'a'"},
	"payload":              {"text", "'{}'"},
	"queue":                {"text", "'default'"},
	"priority":             {"integer", "0"},
	"concurrency_key":      {"text", "null"},
	"tags":                 {"text[]", "null"},
	"attempt_budget":       {"integer", "25"},
	"retry_kind":           {"text", "null"},
	"retry_initial_ms":     {"bigint", "null"},
	"retry_max_ms":         {"bigint", "null"},
	"run_at":               {"timestamptz", "null"},
	"deadline":             {"timestamptz", "null"},
	"execution_timeout_ms": {"bigint", "null"},
	"mode":                 {"text", "'idempotency'"},
	"scope":                {"text", "'default'"},
	"key_hash":             {"bytea", "sha256('good')"},
	"other_hashes":         {"bytea", "null"},
	"key_preview":          {"text", "'…'"},
	"window_ms":            {"bigint", "1000"},
	"max_wait_ms":          {"bigint", "null"},
	"schedule":             {"text", "null"},
	"follow_up":            {"boolean", "null"},
	"request_digest":       {"bytea", "'\\x01'::bytea || sha256('request')"},
}

// set is a change to a request: SQL expressions by parameter.
type set = map[string]string

// callSQL is a call of daybook.enqueue.
func callSQL(changed set) string {
	var arguments []string
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		p := parameters[name]
		expression, ok := changed[name]
		if !ok {
			expression = p.good
		}
		arguments = append(arguments, fmt.Sprintf("p_%s => (%s)::%s", name, expression, p.kind))
	}
	return "select outcome, reason from daybook.enqueue(" + strings.Join(arguments, ", ") + ", p_traceparent => null)"
}

// callManySQL is a call of daybook.enqueue_many with these requests, in this order.
func callManySQL(allOrNothing bool, requests ...set) string {
	arguments := []string{fmt.Sprintf("p_all_or_nothing => %v", allOrNothing)}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		p := parameters[name]
		kind := p.kind
		if name == "tags" {
			kind = "text"
		}
		var elements []string
		for _, changed := range requests {
			expression, ok := changed[name]
			if !ok {
				expression = p.good
			}
			elements = append(elements, fmt.Sprintf("(%s)::%s::%s", expression, p.kind, kind))
		}
		arguments = append(arguments, fmt.Sprintf("p_%s => array[%s]", name, strings.Join(elements, ", ")))
	}
	return "select outcomes, reasons from daybook.enqueue_many(" + strings.Join(arguments, ", ") + ", p_traceparent => null)"
}

// boundsSQL are the bounds of §4.1 for whoever calls the functions directly. The field is "" where the request is still
// in order.
func boundsSQL() map[string][]struct {
	field  string
	change set
} {
	type bound = struct {
		field  string
		change set
	}
	text := func(name string, most int) []bound {
		return []bound{
			{"", set{name: "'x'"}},
			{"", set{name: fmt.Sprintf("repeat('é', %d)", most/2)}},
			{name, set{name: fmt.Sprintf("repeat('é', %d) || 'x'", most/2)}},
			{name, set{name: "''"}},
		}
	}
	number := func(field, name string, least, most int64, others set) []bound {
		with := func(n int64) set {
			changed := maps.Clone(others)
			if changed == nil {
				changed = set{}
			}
			changed[name] = fmt.Sprint(n)
			return changed
		}
		return []bound{{"", with(least)}, {"", with(most)}, {field, with(least - 1)}, {field, with(most + 1)}}
	}
	required := func(field, name string) bound { return bound{field, set{name: "null"}} }
	const yearMS = 365 * 24 * 3600 * 1000
	retry := func(kind, initial, most string) set {
		return set{"retry_kind": kind, "retry_initial_ms": initial, "retry_max_ms": most}
	}
	nest := func(opening, closing string, depth int) string {
		return fmt.Sprintf("repeat('%s', %d) || '1' || repeat('%s', %d)", opening, depth, closing, depth)
	}
	keyless := func(change set) set {
		all := set{"mode": "null", "scope": "null", "key_hash": "null", "key_preview": "null", "window_ms": "null"}
		maps.Copy(all, change)
		return all
	}
	throttle := set{"mode": "'throttle'"}
	debounce := func(change set) set {
		all := set{"mode": "'debounce'", "schedule": "'reset'", "follow_up": "false"}
		maps.Copy(all, change)
		return all
	}
	return map[string][]bound{
		"type":            append(text("type", 200), required("type", "type")),
		"queue":           append(text("queue", 200), required("queue", "queue")),
		"concurrency key": text("concurrency_key", 256),
		"scope": append(text("scope", 256), required("scope", "scope"),
			bound{"scope", set{"scope": `e' \t\n'`}}, bound{"scope", set{"scope": `e'\u0085\u00a0\u2003\u3000'`}}, bound{"", set{"scope": "' x '"}}),
		"priority":          append(number("priority", "priority", 0, 100, nil), required("priority", "priority")),
		"attempt budget":    append(number("attempt_budget", "attempt_budget", 1, 100, nil), required("attempt_budget", "attempt_budget")),
		"ttl":               append(number("ttl", "window_ms", 1, yearMS, nil), required("ttl", "window_ms")),
		"window":            number("window", "window_ms", 1, yearMS, throttle),
		"debounce window":   number("window", "window_ms", 1, yearMS, debounce(nil)),
		"max wait":          number("max_wait", "max_wait_ms", 1, yearMS, debounce(nil)),
		"execution timeout": number("execution_timeout", "execution_timeout_ms", 1, yearMS, nil),
		"tags": {
			{"", set{"tags": "array(select lpad(i::text, 100, '0') from generate_series(1, 20) as i)"}},
			{"tags", set{"tags": "array(select lpad(i::text, 100, '0') from generate_series(1, 21) as i)"}},
			{"tags", set{"tags": "array[repeat('x', 101)]"}},
			{"tags", set{"tags": "array['']"}},
			{"tags", set{"tags": "array[null]"}},
			{"tags", set{"tags": "array['b', 'a']"}},
			{"tags", set{"tags": "array['a', 'a']"}},
			{"tags", set{"tags": "array[['a'], ['b']]"}},
			{"tags", set{"tags": "'[2:3]={a,b}'"}},
			{"tags", set{"tags": "'{}'"}},
		},
		"retry policy": {
			{"", retry("'fixed'", "0", "0")},
			{"", retry("'exponential'", "0", fmt.Sprint(yearMS))},
			{"", retry("'decorrelated_jitter'", fmt.Sprint(yearMS), fmt.Sprint(yearMS))},
			{"retry_policy", retry("'exponential'", "-1", "0")},
			{"retry_policy", retry("'exponential'", "0", fmt.Sprint(yearMS+1))},
			{"retry_policy", retry("'exponential'", "2", "1")},
			{"retry_policy", retry("'linear'", "1", "1")},
			{"retry_policy", retry("'fixed'", "null", "1")},
			{"retry_policy", retry("'fixed'", "1", "null")},
			{"retry_policy", retry("null", "1", "1")},
		},
		"run at": {
			{"", set{"run_at": "'9999-12-31 23:59:59.999999+00'"}},
			{"", set{"run_at": "'0001-01-01 00:00:00+00'"}},
			{"run_at", set{"run_at": "'10000-01-01 00:00:00+00'"}},
			{"run_at", set{"run_at": "'0001-12-31 23:59:59+00 BC'"}},
			{"run_at", set{"run_at": "'infinity'"}},
			{"run_at", set{"run_at": "'-infinity'"}},
		},
		"deadline": {
			{"", set{"deadline": "daybook.clock() + interval '1 microsecond'"}},
			{"deadline", set{"deadline": "daybook.clock()"}},
			{"deadline", set{"deadline": "'infinity'"}},
			{"deadline", set{"deadline": "'-infinity'"}},
			{"", set{"run_at": "'9998-01-01'", "deadline": "'9998-01-01 00:00:00.000001'"}},
			{"deadline", set{"run_at": "'9998-01-01'", "deadline": "'9998-01-01'"}},
		},
		"payload": {
			{"", set{"payload": "'\"' || repeat('x', 16777214) || '\"'"}},
			{"payload", set{"payload": "'\"' || repeat('x', 16777215) || '\"'"}},
			{"", set{"payload": nest("[", "]", 512)}},
			{"", set{"payload": nest(`{"a":`, "}", 512)}},
			{"payload", set{"payload": nest("[", "]", 200_000)}},
			{"payload", set{"payload": "''"}},
			{"payload", set{"payload": "'{'"}},
			{"payload", set{"payload": `'"\u0000"'`}},
			{"payload", set{"payload": `'"\ud800"'`}},
			{"payload", set{"payload": "'1e131072'"}},
			{"payload", set{"payload": "'1e-16384'"}},
			required("payload", "payload"),
		},
		"key": {
			{"key", set{"key_hash": "null"}},
			{"key", set{"key_hash": "substring(sha256('k') from 2)"}},
			{"key", set{"key_hash": "sha256('k') || '\\x00'"}},
			{"", set{"other_hashes": "sha256('a') || sha256('b')"}},
			{"key", set{"other_hashes": "sha256('a') || '\\x00'"}},
			{"key", set{"other_hashes": "''"}},
			{"", set{"key_preview": "''"}},
			{"", set{"key_preview": "repeat('x', 64)"}},
			{"key", set{"key_preview": "repeat('x', 65)"}},
			{"key", set{"key_preview": "null"}},
		},
		"mode": {
			{"mode", set{"mode": "'once'"}},
			{"mode", set{"mode": "''"}},
			{"", keyless(nil)},
			{"key", keyless(set{"key_hash": "sha256('k')"})},
			{"key", keyless(set{"other_hashes": "sha256('k')"})},
			{"key", keyless(set{"key_preview": "''"})},
			{"scope", keyless(set{"scope": "'x'"})},
			{"window", keyless(set{"window_ms": "1"})},
			{"max_wait", keyless(set{"max_wait_ms": "1"})},
			{"schedule", keyless(set{"schedule": "'reset'"})},
			{"follow_up", keyless(set{"follow_up": "false"})},
			{"max_wait", set{"max_wait_ms": "1"}},
			{"schedule", set{"schedule": "'reset'"}},
			{"follow_up", set{"follow_up": "false"}},
			{"", debounce(set{"schedule": "'preserve'"})},
			{"schedule", debounce(set{"schedule": "'later'"})},
			{"schedule", debounce(set{"schedule": "null"})},
			{"follow_up", debounce(set{"follow_up": "null"})},
		},
		"request digest": {
			{"request_digest", set{"request_digest": "null"}},
			{"request_digest", set{"request_digest": "sha256('request')"}},
		},
	}
}

// §4.1: the functions themselves keep to the bounds, for whoever calls them without the Go package: the field is named,
// nothing is written, and the transaction stays usable.
func TestBoundsOfTheFunctions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	app := db.AsRole(t, "daybook_app")
	for about, all := range boundsSQL() {
		for _, bound := range all {
			name := fmt.Sprintf("%s: %.100v", about, bound.change)
			before := footprintOf(t, db.Pool)
			tx := begin(t, app, pgx.TxOptions{})
			var outcome string
			var reason *string
			if err := tx.QueryRow(ctx, callSQL(bound.change)).Scan(&outcome, &reason); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if bound.field == "" {
				rollback(t, tx)
				tx = begin(t, app, pgx.TxOptions{})
			}
			var outcomes []string
			var reasons []*string
			err := tx.QueryRow(ctx, callManySQL(false, set{"key_hash": "sha256('another')"}, bound.change)).Scan(&outcomes, &reasons)
			if err != nil {
				t.Fatalf("%s, batch: %v", name, err)
			}
			if bound.field == "" {
				rollback(t, tx)
				if outcome != "accepted" {
					t.Errorf("%s: %s %s", name, outcome, deref(reason))
				}
				if diff := cmp.Diff([]string{"accepted", "accepted"}, outcomes); diff != "" {
					t.Errorf("%s, batch: %s", name, diff)
				}
				continue
			}
			commit(t, tx)
			if outcome != "invalid" || reason == nil || *reason != bound.field {
				t.Errorf("%s: %s %v, want invalid %s", name, outcome, deref(reason), bound.field)
			}
			if diff := cmp.Diff([]string{"withdrawn", "invalid"}, outcomes); diff != "" {
				t.Errorf("%s, batch: %s", name, diff)
			}
			if got := deref(reasons[1]); got != bound.field {
				t.Errorf("%s, batch: names %s", name, got)
			}
			if diff := cmp.Diff(before, footprintOf(t, db.Pool)); diff != "" {
				t.Errorf("%s: something is written:\n%s", name, diff)
			}
		}
	}
}

func deref(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// Where nobody sends the request's members along, PostgreSQL renders them, and to the same event.
func TestServerRendersTheSameEvent(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.FreezeClock(t, time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))
	queue := newQueue(t, db.Pool)
	deadline := time.Date(2027, 1, 2, 3, 4, 5, 678_900_000, time.UTC)
	for name, options := range map[string]commands.EnqueueOptions{
		"all fields": {
			Type: "a \"type\"\n", Queue: "q\\u0041é", Payload: 1, Priority: 7, ConcurrencyKey: "c<>&", Tags: []string{"b", "a\u2028"},
			AttemptBudget: 3, RetryPolicy: commands.ExponentialRetry{Initial: time.Second, Max: time.Minute},
			Deadline: deadline, ExecutionTimeout: time.Second,
			Idempotency: &commands.Idempotency{Key: ledger.NewKey("some longer key"), Scope: "s\t", TTL: time.Hour},
		},
		"no key": {Type: "t"},
	} {
		sent := &lastArguments{}
		_, _ = queue.DecideTx(t.Context(), sent, options)
		rendered := sent.arguments[24].(string)
		byServer := query1[string](t, db.Pool,
			`select daybook.request_members($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`,
			sent.arguments[0], sent.arguments[2], sent.arguments[3], sent.arguments[4], sent.arguments[5], sent.arguments[6],
			query1[int](t, db.Pool, `select octet_length($1::text::jsonb::text)`, sent.arguments[1]), sent.arguments[7], sent.arguments[8], sent.arguments[9], sent.arguments[11], sent.arguments[12], sent.arguments[13],
			sent.arguments[14], sent.arguments[15], sent.arguments[17], sent.arguments[18], sent.arguments[22], sent.arguments[23])
		if !query1[bool](t, db.Pool, `select $1::text::jsonb = $2::text::jsonb`, "{"+rendered+"}", "{"+byServer+"}") {
			t.Errorf("%s:\nsent   %s\nserver %s", name, rendered, byServer)
		}
	}
}
