package projections_test

import (
	"context"
	"fmt"
	"log"
	"testing"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Rebuild an audit projection beside the live one, and verify that it equals the events.
func Example() {
	ctx := context.Background()
	db, err := pgtest.Open(ctx) // a PostgreSQL with Daybook's migrations
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	placeOrders(ctx, db)

	view := projections.ViewKey()
	runner, err := projections.NewRunner(view, projections.RunnerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	position, err := runner.CatchUp(ctx, db.Pool, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("live: at position", position)

	rebuilt, err := projections.Rebuild(ctx, db.Pool, view, projections.RebuildConfig{
		Progress: func(p projections.Progress) { fmt.Printf("rebuilding: %.0f %%\n", p.Percent) },
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("rebuilt: at position", rebuilt.Position, "- old tables in", rebuilt.OldSchema)

	report, err := projections.Verify(ctx, db.Pool, view)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("verified:", report.OK)

	keys, err := projections.Keys(ctx, db.Pool, projections.KeyFilter{Scope: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	for _, key := range keys {
		fmt.Println(key.KeyDigest, key.KeyPreview, "accepted", key.Accepted, "conflicts", key.Conflicts)
	}
	// Output:
	// live: at position 3
	// rebuilding: 100 %
	// rebuilt: at position 3 - old tables in daybook_old
	// verified: true
	// 3a68fe133e1a order… accepted 1 conflicts 0
	// 161935158e6d order… accepted 1 conflicts 1
}

// placeOrders accepts two orders, and rejects the first one's key when it comes again with another amount.
func placeOrders(ctx context.Context, db *pgtest.DB) {
	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool})
	if err != nil {
		log.Fatal(err)
	}
	for _, order := range []struct {
		key    string
		amount int
	}{{"order-2026-0001", 100}, {"order-2026-0001", 250}, {"order-2026-0002", 300}} {
		_, err := queue.Decide(ctx, commands.EnqueueOptions{
			Type:        "order.charge",
			Payload:     map[string]int{"amount": order.amount},
			Idempotency: &commands.Idempotency{Key: ledger.NewKey(order.key), Scope: "orders"},
		})
		if err != nil {
			log.Fatal(err)
		}
	}
}
