// Package verify_test damages ledgers, bindings, jobs and lags in every way that verify and status know, and keeps them
// busy in every way that must not look like damage.
//
// DAYBOOK_ROUNDS says how many rounds the longer tests run; without it they run a few.
package verify_test

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience bounds a failure; nothing waits for it to pass.
const patience = 2 * time.Minute

// rounds is how many rounds a test runs: fewest, unless the environment wants more.
func rounds(t testing.TB, fewest int) int {
	t.Helper()
	text := os.Getenv("DAYBOOK_ROUNDS")
	if text == "" {
		return fewest
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("DAYBOOK_ROUNDS is %q, want a number", text)
	}
	return n
}

func newQueue(t testing.TB, pool *pgxpool.Pool, keys ledger.Keys) *commands.Queue {
	t.Helper()
	queue, err := commands.NewQueue(commands.Config{Pool: pool, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return queue
}

// one returns the single value that a query answers.
func one[T any](t testing.TB, db ledger.Querier, sql string, args ...any) T {
	t.Helper()
	rows, err := db.Query(context.WithoutCancel(t.Context()), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func sequence(t testing.TB, db ledger.Querier) {
	t.Helper()
	if _, err := ledger.Sequence(t.Context(), db); err != nil {
		t.Fatal(err)
	}
}

// damage changes what cannot be changed: as a superuser, past the triggers, who also takes away what holds.
func damage(t testing.TB, db *pgtest.DB, sql string, args ...any) {
	t.Helper()
	db.Exec(t, `alter table daybook.event disable trigger all`)
	db.Exec(t, `alter table daybook.ledger_order disable trigger all`)
	db.Exec(t, sql, args...)
}

func verifyLedger(t testing.TB, db ledger.Querier) ledger.Report {
	t.Helper()
	report, err := ledger.Verify(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func verifyState(t testing.TB, db ledger.Querier) commands.VerifyReport {
	t.Helper()
	report, err := commands.Verify(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// wantSound checks that neither finds anything.
func wantSound(t testing.TB, db ledger.Querier) {
	t.Helper()
	if report := verifyLedger(t, db); !report.OK {
		t.Errorf("the ledger: %+v", report)
	}
	if report := verifyState(t, db); !report.OK {
		t.Errorf("bindings and jobs: %+v", report)
	}
}
