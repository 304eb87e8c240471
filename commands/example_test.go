package commands_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// The order's row and the accepted job commit together. The same request again, from a double click or after a lost
// answer, gets the first one's job and writes nothing.
func Example() {
	ctx := context.Background()
	db, done := openShop(ctx)
	defer done()

	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool})
	if err != nil {
		fmt.Println(err)
		return
	}
	placeOrder := func(id string, cents int) (result commands.EnqueueResult, err error) {
		err = pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `insert into orders (id, cents) values ($1, $2) on conflict do nothing`, id, cents)
			if err != nil {
				return err
			}
			result, err = queue.EnqueueWithResultTx(ctx, tx, commands.EnqueueOptions{
				Type:        "order.confirm",
				Payload:     map[string]any{"order": id, "cents": cents},
				Idempotency: &commands.Idempotency{Key: ledger.NewKey("order " + id)},
			})
			return err
		})
		return result, err
	}

	first, err := placeOrder("A-1001", 4999)
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := placeOrder("A-1001", 4999)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(first.Outcome)
	fmt.Println(again.Outcome, "with the same job:", again.JobID == first.JobID)
	// Output:
	// accepted
	// replayed with the same job: true
}

// The same key with other work is a conflict. It names the fields that differ, and never a value or the key.
func ExampleQueue_Enqueue_conflict() {
	ctx := context.Background()
	db, done := openShop(ctx)
	defer done()
	queue := newQueue(db.Pool)

	pay := func(cents int) error {
		_, err := queue.Enqueue(ctx, commands.EnqueueOptions{
			Type:        "payment.capture",
			Payload:     map[string]any{"cents": cents},
			Idempotency: &commands.Idempotency{Key: ledger.NewKey("payment 5b1e7c04-77"), Scope: "shop"},
		})
		return err
	}
	if err := pay(4999); err != nil {
		fmt.Println(err)
		return
	}
	err := pay(5999)
	var conflict *commands.EnqueueIdempotencyConflictError
	if errors.As(err, &conflict) {
		fmt.Println(conflict.Fields, conflict.State, conflict.Scope, conflict.KeyPreview)
	}
	// Output:
	// [payload] ready shop paymen…
}

// InTx rolls the work back after a conflict, and keeps the conflict in the ledger all the same.
func ExampleQueue_InTx() {
	ctx := context.Background()
	db, done := openShop(ctx)
	defer done()
	queue := newQueue(db.Pool)

	place := func(id string, cents int) error {
		return queue.InTx(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `insert into orders (id, cents) values ($1, $2)`, id, cents); err != nil {
				return err
			}
			_, err := queue.EnqueueTx(ctx, tx, commands.EnqueueOptions{
				Type:        "order.confirm",
				Payload:     map[string]any{"cents": cents},
				Idempotency: &commands.Idempotency{Key: ledger.NewKey("cart 77")},
			})
			return err
		})
	}
	if err := place("A-1", 4999); err != nil {
		fmt.Println(err)
		return
	}
	var conflict *commands.EnqueueIdempotencyConflictError
	fmt.Println("conflict:", errors.As(place("A-2", 5999), &conflict))

	var orders, recorded int
	err := db.Pool.QueryRow(ctx, `
		select (select count(*) from orders),
			(select count(*) from daybook.event where kind = $1)`, ledger.KindConflictRejected).Scan(&orders, &recorded)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("orders:", orders, "conflicts in the ledger:", recorded)
	// Output:
	// conflict: true
	// orders: 1 conflicts in the ledger: 1
}

func newQueue(pool *pgxpool.Pool) *commands.Queue {
	queue, err := commands.NewQueue(commands.Config{Pool: pool})
	if err != nil {
		log.Fatal(err)
	}
	return queue
}

// openShop returns a migrated database with the application's own table in it, and what drops it.
func openShop(ctx context.Context) (db *pgtest.DB, done func()) {
	db, err := pgtest.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Pool.Exec(ctx, `create table orders (id text primary key, cents bigint not null)`); err != nil {
		log.Fatal(err)
	}
	return db, func() { _ = db.Close(ctx) }
}
