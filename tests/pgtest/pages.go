package pgtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Pages returns how many pages of the ledger's two tables and their indexes work reads, cached or not, in sessions of its own: a
// session reports what it has read when it ends, at the latest. Nobody else may read them meanwhile.
func (db *DB) Pages(t testing.TB, work func(pool *pgxpool.Pool)) int64 {
	t.Helper()
	count := func(sql string, args ...any) (n int64) {
		t.Helper()
		if err := db.Pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	read := func() int64 {
		t.Helper()
		return count(`
			select sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::bigint
			from pg_statio_user_tables
			where schemaname = 'daybook' and relname in ('event', 'ledger_order')`)
	}
	// What this test itself has read before is reported by now, too.
	db.Exec(t, `select pg_stat_force_next_flush()`)
	before := read()

	config := db.Pool.Config()
	name := fmt.Sprint("pages of ", t.Name())
	config.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	work(pool)
	pool.Close()
	WaitFor(t, patience, func() bool {
		return count(`
			select count(*) from pg_stat_activity
			where datname = current_database() and application_name = left($1, 63)`, name) == 0
	}, "the sessions have ended")
	after := int64(0)
	WaitFor(t, 10*time.Second, func() bool { after = read(); return after > before }, "what was read is reported")
	return after - before
}
