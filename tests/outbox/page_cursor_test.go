package outbox_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// While a handler works, the cursor comes to where its message is; of one kind alone as well, with the rights of the role.
func TestAckedIsWrittenWhileAHandlerWorks(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{outbox.TopicAll, outbox.Topic(ledger.KindJobFailed)} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			for range 5 {
				appendEvents(t, db, ledger.KindJobStarted, 3)
				appendEvents(t, db, ledger.KindJobFailed, 1)
			}
			messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.AsRole(t, "daybook_relay")}), topic)
			before := ledger.Position(0)
			for range 5 {
				msg := receive(t, messages)
				this := position(t, msg)
				// Where a page ended before it, other kinds are passed too.
				pgtest.WaitFor(t, patience, func() bool {
					at := cursorAt(t, db, "test/"+topic)
					return before <= at && at < this
				}, "the cursor is between %d and %d", before, this)
				before = this
				msg.Ack()
			}
		})
	}
}

// A handler has the last connection of the pool: messages are handed over all the same, and what was acked is written when the
// connection is back.
func TestAckedIsWrittenWhenAConnectionIsFree(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(2))
	enqueue(t, db, 3)
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll)
	msg := receive(t, messages)
	conn, err := db.Pool.Acquire(msg.Context())
	if err != nil {
		t.Fatal(err)
	}
	msg.Ack()
	msg = receive(t, messages)
	var at ledger.Position
	if err := conn.QueryRow(t.Context(), `select position from daybook.cursor`).Scan(&at); err != nil || at != 0 {
		t.Errorf("the cursor is at %d (%v), and there was no connection to move it", at, err)
	}
	conn.Release()
	waitCursor(t, db, "test/"+outbox.TopicAll, 1)
	msg.Ack()
	positions(t, messages, 1)
}

// Somebody holds a lock on the cursor: messages are handed over all the same, and what was acked is written when it is free.
func TestAckedIsWrittenWhenTheCursorIsFree(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, 3)
	var warnings bytes.Buffer
	subscriber := newSubscriber(t, outbox.Config{
		Pool: db.Pool, Logger: slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	messages := subscribe(t, subscriber, outbox.TopicAll)
	msg := receive(t, messages)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `select from daybook.cursor for update`); err != nil {
		t.Fatal(err)
	}
	msg.Ack()
	msg = receive(t, messages)
	tries := db.Pool.Stat().AcquireCount()
	pgtest.WaitFor(t, patience, func() bool { return db.Pool.Stat().AcquireCount() > tries+3 }, "it is tried in vain")
	if at := cursorAt(t, db, "test/"+outbox.TopicAll); at != 0 {
		t.Errorf("the cursor is at %d, although it is locked", at)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitCursor(t, db, "test/"+outbox.TopicAll, 1)
	msg.Ack()
	positions(t, messages, 1)
	closeSubscriber(t, subscriber)
	if warnings.Len() > 0 {
		t.Errorf("a write waited: %s", warnings.String())
	}
}

// The server ends and comes back while a handler works. It could be one that was restored from a backup: until its epoch is
// checked, no cursor is moved there, and the page comes again.
func TestNothingIsWrittenToAServerThatCameBack(t *testing.T) {
	t.Parallel()
	cluster := pgtest.NewCluster(t, nil)
	db := cluster.New(t)
	enqueue(t, db, 3)
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll)
	msg := receive(t, messages)
	if err := cluster.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.WaitFor(t, patience, func() bool { return db.Pool.Ping(t.Context()) == nil }, "the server is back")
	msg.Ack()
	if diff := cmp.Diff([]ledger.Position{2, 3, 1, 2, 3}, positions(t, messages, 5)); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
	waitCursor(t, db, "test/"+outbox.TopicAll, 3)
}
