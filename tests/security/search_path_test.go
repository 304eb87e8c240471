package security_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// Each function that runs with the owner's rights looks names up where its author meant, and in temporary objects last.
func TestDefinersPinTheirSearchPath(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	loose := column(t, db.Pool, `
		select p.oid::regprocedure::text
		from pg_proc as p
		where p.pronamespace = 'daybook'::regnamespace
			and p.prosecdef
			and not coalesce(p.proconfig @> array['search_path=pg_catalog, daybook, pg_temp'], false)`)
	if len(loose) > 0 {
		t.Errorf("SECURITY DEFINER without a pinned search_path that ends in pg_temp: %v", loose)
	}
	foreign := column(t, db.Pool, `
		select p.oid::regprocedure::text
		from pg_proc as p
		where p.pronamespace = 'daybook'::regnamespace and p.proowner <> 'daybook_owner'::regrole`)
	if len(foreign) > 0 {
		t.Errorf("owned by somebody else: %v", foreign)
	}
	definers := column(t, db.Pool, `
		select p.proname from pg_proc as p where p.pronamespace = 'daybook'::regnamespace and p.prosecdef order by 1`)
	if !strings.Contains(strings.Join(definers, " "), "enqueue enqueue_many") {
		t.Errorf("the functions with the owner's rights are %v", definers)
	}
}

// Whatever somebody else than the owner may execute has its names bound: by a pinned path, or when it was made. A
// function inside a view runs with the path of whoever reads the view, and would hand its arguments to their functions.
func TestExecutableFunctionsHaveBoundNames(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	loose := column(t, db.Pool, `
		select p.oid::regprocedure::text
		from pg_proc as p
		where p.pronamespace = 'daybook'::regnamespace
			and p.prosqlbody is null
			and not coalesce(p.proconfig::text like '%search_path=pg_catalog%pg_temp%', false)
			and exists (
				select from unnest(array['daybook_app', 'daybook_relay', 'daybook_operator']) as r (role)
				where has_function_privilege(r.role, p.oid, 'execute')
			)
		order by 1`)
	if len(loose) > 0 {
		t.Errorf("names are looked up in the caller's search_path: %v", loose)
	}
}

// evil gives a login everything that could be mistaken for something of Daybook's or PostgreSQL's. Whatever of it is
// ever called or written to leaves a trace or fails.
func evil(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	s := pgx.Identifier{schema}.Sanitize()
	body := `language plpgsql as $$ begin raise exception 'hijacked'; end $$;`
	var script strings.Builder
	for _, table := range []string{"binding", "event", "job", "rejection", "ledger_order", "sequencer", "sequencer_gap", "meta"} {
		fmt.Fprintf(&script, "create table %s.%s (hijacked text);", s, table)
	}
	for _, function := range []string{
		"clock() returns timestamptz", "clock_timestamp() returns timestamptz", "now() returns timestamptz",
		"gen_random_uuid() returns uuid", "pg_current_xact_id() returns xid8", "octet_length(text) returns integer",
		"octet_length(bytea) returns integer", "encode(bytea, text) returns text", "left(text, integer) returns text",
		"to_char(timestamp, text) returns text", "to_json(text) returns json", "sha256(bytea) returns bytea",
		"key_digest(bytea) returns text", "instant(timestamptz) returns text", "member(text, text) returns text",
		"cardinality(anyarray) returns integer", "unnest(anyarray) returns setof anyelement", "lower(text) returns text",
		"convert_to(text, name) returns bytea", "pg_try_advisory_xact_lock(bigint) returns boolean", "overlay(bytea, bytea, integer, integer) returns bytea",
		"differing_fields(text) returns text[]", "key_ring(bytea, bytea) returns bytea[]", "new_job_id(timestamptz) returns uuid",
	} {
		fmt.Fprintf(&script, "create function %s.%s %s", s, function, body)
	}
	for i, types := range [][2]string{
		{"bytea", "bytea"},
		{"text", "text"},
		{"timestamptz", "timestamptz"},
		{"jsonb", "jsonb"},
		{"uuid", "uuid"},
		{"integer", "integer"},
		{"bigint", "bigint"},
		{"xid8", "xid8"},
	} {
		fmt.Fprintf(&script, "create function %s.op%d(%s, %s) returns boolean %s", s, i, types[0], types[1], body)
		for _, operator := range []string{"=", "<>", "<=", ">", "<", ">="} {
			fmt.Fprintf(&script, "create operator %s.%s (function = %s.op%d, leftarg = %s, rightarg = %s);", s, operator, s, i, types[0], types[1])
		}
	}
	fmt.Fprintf(&script, "create function %s.concatenate(text, text) returns text %s", s, body)
	fmt.Fprintf(&script, "create operator %s.|| (function = %s.concatenate, leftarg = text, rightarg = text);", s, s)
	if _, err := pool.Exec(t.Context(), script.String()); err != nil {
		t.Fatal(err)
	}
}

// hijack puts a login's own objects first, temporary ones included, and shows that they are.
func hijack(t *testing.T, tx pgx.Tx, schema string) {
	t.Helper()
	s := pgx.Identifier{schema}.Sanitize()
	for _, statement := range []string{
		`create temporary table binding (hijacked text)`, `create temporary table event (hijacked text)`,
		`create temporary table job (hijacked text)`, `create temporary table rejection (hijacked text)`,
		`set local search_path = ` + s + `, pg_temp, daybook, pg_catalog`,
	} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, proof := range []string{`select clock_timestamp()`, `select '\x00'::bytea = '\x00'::bytea`, `select left('a', 1)`} {
		nested, err := tx.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nested.Exec(t.Context(), proof); err == nil || !strings.Contains(err.Error(), "hijacked") {
			t.Fatalf("%s: %v: the path is not hostile, so this test shows nothing", proof, err)
		}
		if err := nested.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHostileSearchPathOfAnApplication(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool, name := login(t, db, "daybook_app")
	evil(t, pool, name)
	queue := newQueue(t, commands.Config{Pool: pool})
	keys, err := ledger.NewHMACKeys([]byte("0123456789abcdef"), []byte("fedcba9876543210"))
	if err != nil {
		t.Fatal(err)
	}
	ringed := newQueue(t, commands.Config{Pool: pool, Keys: keys})
	debounced := commands.EnqueueOptions{
		Type: "work", Debounce: &commands.Debounce{Key: ledger.NewKey("debounced"), Window: commands.DefaultTTL},
	}
	var outcomes []commands.EnqueueOutcome
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		hijack(t, tx, name)
		for _, q := range []*commands.Queue{queue, ringed} {
			for _, r := range []commands.EnqueueOptions{
				{Type: "work", Tags: []string{"a", "b"}, RetryPolicy: commands.FixedRetry{}},
				request(ledger.NewKey("single"), 1),
				request(ledger.NewKey("single"), 1), request(ledger.NewKey("single"), 2), debounced, debounced,
			} {
				result, err := q.DecideTx(t.Context(), tx, r)
				if err != nil {
					return fmt.Errorf("%+v: %w", r, err)
				}
				outcomes = append(outcomes, result.Outcome)
			}
			results, err := q.DecideManyTx(t.Context(), tx, []commands.EnqueueOptions{
				request(ledger.NewKey("batch"), 1), request(ledger.NewKey("batch"), 1), request(ledger.NewKey("batch"), 2),
				request(ledger.NewKey("single"), 1),
			})
			if err != nil {
				return err
			}
			for _, result := range results {
				outcomes = append(outcomes, result.Outcome)
			}
		}
		var hijacked int
		err := tx.QueryRow(t.Context(), `
			select (select pg_catalog.count(*) from pg_temp.binding) + (select pg_catalog.count(*) from pg_temp.event)
				+ (select pg_catalog.count(*) from pg_temp.job) + (select pg_catalog.count(*) from pg_temp.rejection)
				+ (select pg_catalog.count(*) from binding)`).Scan(&hijacked)
		if hijacked != 0 {
			t.Errorf("%d rows went into the login's own tables", hijacked)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	half := []commands.EnqueueOutcome{
		"accepted", "accepted", "replayed", "conflict_rejected", "accepted", "replaced",
		"accepted", "replayed", "conflict_rejected", "replayed",
	}
	if diff := cmp.Diff(append(half, half...), outcomes); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if got := column(t, db.Pool, `select count(*)::text from daybook.event`); got[0] != "14" {
		t.Errorf("%s events", got[0])
	}
}

func TestHostileSearchPathOfARelay(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue := newQueue(t, commands.Config{Pool: db.Pool})
	if _, err := queue.Enqueue(t.Context(), request(ledger.NewKey("key"), 1)); err != nil {
		t.Fatal(err)
	}
	pool, name := login(t, db, "daybook_relay")
	evil(t, pool, name)
	// daybook.sequence wants a transaction that has not written, so the path is the session's.
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	s := pgx.Identifier{name}.Sanitize()
	if _, err := conn.Exec(t.Context(), `set search_path = `+s+`, pg_temp, daybook, pg_catalog`); err != nil {
		t.Fatal(err)
	}
	if n, err := ledger.Sequence(t.Context(), conn); err != nil || n != 1 {
		t.Errorf("%d sequenced, %v", n, err)
	}
	if events, _, err := ledger.Read(t.Context(), conn, 0, 10); err != nil || len(events) != 1 {
		t.Errorf("%d events read, %v", len(events), err)
	}
	var swept int
	if err := conn.QueryRow(t.Context(), `select daybook.sweep()`).Scan(&swept); err != nil || swept != 0 {
		t.Errorf("%d swept, %v", swept, err)
	}
}

// An operator sees digests. The functions that a view calls run with the operator's own search_path, and whatever they look
// up there is handed the whole hash.
func TestHostileSearchPathOfAnOperator(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	key := ledger.NewKey("key")
	queue := newQueue(t, commands.Config{Pool: db.Pool})
	if _, err := queue.Enqueue(t.Context(), request(key, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Sequence(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	hash, _ := ledger.Keys{}.Hash(commands.DefaultScope, key)
	pool, name := login(t, db, "daybook_operator")
	s := pgx.Identifier{name}.Sanitize()
	var seen string
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		// It tells what it is given.
		_, err := tx.Exec(t.Context(), `
			create function `+s+`.encode(bytea, text) returns text language plpgsql as
			$$ begin raise warning 'stolen'; return 'stolen ' || pg_catalog.encode($1, $2); end $$;
			create function `+s+`.left(text, integer) returns text language sql as $$ select $1 $$;
			set local search_path = `+s+`, pg_catalog`)
		if err != nil {
			return err
		}
		if err := tx.QueryRow(t.Context(), `select encode('\x00', 'hex')`).Scan(&seen); err != nil || seen != "stolen 00" {
			t.Fatalf("the path is not hostile, so this test shows nothing: %s, %v", seen, err)
		}
		return tx.QueryRow(t.Context(), `select f.key_digest from daybook.feed as f`).Scan(&seen)
	})
	if err != nil || seen != string(hash.Digest()) {
		t.Errorf("the operator sees %q, %v; want the digest %s", seen, err, hash.Digest())
	}
}
