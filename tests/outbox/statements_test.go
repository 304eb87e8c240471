package outbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func statements(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../outbox/sql/*.sql")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no statements (%v)", err)
	}
	all := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(path)] = string(text)
	}
	return all
}

func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.AsRole(t, "daybook_relay")
	for name, text := range statements(t) {
		err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
			_, err := conn.Conn().Prepare(t.Context(), name, text)
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A page is an index range and a lookup for each position, whatever is behind: also with a plan made for no particular
// position, which is what a prepared statement ends up with, and with tables never analysed as well as large ones.
func TestPlans(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	explain := func(when string) {
		conn, err := pgx.Connect(t.Context(), db.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(background(t)) }()
		all := statements(t)
		// As the first statement of each page sets it.
		for _, set := range []string{"jit = off", "enable_seqscan = off", "enable_bitmapscan = off", "plan_cache_mode = force_generic_plan"} {
			if _, err := conn.Exec(t.Context(), "set "+set); err != nil {
				t.Fatal(err)
			}
		}
		reads := map[string]string{
			"page.sql":      "(100, 1100)",
			"page_kind.sql": "(100, 1100, 'job.failed')",
			"next.sql":      "(100, 10100, 'job.failed')",
		}
		for name, args := range reads {
			statement := strings.TrimSuffix(name, ".sql")
			if _, err := conn.Exec(t.Context(), "prepare "+statement+" as "+all[name]); err != nil {
				t.Fatal(err)
			}
			rows, err := conn.Query(t.Context(), "explain (costs off) execute "+statement+args, pgx.QueryExecModeSimpleProtocol)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			plan := strings.Join(lines, "\n")
			for _, bad := range []string{"Sort", "Seq Scan", "Hash", "Merge", "Bitmap", "JIT"} {
				if strings.Contains(plan, bad) {
					t.Errorf("%s, %s: %s in the plan\n%s", name, when, bad, plan)
				}
			}
			if strings.Count(plan, "Index Scan using") != 2 {
				t.Errorf("%s, %s: not two index scans\n%s", name, when, plan)
			}
		}
	}
	explain("empty")
	appendEvents(t, db, ledger.KindJobStarted, 60_000)
	var sequenced int
	for sequenced < 60_000 {
		n, err := ledger.Sequence(t.Context(), db.Pool)
		if err != nil {
			t.Fatal(err)
		}
		sequenced += n
	}
	explain("never analysed")
	db.Exec(t, `analyze daybook.event, daybook.ledger_order`)
	explain("analysed")
}
