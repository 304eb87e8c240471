package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// patience bounds a failure; nothing waits for it to pass.
const patience = time.Minute

func newQueue(t testing.TB, db *pgtest.DB) *commands.Queue {
	t.Helper()
	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool})
	if err != nil {
		t.Fatal(err)
	}
	return queue
}

// enqueue makes n events enqueue.accepted, one by one.
func enqueue(t testing.TB, db *pgtest.DB, n int) {
	t.Helper()
	queue := newQueue(t, db)
	for range n {
		if _, err := queue.Enqueue(t.Context(), commands.EnqueueOptions{Type: "test"}); err != nil {
			t.Fatal(err)
		}
	}
}

// appendEvents appends n events of a kind as fast as PostgreSQL can, past the decision.
func appendEvents(t testing.TB, db *pgtest.DB, kind ledger.Kind, n int) {
	t.Helper()
	db.Exec(t, `
		insert into daybook.event (recorded_at, job_id, kind, body)
		select daybook.clock(), gen_random_uuid(), $1, json_build_object('v', 1, 'n', n)
		from generate_series(1, $2::int) as n`, string(kind), n)
}

func newSubscriber(t testing.TB, config outbox.Config) *outbox.Subscriber {
	t.Helper()
	if config.ConsumerGroup == "" {
		config.ConsumerGroup = "test"
	}
	if config.ResendInterval == 0 {
		config.ResendInterval = time.Millisecond
	}
	if config.RetryInterval == 0 {
		config.RetryInterval = 10 * time.Millisecond
	}
	if config.PollInterval == 0 {
		config.PollInterval = 10 * time.Millisecond
	}
	subscriber, err := outbox.NewSubscriber(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSubscriber(t, subscriber) })
	return subscriber
}

func closeSubscriber(t testing.TB, subscriber *outbox.Subscriber) {
	t.Helper()
	if err := subscriber.Close(); err != nil {
		t.Error(err)
	}
}

func subscribe(t testing.TB, subscriber *outbox.Subscriber, topic string) <-chan *message.Message {
	t.Helper()
	messages, err := subscriber.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

func receive(t testing.TB, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, ok := <-messages:
		if !ok {
			t.Fatal("the subscription has ended")
		}
		return msg
	case <-time.After(patience):
		t.Fatal("no message")
	}
	return nil
}

// positions receives and acks n messages, and returns their positions.
func positions(t testing.TB, messages <-chan *message.Message, n int) []ledger.Position {
	t.Helper()
	got := make([]ledger.Position, 0, n)
	for range n {
		msg := receive(t, messages)
		got = append(got, position(t, msg))
		msg.Ack()
	}
	return got
}

func position(t testing.TB, msg *message.Message) ledger.Position {
	t.Helper()
	attributes, err := outbox.AttributesOf(msg)
	if err != nil {
		t.Fatal(err)
	}
	return attributes.Position
}

func series(from, through ledger.Position) []ledger.Position {
	var all []ledger.Position
	for p := from; p <= through; p++ {
		all = append(all, p)
	}
	return all
}

func sorted(all []ledger.Position) []ledger.Position {
	slices.Sort(all)
	return all
}

// cursorAt returns where a cursor is, -1 where there is none.
func cursorAt(t testing.TB, db *pgtest.DB, name string) ledger.Position {
	t.Helper()
	var at ledger.Position
	err := db.Pool.QueryRow(background(t), `
		select coalesce(max(c.position), -1) from daybook.cursor as c where c.name = $1`, name).Scan(&at)
	if err != nil {
		t.Fatalf("cursor %s: %v", name, err)
	}
	return at
}

// waitCursor waits until a cursor is at a position.
func waitCursor(t testing.TB, db *pgtest.DB, name string, want ledger.Position) {
	t.Helper()
	pgtest.WaitFor(t, patience, func() bool { return cursorAt(t, db, name) == want }, "cursor %s at %d", name, want)
}

func keyOf(i int) ledger.Key { return ledger.NewKey(fmt.Sprintf("a-key-that-is-long-enough-%d", i)) }

func background(t testing.TB) context.Context { return context.WithoutCancel(t.Context()) }

func benchRequest() commands.EnqueueOptions { return commands.EnqueueOptions{Type: "bench"} }
