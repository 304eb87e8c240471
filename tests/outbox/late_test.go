package outbox_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// late is a ledger in which a transaction has drawn event id 1 and is open, and a reader that polls as often as it can.
type late struct {
	db       *pgtest.DB
	queue    *commands.Queue
	open     pgx.Tx
	messages <-chan *message.Message
}

func newLate(t *testing.T) *late {
	t.Helper()
	db := pgtest.New(t)
	l := &late{db: db, queue: newQueue(t, db)}
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(background(t)) })
	if _, err := l.queue.DecideTx(t.Context(), tx, work("first", 1)); err != nil {
		t.Fatal(err)
	}
	l.open = tx
	l.messages = subscribe(t, newSubscriber(t, outbox.Config{
		Pool: db.Pool, PollInterval: time.Millisecond, ProbeInterval: -1, PollOnly: true,
	}), outbox.TopicAll)
	return l
}

// work is a request of that type, under the key of that number.
func work(typ string, key int) commands.EnqueueOptions {
	return commands.EnqueueOptions{Type: typ, Idempotency: &commands.Idempotency{Key: keyOf(key)}}
}

// event is what a message says of an event.
type event struct {
	Position ledger.Position
	ID       int64
	Kind     ledger.Kind
	Type     string
}

func (l *late) next(t *testing.T) event {
	t.Helper()
	msg := receive(t, l.messages)
	attributes, err := outbox.AttributesOf(msg)
	if err != nil {
		t.Fatal(err)
	}
	got := event{Position: attributes.Position, Kind: attributes.Kind, Type: typeOf(t, msg)}
	err = l.db.Pool.QueryRow(t.Context(), `select event_id from daybook.ledger_order where position = $1`, int64(got.Position)).Scan(&got.ID)
	if err != nil {
		t.Fatal(err)
	}
	msg.Ack()
	return got
}

// A transaction that drew its event id first and commits last delays its own event, which is not lost, and no other.
func TestEventOfALateCommitIsNotLost(t *testing.T) {
	t.Parallel()
	l := newLate(t)
	if _, err := l.queue.Decide(t.Context(), work("second", 2)); err != nil {
		t.Fatal(err)
	}
	got := []event{l.next(t)}
	// The reader has passed the open transaction's id by now, and goes on polling.
	waitCursor(t, l.db, "test/"+outbox.TopicAll, 1)
	if err := l.open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got = append(got, l.next(t))
	want := []event{
		{Position: 1, ID: 2, Kind: ledger.KindAccepted, Type: "second"},
		{Position: 2, ID: 1, Kind: ledger.KindAccepted, Type: "first"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Two transactions of one key: the second waits for the first, so their events come in the order in which they commit.
func TestEventsOfOneKeyComeInTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	l := newLate(t)
	decided := make(chan error, 1)
	go func() {
		_, err := l.queue.Decide(t.Context(), work("second", 1))
		decided <- err
	}()
	pgtest.WaitFor(t, patience, func() bool {
		var waiting int
		err := l.db.Pool.QueryRow(t.Context(), `
			select count(*)
			from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting == 1
	}, "the second waits for the first")
	if err := l.open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-decided; err != nil {
		t.Fatal(err)
	}
	got := []event{l.next(t), l.next(t)}
	want := []event{
		{Position: 1, ID: 1, Kind: ledger.KindAccepted, Type: "first"},
		{Position: 2, ID: 2, Kind: ledger.KindConflictRejected, Type: "second"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
