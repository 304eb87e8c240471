package projections_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// ask makes one keyed request and returns its answer.
func ask(t *testing.T, queue *commands.Queue, scope, key string, payload int) commands.EnqueueResult {
	t.Helper()
	options := commands.EnqueueOptions{Type: "order.ship", Queue: "orders", Payload: payload}
	if key != "" {
		options.Idempotency = &commands.Idempotency{Key: ledger.NewKey(key), Scope: scope, TTL: time.Hour}
	}
	result, err := queue.Decide(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestReadMethods(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool})
	if err != nil {
		t.Fatal(err)
	}
	db.FreezeClock(t, noon.Add(30*time.Second))
	first := ask(t, queue, "shop", "order-2026-0001", 1)    // 1: accepted
	ask(t, queue, "shop", "order-2026-0001", 1)             // replayed: no event
	conflict := ask(t, queue, "shop", "order-2026-0001", 2) // 2: conflict
	ask(t, queue, "shop", "order-2026-0001", 2)             // the same again: no event
	ask(t, queue, "", "", 1)                                // 3: no key
	db.FreezeClock(t, noon.Add(2*time.Hour))
	second := ask(t, queue, "shop", "order-2026-0001", 2) // 4: expired, 5: accepted
	other := ask(t, queue, "web", "short", 1)             // 6: accepted
	catchUp(t, db, 0)
	mustEqualModel(t, db)

	rates, err := projections.DecisionRates(ctx, db.Pool, projections.RateFilter{})
	if err != nil {
		t.Fatal(err)
	}
	later := noon.Add(2 * time.Hour)
	want := []projections.DecisionRate{
		{Minute: later, Scope: "shop", Queue: "orders", Type: "order.ship", Outcome: "accepted", Decisions: 1},
		{Minute: later, Scope: "web", Queue: "orders", Type: "order.ship", Outcome: "accepted", Decisions: 1},
		{Minute: noon, Scope: "", Queue: "orders", Type: "order.ship", Outcome: "accepted", Decisions: 1},
		{Minute: noon, Scope: "shop", Queue: "orders", Type: "order.ship", Outcome: "accepted", Decisions: 1},
		{Minute: noon, Scope: "shop", Queue: "orders", Type: "order.ship", Outcome: "conflict_rejected", Decisions: 1},
	}
	if diff := cmp.Diff(want, rates); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}
	none := ""
	for _, test := range []struct {
		filter projections.RateFilter
		want   []projections.DecisionRate
	}{
		{projections.RateFilter{Scope: &none}, want[2:3]},
		{projections.RateFilter{Outcome: "conflict_rejected", Queue: "orders", Type: "order.ship"}, want[4:]},
		{projections.RateFilter{From: noon.Add(time.Minute)}, want[:2]},
		{projections.RateFilter{To: later}, want[2:]},
		{projections.RateFilter{From: noon, To: noon.Add(time.Minute), Limit: 1}, want[2:3]},
		{projections.RateFilter{Queue: "elsewhere"}, nil},
	} {
		got, err := projections.DecisionRates(ctx, db.Pool, test.filter)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, append([]projections.DecisionRate(nil), got...)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.filter, diff)
		}
	}

	shopHash, _ := ledger.Keys{}.Hash("shop", ledger.NewKey("order-2026-0001"))
	webHash, _ := ledger.Keys{}.Hash("web", ledger.NewKey("short"))
	shop := projections.KeyView{
		KeyDigest: shopHash.Digest(), KeyPreview: "order…", Scope: "shop", JobID: second.JobID, Mode: "idempotency",
		Accepted: 2, Conflicts: 1, LastOutcome: "accepted", FirstDecisionAt: noon.Add(30 * time.Second), LastDecisionAt: later,
		ExpiresAt: later.Add(time.Hour), FirstPosition: 1, LastPosition: 5,
	}
	web := projections.KeyView{
		KeyDigest: webHash.Digest(), KeyPreview: "…", Scope: "web", JobID: other.JobID, Mode: "idempotency",
		Accepted: 1, LastOutcome: "accepted", FirstDecisionAt: later, LastDecisionAt: later,
		ExpiresAt: later.Add(time.Hour), FirstPosition: 6, LastPosition: 6,
	}
	for _, test := range []struct {
		filter projections.KeyFilter
		want   []projections.KeyView
	}{
		{projections.KeyFilter{}, []projections.KeyView{web, shop}},
		{projections.KeyFilter{Limit: 1}, []projections.KeyView{web}},
		{projections.KeyFilter{Before: 6}, []projections.KeyView{shop}},
		{projections.KeyFilter{Scope: "shop"}, []projections.KeyView{shop}},
		{projections.KeyFilter{KeyDigest: string(shopHash.Digest())}, []projections.KeyView{shop}},
		{projections.KeyFilter{KeyDigest: string(shopHash.Digest()[:3])}, []projections.KeyView{shop}},
		{projections.KeyFilter{KeyDigest: string(shopHash.Digest()[:3]), Scope: "web"}, nil},
	} {
		got, err := projections.Keys(ctx, db.Pool, test.filter)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, append([]projections.KeyView(nil), got...)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.filter, diff)
		}
	}

	expires := noon.Add(time.Hour + 30*time.Second)
	bound := noon.Add(30 * time.Second)
	rejected := projections.Conflict{
		Position: 2, RejectedAt: bound, Scope: "shop", KeyDigest: shopHash.Digest(), KeyPreview: "order…",
		ExistingJobID: first.JobID, ExistingMode: "idempotency", BoundAt: &bound, ExpiresAt: &expires,
		Queue: "orders", Type: "order.ship", Mode: "idempotency", Fields: []string{"payload"},
		RequestDigest: conflict.Conflict.RequestDigest.String(), ExistingRequestDigest: conflict.Conflict.ExistingRequestDigest.String(),
	}
	for _, test := range []struct {
		filter projections.ConflictFilter
		want   []projections.Conflict
	}{
		{projections.ConflictFilter{}, []projections.Conflict{rejected}},
		{projections.ConflictFilter{Newest: true, Scope: "shop", KeyDigest: string(shopHash.Digest()[:4])}, []projections.Conflict{rejected}},
		{projections.ConflictFilter{After: 2}, nil},
		{projections.ConflictFilter{Scope: "web"}, nil},
	} {
		got, err := projections.Conflicts(ctx, db.Pool, test.filter)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, append([]projections.Conflict(nil), got...)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.filter, diff)
		}
	}
}

func TestReadMethodsCheckTheirBounds(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	for _, limit := range []int{-1, projections.MaxLimit + 1} {
		if _, err := projections.DecisionRates(ctx, db.Pool, projections.RateFilter{Limit: limit}); err == nil {
			t.Errorf("rates took the limit %d", limit)
		}
		if _, err := projections.Keys(ctx, db.Pool, projections.KeyFilter{Limit: limit}); err == nil {
			t.Errorf("keys took the limit %d", limit)
		}
		if _, err := projections.Conflicts(ctx, db.Pool, projections.ConflictFilter{Limit: limit}); err == nil {
			t.Errorf("conflicts took the limit %d", limit)
		}
		if _, err := projections.Jobs(ctx, db.Pool, projections.JobFilter{Limit: limit}); err == nil {
			t.Errorf("jobs took the limit %d", limit)
		}
	}
	for _, digest := range []string{"xyz", "AB", "0123456789abc", "ab%"} {
		if _, err := projections.Keys(ctx, db.Pool, projections.KeyFilter{KeyDigest: digest}); err == nil {
			t.Errorf("keys took the digest %q", digest)
		}
		if _, err := projections.Conflicts(ctx, db.Pool, projections.ConflictFilter{KeyDigest: digest}); err == nil {
			t.Errorf("conflicts took the digest %q", digest)
		}
		if _, err := projections.Jobs(ctx, db.Pool, projections.JobFilter{KeyDigest: digest}); err == nil {
			t.Errorf("jobs took the digest %q", digest)
		}
	}
	for _, state := range []string{"waiting", "Ready", "done"} {
		if _, err := projections.Jobs(ctx, db.Pool, projections.JobFilter{State: state}); err == nil {
			t.Errorf("jobs took the state %q", state)
		}
	}
}

// explained is a Querier that answers with the plan of the query: the one for any value, which a session comes to
// that asks often.
type explained struct {
	conn *pgx.Conn
	text string
}

func (e *explained) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	_, err := e.conn.Exec(ctx, `set plan_cache_mode = force_generic_plan; deallocate all; prepare asked as `+sql)
	if err != nil {
		return nil, err
	}
	nulls := strings.TrimSuffix(strings.Repeat("null, ", len(args)), ", ")
	rows, err := e.conn.Query(ctx, `explain (costs off) execute asked (`+nulls+`)`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	e.text = strings.Join(lines, "\n")
	return nil, errors.Join(errExplained, err)
}

var errExplained = errors.New("explained, not asked")

func TestPlansOnLargeTables(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, `
		insert into daybook.view_key (key_hash, accepted, replaced, non_replaceable, conflicts, first_position, last_position,
			scope, key_preview)
		select sha256(i::text::bytea), 1, 0, 0, 0, i, i, 'scope-' || i % 20, '…' from generate_series(1, 50000) as i;
		insert into daybook.view_conflict (position, rejected_at, existing_job_id, key_digest, scope, key_preview, queue, type,
			mode, existing_mode, fields, request_digest, existing_request_digest)
		select i, now(), gen_random_uuid(), left(encode(sha256(i::text::bytea), 'hex'), 12), 'scope-' || i % 20, '…', 'q', 't',
			'idempotency', 'idempotency', '{payload}', '01', '02' from generate_series(1, 50000) as i;
		insert into daybook.view_decision_rate (minute, decisions, first_position, scope, queue, type, outcome)
		select timestamptz '2026-01-01' + i / 20 * interval '1 minute', 1, i, 'scope-' || i % 20, 'q', 't', 'accepted'
		from generate_series(1, 50000) as i;
		insert into daybook.view_job (job_id, accepted_at, next_run_at, first_position, last_position, attempt, attempt_budget, state,
			queue, type, key_digest)
		select gen_random_uuid(), now(), case when i % 10 = 0 then now() end, i, i, 0, 25,
			(array['waiting', 'active', 'succeeded', 'failed', 'succeeded'])[1 + i % 5], 'queue-' || i % 20, 't',
			case when i % 3 > 0 then left(encode(sha256(i::text::bytea), 'hex'), 12) end
		from generate_series(1, 50000) as i;
		analyze daybook.view_key, daybook.view_conflict, daybook.view_decision_rate, daybook.view_job`)
	operator := asMember(t, db, "daybook_operator")
	conn, err := operator.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, test := range []struct {
		name, index string
		call        func(ledger.Querier) error
	}{
		{"rates", "view_decision_rate_pkey", func(q ledger.Querier) error {
			_, err := projections.DecisionRates(t.Context(), q, projections.RateFilter{From: noon})
			return err
		}},
		{"keys by digest", "view_key_pkey", func(q ledger.Querier) error {
			_, err := projections.Keys(t.Context(), q, projections.KeyFilter{KeyDigest: "abc"})
			return err
		}},
		{"keys by scope", "view_key_scope", func(q ledger.Querier) error {
			_, err := projections.Keys(t.Context(), q, projections.KeyFilter{Scope: "scope-7"})
			return err
		}},
		{"keys", "view_key_first_position", func(q ledger.Querier) error {
			_, err := projections.Keys(t.Context(), q, projections.KeyFilter{})
			return err
		}},
		{"conflicts", "view_conflict_pkey", func(q ledger.Querier) error {
			_, err := projections.Conflicts(t.Context(), q, projections.ConflictFilter{After: 25000})
			return err
		}},
		{"newest conflicts", "view_conflict_pkey", func(q ledger.Querier) error {
			_, err := projections.Conflicts(t.Context(), q, projections.ConflictFilter{Newest: true})
			return err
		}},
		{"conflicts of a key", "view_conflict_key", func(q ledger.Querier) error {
			_, err := projections.Conflicts(t.Context(), q, projections.ConflictFilter{KeyDigest: "abc"})
			return err
		}},
		{"conflicts of a scope", "view_conflict_scope", func(q ledger.Querier) error {
			_, err := projections.Conflicts(t.Context(), q, projections.ConflictFilter{Scope: "scope-7"})
			return err
		}},
		{"newest conflicts of a scope", "view_conflict_scope", func(q ledger.Querier) error {
			_, err := projections.Conflicts(t.Context(), q, projections.ConflictFilter{Newest: true, Scope: "scope-7"})
			return err
		}},
		{"a job", "view_job_pkey", func(q ledger.Querier) error {
			_, err := projections.Jobs(t.Context(), q, projections.JobFilter{JobID: uuid.New()})
			return err
		}},
		{"newest jobs", "view_job_first_position", func(q ledger.Querier) error {
			_, err := projections.Jobs(t.Context(), q, projections.JobFilter{})
			return err
		}},
		{"jobs of a queue", "view_job_queue", func(q ledger.Querier) error {
			_, err := projections.Jobs(t.Context(), q, projections.JobFilter{Queue: "queue-7", Before: 500})
			return err
		}},
		{"jobs in a state", "view_job_state", func(q ledger.Querier) error {
			_, err := projections.Jobs(t.Context(), q, projections.JobFilter{State: "failed", Queue: "queue-7"})
			return err
		}},
		{"jobs of a key", "view_job_key", func(q ledger.Querier) error {
			_, err := projections.Jobs(t.Context(), q, projections.JobFilter{KeyDigest: "abc"})
			return err
		}},
	} {
		plan := &explained{conn: conn.Conn()}
		if err := test.call(plan); !errors.Is(err, errExplained) {
			t.Fatal(err)
		}
		if !strings.Contains(plan.text, test.index) || strings.Contains(plan.text, "Seq Scan") {
			t.Errorf("%s: not by index %s:\n%s", test.name, test.index, plan.text)
		}
	}
}
