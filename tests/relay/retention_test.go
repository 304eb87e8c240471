package relay_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

const day = 24 * time.Hour

// records returns the positions of every record of parked events.
func records(t *testing.T, db *pgtest.DB) []ledger.Position {
	t.Helper()
	all, err := outbox.ListParked(t.Context(), db.Pool, outbox.ParkedFilter{All: true, Limit: outbox.MaxParkedLimit})
	if err != nil {
		t.Fatal(err)
	}
	at := []ledger.Position{}
	for _, p := range all {
		at = append(at, p.Position)
	}
	return at
}

// The record of a redriven event goes after its retention, and nothing else: not what was discarded or waits, and not what
// another relay has parked. However late the cursor is set back, a discarded event is passed over.
func TestParkedRetention(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b, healed := parkOne(t, db)
	discard(t, db.Pool, 2)
	healed.Store(true)
	if _, err := outbox.Redrive(t.Context(), outbox.RedriveConfig{Pool: db.Pool, Relay: "test", Publisher: b}); err != nil {
		t.Fatal(err)
	}
	appendEvents(t, db, 3, 0)
	if _, err := ledger.Sequence(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `
		insert into daybook.parked (relay, position, event_id, attempts, order_key, reason, redriven_at)
		values
			('other', 4, 4, 1, 'x', 'r', daybook.clock() - interval '1 year'),
			('test', 5, 5, 1, 'x', 'r', null),
			('test', 6, 6, 1, 'y', 'r', daybook.clock() - interval '1 year')`)
	config := outbox.RelayConfig{Pool: db.AsRole(t, "daybook_relay"), Publisher: b, Kinds: []ledger.Kind{ledger.KindJobFailed}}
	// Each relay publishes nothing. It is seen to have passed when a record from long ago is gone.
	pass := func(retention time.Duration, want ...ledger.Position) {
		t.Helper()
		sentinel := `insert into daybook.parked (relay, position, event_id, attempts, order_key, reason, redriven_at) values ('test', 0, 0, 1, 'z', 'r', '2000-01-01')`
		db.Exec(t, sentinel)
		config.ParkedRetention = retention
		r := start(t, config)
		pgtest.WaitFor(t, patience, func() bool {
			var left bool
			if err := db.Pool.QueryRow(t.Context(), `select exists (select from daybook.parked where position = 0)`).Scan(&left); err != nil {
				t.Fatal(err)
			}
			return !left
		}, "a pass of upkeep")
		r.end()
		if diff := cmp.Diff(want, records(t, db)); diff != "" {
			t.Errorf("retention %v: records (-want +got):\n%s", retention, diff)
		}
	}
	pass(0, 4, 1, 2, 3, 5)
	db.AdvanceClock(t, 30*day-time.Hour)
	pass(0, 4, 1, 2, 3, 5)
	db.AdvanceClock(t, 2*time.Hour)
	pass(31*day, 4, 1, 2, 3, 5)
	pass(0, 4, 2, 5)

	db.Exec(t, `update daybook.cursor set position = 0 where name = $1`, outbox.RelayCursorName("test"))
	before := len(b.positions())
	config.Kinds = nil
	start(t, config)
	waitCursor(t, db, "test", 6)
	again := b.positions()[before:]
	slices.Sort(again)
	if diff := cmp.Diff([]ledger.Position{1, 3, 4, 5, 6}, again); diff != "" {
		t.Errorf("published again (-want +got):\n%s", diff)
	}
}

// What somebody holds is passed over, batch after batch.
func TestRetentionKeeps(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	statement, err := os.ReadFile("../../outbox/sql/parked_forget.sql")
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `
		insert into daybook.parked (relay, position, event_id, attempts, order_key, reason, redriven_at)
		select 'test', n, n, 1, 'x', 'r', daybook.clock() - interval '40 days'
		from generate_series(1, 2000) as n`)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(background(t)) }()
	if _, err := tx.Exec(t.Context(), `select from daybook.parked where position = 7 for update`); err != nil {
		t.Fatal(err)
	}
	var removed []int64
	for {
		tag, err := db.AsRole(t, "daybook_relay").Exec(t.Context(), string(statement), "test", (30 * day).Milliseconds())
		if err != nil {
			t.Fatal(err)
		}
		removed = append(removed, tag.RowsAffected())
		if tag.RowsAffected() < 500 {
			break
		}
	}
	if diff := cmp.Diff([]int64{500, 500, 500, 499}, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	var left, first int
	if err := db.Pool.QueryRow(t.Context(), `select count(*), min(position) from daybook.parked`).Scan(&left, &first); err != nil {
		t.Fatal(err)
	}
	if left != 1 || first != 7 {
		t.Errorf("%d records are left from position %d, want the one at 7", left, first)
	}
}

// A pass under way when Run ends may finish: its connection stays in the pool, and none is still being closed when Run returns.
func TestUpkeepFinishesAtTheEnd(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(background(t)) }()
	if _, err := tx.Exec(t.Context(), `lock table daybook.parked`); err != nil {
		t.Fatal(err)
	}
	pool := db.AsRole(t, "daybook_relay")
	r := start(t, outbox.RelayConfig{Pool: pool, Publisher: newBroker(t)})
	db.WaitBlockedBy(t, tx.Conn().PgConn().PID(), 1)
	var upkeep uint32
	err = db.Pool.QueryRow(t.Context(), `
		select a.pid from pg_stat_activity as a
		where a.datname = current_database()
			and $1::int = any (pg_blocking_pids(a.pid))`, tx.Conn().PgConn().PID()).Scan(&upkeep)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.end()
	}()
	// As long as one that gives its statement up would take to return.
	select {
	case <-ended:
		t.Error("Run has not waited for its upkeep")
	case <-time.After(200 * time.Millisecond):
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended
	kept := false
	for _, conn := range pool.AcquireAllIdle(t.Context()) {
		kept = kept || conn.Conn().PgConn().PID() == upkeep
		conn.Release()
	}
	if !kept {
		t.Error("the connection of the upkeep was given up")
	}
}

// A pass that finds nothing reads an index and no table, however many events wait: on a table that was never analysed and on
// a large one.
func TestRetentionPlan(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	statement, err := os.ReadFile("../../outbox/sql/parked_forget.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int{0, 50_000} {
		db.Exec(t, `
			insert into daybook.parked (relay, position, event_id, attempts, order_key, reason)
			select 'test', n, n, 1, sha256(int4send(n)), 'r'
			from generate_series(1, $1::int) as n`, rows)
		if rows > 0 {
			db.Exec(t, `vacuum analyze daybook.parked`)
		}
		conn, err := pgx.Connect(t.Context(), db.URL)
		if err != nil {
			t.Fatal(err)
		}
		plan := explain(t.Context(), t, conn, string(statement))
		_ = conn.Close(background(t))
		if !strings.Contains(plan, "parked_redriven") || !strings.Contains(plan, "parked_pkey") || strings.Contains(plan, "Seq Scan on parked") {
			t.Errorf("%d rows:\n%s", rows, plan)
		}
	}
}

func explain(ctx context.Context, t *testing.T, conn *pgx.Conn, statement string) string {
	t.Helper()
	if _, err := conn.Exec(ctx, `set plan_cache_mode = force_generic_plan`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, `prepare forget as `+statement); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(ctx, `explain execute forget('test', 2592000000)`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
