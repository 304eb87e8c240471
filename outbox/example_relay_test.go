package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// A relay moves events to a broker; here to Watermill's channels, elsewhere to the publisher of package jetstream.
func ExampleRelay() {
	ctx := context.Background()
	db, err := pgtest.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}

	broker := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
	relay, err := outbox.NewRelay(outbox.RelayConfig{Pool: db.Pool, Name: "invoices", Publisher: broker})
	if err != nil {
		log.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- relay.Run(running) }()

	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool})
	if err != nil {
		log.Fatal(err)
	}
	_, err = queue.Enqueue(ctx, commands.EnqueueOptions{
		Type:        "invoice.create",
		Idempotency: &commands.Idempotency{Key: ledger.NewKey("order-2026-0001")},
	})
	if err != nil {
		log.Fatal(err)
	}

	messages, err := broker.Subscribe(ctx, outbox.Topic(ledger.KindAccepted))
	if err != nil {
		log.Fatal(err)
	}
	msg := <-messages
	msg.Ack()
	fmt.Println(msg.Metadata[outbox.MetadataSequence], msg.Metadata[outbox.MetadataType], msg.Metadata[outbox.MetadataPartitionKey])

	// Whatever is under way is finished; then the broker may be closed.
	stop()
	if err := errors.Join(<-ended, broker.Close(), db.Close(ctx)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 0000000000000000001 enqueue.accepted be9eb2f4389d
}
