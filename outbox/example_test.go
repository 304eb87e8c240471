package outbox_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// A consumer group hears of each accepted job, in order and at least once. The order placed twice was accepted once.
func Example() {
	ctx := context.Background()
	db := openLedger(ctx)
	defer db.Close(ctx)

	subscriber, err := outbox.NewSubscriber(outbox.Config{Pool: db.Pool, ConsumerGroup: "invoices"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscriber.Close()
	messages, err := subscriber.Subscribe(ctx, outbox.Topic(ledger.KindAccepted))
	if err != nil {
		fmt.Println(err)
		return
	}

	placeOrders(ctx, db.Pool, "order-2026-0001", "order-2026-0001", "order-2026-0002")

	for range 2 {
		msg := <-messages
		event, err := outbox.AttributesOf(msg)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(event.Position, event.Kind, event.KeyDigest)
		msg.Ack()
	}
	// Output:
	// 1 enqueue.accepted be9eb2f4389d
	// 2 enqueue.accepted 95fe4f5011d9
}

// openLedger returns a fresh database with Daybook's migrations in it.
func openLedger(ctx context.Context) *pgtest.DB {
	db, err := pgtest.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	return db
}

func placeOrders(ctx context.Context, pool *pgxpool.Pool, orders ...string) {
	queue, err := commands.NewQueue(commands.Config{Pool: pool})
	if err != nil {
		log.Fatal(err)
	}
	for _, order := range orders {
		_, err := queue.Enqueue(ctx, commands.EnqueueOptions{
			Type:        "invoice.create",
			Payload:     map[string]string{"order": order},
			Idempotency: &commands.Idempotency{Key: ledger.NewKey(order)},
		})
		if err != nil {
			log.Fatal(err)
		}
	}
}
