package commands_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "github.com/lib/pq"              //nolint:depguard // the driver "postgres": its users enqueue in their transactions, too

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// SQLTx takes a transaction of database/sql, whatever the driver: single, batch, conflict, every field.
func TestSQLTx(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.FreezeClock(t, noon)
			url := db.URL
			if driver == "postgres" {
				url = withoutTLS(t, url)
			}
			pool, err := sql.Open(driver, url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = pool.Close() })
			queue := newQueue(t, nil)
			testEveryField(t, db, queue, func(work func(commands.Tx)) {
				tx, err := pool.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback() }()
				work(commands.SQLTx(tx))
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
			})

			// What is rolled back vanishes with the rest; an invalid request leaves the transaction usable.
			before := footprintOf(t, db.Pool)
			tx, err := pool.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = queue.EnqueueTx(ctx, commands.SQLTx(tx), commands.EnqueueOptions{})
			wantInvalid(t, "no type", err, "type", 0)
			late := order("late", "1")
			late.Deadline = noon
			_, err = queue.EnqueueTx(ctx, commands.SQLTx(tx), late)
			wantInvalid(t, "a passed deadline", err, "deadline", 0)
			wantOutcome(t, decideTx(t, queue, commands.SQLTx(tx), order("gone", "1")), commands.OutcomeAccepted)
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			wantFootprint(t, db.Pool, before)

			// A failed statement is a CallError, as with pgx.
			_, err = queue.EnqueueTx(ctx, commands.SQLTx(tx), order("k", "1"))
			var call *commands.CallError
			if !errors.As(err, &call) || !errors.Is(err, sql.ErrTxDone) || call.Unknown {
				t.Errorf("in a transaction that is done: %v", err)
			}
		})
	}
}

// A lost race is recognised with either driver: its errors are not pgx's.
func TestSQLTxRetryable(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			url := db.URL
			if driver == "postgres" {
				url = withoutTLS(t, url)
			}
			pool, err := sql.Open(driver, url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = pool.Close() })
			queue := newQueue(t, db.Pool)
			tx, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(ctx, "select count(*) from daybook.binding"); err != nil {
				t.Fatal(err)
			}
			wantOutcome(t, decide(t, queue, order("k", "1")), commands.OutcomeAccepted)
			_, err = queue.EnqueueTx(ctx, commands.SQLTx(tx), order("k", "1"))
			if !commands.Retryable(err) {
				t.Errorf("not retryable: %v", err)
			}
			_ = tx.Rollback()
			wantFootprint(t, db.Pool, footprint{Jobs: 1, Bindings: 1, Events: []ledger.Kind{ledger.KindAccepted}})
		})
	}
}
