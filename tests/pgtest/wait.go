package pgtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// WaitFor polls until the condition holds, and fails the test, with the message, when it does not
// in time. The timeout only bounds a failure, so be generous. It must be called from the goroutine
// of the test.
func WaitFor(t testing.TB, timeout time.Duration, condition func() bool, message string, args ...any) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if condition() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", timeout, fmt.Sprintf(message, args...))
		}
		time.Sleep(wait)
	}
}

// WaitBlocked waits until a backend waits for a lock.
func (db *DB) WaitBlocked(t testing.TB, pid uint32) {
	t.Helper()
	db.waitQuery(t, fmt.Sprintf("backend %d waits for a lock", pid),
		"select cardinality(pg_blocking_pids($1::int)) > 0", pid)
}

// WaitBlockedBy waits until at least so many backends wait behind the given one, which with the pid
// of a transaction's own connection means: wait for this transaction to end. Whoever queues behind
// another waiter counts: of those who want one row only the first waits for its holder.
func (db *DB) WaitBlockedBy(t testing.TB, pid uint32, backends int) {
	t.Helper()
	db.waitQuery(t, fmt.Sprintf("%d backends wait for backend %d", backends, pid), `
		with recursive waits as (
			select pid, unnest(pg_blocking_pids(pid)) as blocker
			from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
		), behind as (
			select pid from waits where blocker = $1::int
			union
			select waits.pid from waits join behind on waits.blocker = behind.pid
		)
		select count(*) >= $2::int from behind`, pid, backends)
}

// waitQuery waits until a query answers true.
func (db *DB) waitQuery(t testing.TB, message, sql string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := db.ask(ctx, func(conn *pgx.Conn) error {
		var failed error
		WaitFor(t, 30*time.Second, func() bool {
			var answer bool
			failed = conn.QueryRow(ctx, sql, args...).Scan(&answer)
			return failed != nil || answer
		}, "%s", message)
		return failed
	})
	if err != nil {
		t.Fatalf("%s: %v", message, err)
	}
}
