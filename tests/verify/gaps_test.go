package verify_test

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// A transaction that has enqueued stays open, as long as the test lasts, while ten thousand enqueues behind it are rolled back and
// others commit among them. All but its own event flows, to readers as well; what the sequencer remembers stays small; status
// says who it is. When it commits, its event comes, last.
func TestLongTransactionDelaysItselfOnly(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool, ledger.Keys{})
	long, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = long.Rollback(t.Context()) }()
	longJob, err := queue.EnqueueTx(t.Context(), long, commands.EnqueueOptions{Type: "long"})
	if err != nil {
		t.Fatal(err)
	}
	const rolledBack, perTransaction = 10_000, 50
	batch := make([]commands.EnqueueOptions, perTransaction)
	for i := range batch {
		batch[i].Type = "rolled back"
	}
	var read ledger.Position
	var ranges int64
	for i := range rolledBack / perTransaction {
		tx, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := queue.EnqueueManyTx(t.Context(), tx, batch); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		job, err := queue.Enqueue(t.Context(), commands.EnqueueOptions{Type: "committed"})
		if err != nil {
			t.Fatal(err)
		}
		sequence(t, db.Pool)
		events, through, err := ledger.Read(t.Context(), db.Pool, read, 100)
		if err != nil || len(events) != 1 || events[0].JobID != job {
			t.Fatalf("after %d commits: %d events, %v", i, len(events), err)
		}
		read = through
		ranges = max(ranges, one[int64](t, db.Pool, `select count(*) from daybook.sequencer_gap as g cross join lateral unnest(g.ids)`))
	}
	status, err := ledger.ReadStatus(t.Context(), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	if status.Unsequenced.Events != 0 || status.Gaps.Count == 0 || status.Gaps.Holder == nil {
		t.Errorf("status: %+v", status)
	} else if h := status.Gaps.Holder; h.PID != int32(long.Conn().PgConn().PID()) || h.Age <= 0 || h.QueryStart.IsZero() {
		t.Errorf("the gaps are said to be held by %+v", h)
	}
	bytes := one[int64](t, db.Pool, `select sum(pg_column_size(g))::bigint from daybook.sequencer_gap as g`)
	t.Logf("at most %d ranges, in the end %d bytes", ranges, bytes)
	if ranges > 400 || bytes > 64<<10 {
		t.Errorf("the sequencer keeps %d ranges, %d bytes", ranges, bytes)
	}
	if report := verifyLedger(t, db.Pool); !report.OK {
		t.Errorf("%+v", report)
	}
	if err := long.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.WaitFor(t, patience, func() bool {
		sequence(t, db.Pool)
		events, _, err := ledger.Read(t.Context(), db.Pool, read, 100)
		return err == nil && len(events) == 1 && events[0].JobID == longJob
	}, "the event of the long transaction is there")
	wantSound(t, db.Pool)
}

// A million ids that were rolled back cost readers and rebuilds no page more than none: two ledgers of the same events, one with
// holes among the ids and one without, are read and rebuilt from as many pages.
func TestRolledBackIDsCostNothing(t *testing.T) {
	t.Parallel()
	const events, batches, holes = 20_000, 20, 1_000_000
	type cost struct{ page, rebuild, verify int64 }
	measure := func(holes int) cost {
		db := pgtest.New(t)
		// What autovacuum reads would be counted, too: an analyze in between is every page of the heap.
		db.Exec(t, `alter table daybook.event set (autovacuum_enabled = false)`)
		db.Exec(t, `alter table daybook.ledger_order set (autovacuum_enabled = false)`)
		for range batches {
			db.Exec(t, `
				insert into daybook.event (recorded_at, job_id, kind, body)
				select '2026-01-01Z', '00000000-0000-0000-0000-000000000001', 'enqueue.accepted',
					'{"v":1,"job_id":"00000000-0000-0000-0000-000000000001","type":"t","queue":"q"}'
				from generate_series(1, $1::int)`, events/batches)
			// Drawn and given back: what rolling an insert back leaves of its id.
			if holes > 0 {
				one[int64](t, db.Pool, `select count(nextval('daybook.event_event_id_seq')) from generate_series(1, $1::int)`, holes/batches)
			}
		}
		sequence(t, db.Pool)
		db.Exec(t, `vacuum (analyze) daybook.event, daybook.ledger_order`)
		if got := one[int64](t, db.Pool, `select max(event_id) from daybook.event`); got < int64(events+holes-holes/batches) {
			t.Fatalf("the last id is %d", got)
		}
		var c cost
		for _, after := range []int{0, events / 2, events - 1000} {
			c.page += buffers(t, db, `select * from daybook.read_events($1, 1000, null)`, after)
		}
		c.rebuild = db.Pages(t, func(pool *pgxpool.Pool) {
			for _, p := range projections.Builtin() {
				if _, err := projections.Rebuild(t.Context(), pool, p, projections.RebuildConfig{}); err != nil {
					t.Fatal(err)
				}
			}
		})
		c.verify = db.Pages(t, func(pool *pgxpool.Pool) {
			if report := verifyLedger(t, pool); !report.OK || report.Events != events {
				t.Errorf("%+v", report)
			}
		})
		return c
	}
	without, with := measure(0), measure(holes)
	t.Logf("pages without holes %+v, with a million %+v", without, with)
	for what, n := range map[string][2]int64{
		"reading": {without.page, with.page}, "rebuilding": {without.rebuild, with.rebuild}, "verifying": {without.verify, with.verify},
	} {
		// Which page an index is split at depends on the keys: a few per cent.
		if n[0] == 0 || n[1] > n[0]+n[0]/10+20 {
			t.Errorf("%s takes %d pages, without holes %d", what, n[1], n[0])
		}
	}
}

// buffers returns how many pages a statement reads, cached or not.
func buffers(t *testing.T, db *pgtest.DB, sql string, args ...any) int64 {
	t.Helper()
	// Once to fill the session's caches, and every time on the same session.
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	var total int64
	for range 2 {
		text := one[[]byte](t, conn, "explain (analyze, buffers, format json) "+sql, args...)
		var plan []struct {
			Plan struct {
				Hit  int64 `json:"Shared Hit Blocks"`
				Read int64 `json:"Shared Read Blocks"`
			}
		}
		if err := json.Unmarshal(text, &plan); err != nil {
			t.Fatal(err)
		}
		total = plan[0].Plan.Hit + plan[0].Plan.Read
	}
	return total
}
