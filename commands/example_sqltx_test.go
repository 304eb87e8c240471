package commands_test

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// Users of database/sql, and of what is built on it, enqueue in their own transactions too.
func ExampleSQLTx() {
	ctx := context.Background()
	shop, done := openShop(ctx)
	defer done()
	db, err := sql.Open("pgx", shop.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	queue, err := commands.NewQueue(commands.Config{}) // needs no pool for its Tx calls
	if err != nil {
		fmt.Println(err)
		return
	}

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	if _, err := tx.ExecContext(ctx, `insert into orders (id, cents) values ($1, $2)`, "A-1001", 4999); err != nil {
		fmt.Println(err)
		return
	}
	result, err := queue.EnqueueWithResultTx(ctx, commands.SQLTx(tx), commands.EnqueueOptions{
		Type:        "order.confirm",
		Payload:     map[string]any{"order": "A-1001"},
		Idempotency: &commands.Idempotency{Key: ledger.NewKey("order A-1001")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := tx.Commit(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Outcome)
	// Output:
	// accepted
}
