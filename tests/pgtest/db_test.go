package pgtest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/tests/pgtest"
)

// query1 returns the one value of a query.
func query1[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func TestNewIsMigratedAndAlone(t *testing.T) {
	t.Parallel()
	a, b := pgtest.New(t), pgtest.New(t, pgtest.MaxConns(3))
	if a.Name == b.Name {
		t.Fatalf("both databases are %s", a.Name)
	}
	a.Exec(t, "create table only_here ()")
	for db, want := range map[*pgtest.DB]bool{a: true, b: false} {
		if !query1[bool](t, db.Pool, "select to_regclass('daybook.event') is not null") {
			t.Errorf("%s has no daybook.event", db.Name)
		}
		if got := query1[bool](t, db.Pool, "select to_regclass('only_here') is not null"); got != want {
			t.Errorf("%s has the table: %v", db.Name, got)
		}
		if got := query1[string](t, db.Pool, "select current_database()"); got != db.Name {
			t.Errorf("the pool of %s is connected to %s", db.Name, got)
		}
		if got := query1[string](t, db.Pool, "select current_setting('application_name')"); got != t.Name() {
			t.Errorf("application_name is %q, want the test's name", got)
		}
	}
	if got := b.Pool.Config().MaxConns; got != 3 {
		t.Errorf("MaxConns(3) gave %d", got)
	}
	if got := query1[string](t, a.Pool, "show server_encoding"); got != "UTF8" {
		t.Errorf("encoding %s", got)
	}
}

func TestEmptyHasNoSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Empty(), pgtest.PoolConfig(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["search_path"] = "elsewhere"
	}))
	if query1[bool](t, db.Pool, "select exists (select from pg_namespace where nspname = 'daybook')") {
		t.Error("an empty database has the schema daybook")
	}
	if got := query1[string](t, db.Pool, "show search_path"); got != "elsewhere" {
		t.Errorf("search_path %s", got)
	}
}

func TestDatabaseIsDroppedWithItsTest(t *testing.T) {
	t.Parallel()
	outer := pgtest.New(t, pgtest.Empty())
	var name string
	var session *pgx.Conn
	t.Run("inner", func(t *testing.T) {
		inner := pgtest.New(t, pgtest.Empty())
		name = inner.Name
		var err error
		if session, err = pgx.Connect(t.Context(), inner.URL); err != nil {
			t.Fatal(err)
		}
	})
	// A session that outlives the test, of a program it started for example, must not keep the
	// database.
	defer session.Close(t.Context())
	if query1[bool](t, outer.Pool, "select exists (select from pg_database where datname = $1)", name) {
		t.Errorf("%s still exists", name)
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	// PL/pgSQL keeps the plan of an expression with the function inlined, in each session that
	// called it. The clock must move under all of them.
	db.Exec(t, `create function planned() returns timestamptz language plpgsql as
		$$ declare t timestamptz; begin t := daybook.clock(); return t; end $$`)
	var sessions []*pgxpool.Conn
	for range 2 {
		conn, err := db.Pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		sessions = append(sessions, conn)
	}
	check := func(when string, low, high time.Time) {
		t.Helper()
		for _, conn := range sessions {
			for range 7 { // more than the five calls after which a plan becomes generic
				var at time.Time
				if err := conn.QueryRow(t.Context(), "select planned()").Scan(&at); err != nil {
					t.Fatal(err)
				}
				if at.Before(low) || at.After(high) {
					t.Errorf("%s: the clock says %v, want %v to %v", when, at.UTC(), low.UTC(), high.UTC())
				}
			}
		}
		if at := db.Clock(t); at.Before(low) || at.After(high) {
			t.Errorf("%s: Clock returns %v", when, at)
		}
	}
	// The server's clock is this machine's, or within seconds of it.
	now := func(offset time.Duration) (low, high time.Time) {
		return time.Now().Add(offset - 5*time.Second), time.Now().Add(offset + time.Minute)
	}

	low, high := now(0)
	check("as migrated", low, high)
	noon := time.Date(2031, 2, 3, 12, 0, 0, 123456789, time.FixedZone("", 5*3600+45*60))
	micro := noon.Truncate(time.Microsecond)
	db.FreezeClock(t, noon)
	check("frozen", micro, micro)
	db.AdvanceClock(t, 90*time.Minute)
	check("frozen and advanced", micro.Add(90*time.Minute), micro.Add(90*time.Minute))
	db.SetClock(t, noon)
	check("set", micro, noon.Add(time.Minute))
	db.AdvanceClock(t, -48*time.Hour)
	check("set and moved back", micro.Add(-48*time.Hour), noon.Add(time.Minute-48*time.Hour))
	db.ResetClock(t)
	low, high = now(0)
	check("reset", low, high)
	db.AdvanceClock(t, time.Hour)
	low, high = now(time.Hour)
	check("advanced", low, high)

	if owner := query1[string](t, db.Pool, "select pg_get_userbyid(proowner)::text from pg_proc where oid = 'daybook.clock()'::regprocedure"); owner != "daybook_owner" {
		t.Errorf("daybook.clock() now belongs to %s", owner)
	}
}

func TestAsRole(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.AsRole(t, "daybook_app")
	if got := query1[string](t, pool, "select current_user::text"); got != "daybook_app" {
		t.Errorf("the role is %s", got)
	}
	if _, err := pool.Exec(t.Context(), "select from daybook.event"); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("daybook_app reads a table: %v", err)
	}
}

func TestWaitBlocked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, "create table counter (n int); insert into counter values (0)")
	holder, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(t.Context())
	if _, err := holder.Exec(t.Context(), "update counter set n = n + 1"); err != nil {
		t.Fatal(err)
	}
	const waiters = 3
	done := make(chan error, waiters)
	var last uint32
	for range waiters {
		conn, err := db.Pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last = conn.Conn().PgConn().PID()
		go func() {
			defer conn.Release()
			_, err := conn.Exec(t.Context(), "update counter set n = n + 1")
			done <- err
		}()
	}
	db.WaitBlocked(t, last)
	db.WaitBlockedBy(t, holder.Conn().PgConn().PID(), waiters)
	if err := holder.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range waiters {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := query1[int](t, db.Pool, "select n from counter"); n != waiters+1 {
		t.Errorf("counted %d", n)
	}
}
