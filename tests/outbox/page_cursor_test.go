package outbox_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

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

// A handler takes 20 ms, and what was acked before it was written a moment ago: its own ack is written before the next message is
// handed over.
func TestAckedAfterSlowHandlerIsWrittenAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.PoolConfig(func(config *pgxpool.Config) { config.MinConns = 5 }))
	enqueue(t, db, 3)
	pgtest.WaitFor(t, patience, func() bool { return db.Pool.Stat().IdleConns() >= 5 }, "nothing has to dial")
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll)
	positions(t, messages, 1)
	msg := receive(t, messages)
	work := time.After(20 * time.Millisecond)
	for begun := time.Now(); cursorAt(t, db, "test/"+outbox.TopicAll) != 1; {
		if time.Since(begun) > patience {
			t.Fatal("what was acked is not written")
		}
	}
	<-work
	msg.Ack()
	receive(t, messages)
	if at := cursorAt(t, db, "test/"+outbox.TopicAll); at != 2 {
		t.Errorf("the cursor is at %d, want 2", at)
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

// DDL waits for the page, and the write would wait behind it: it gives up at once, and the messages are handed over all the same.
// On a connection that has not prepared the write yet, it is no different.
func TestAckedDoesNotWaitBehindDDL(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, 5)
	var warnings bytes.Buffer
	pool := db.AsRole(t, "daybook_relay")
	subscriber := newSubscriber(t, outbox.Config{
		Pool: pool, Logger: slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	messages := subscribe(t, subscriber, outbox.TopicAll)
	msg := receive(t, messages)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(background(t)) }()
	locked := make(chan error, 1)
	go func() {
		_, err := tx.Exec(background(t), `lock table daybook.cursor in access exclusive mode`)
		locked <- err
	}()
	db.WaitBlocked(t, tx.Conn().PgConn().PID())
	for range 3 {
		msg.Ack()
		msg = receive(t, messages)
		tries := pool.Stat().AcquireCount()
		pgtest.WaitFor(t, patience, func() bool { return pool.Stat().AcquireCount() > tries+2 }, "it is tried in vain")
	}
	msg.Ack()
	positions(t, messages, 1)
	if err := <-locked; err != nil {
		t.Errorf("the lock that waited for the page: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitCursor(t, db, "test/"+outbox.TopicAll, 5)
	closeSubscriber(t, subscriber)
	if warnings.Len() > 0 {
		t.Errorf("a write waited: %s", warnings.String())
	}
}

// An operator moves the cursor while a page is being handled. The rest of the page tries to write it no more, unlike one whose cursor
// is locked.
func TestNothingIsTriedWhereTheCursorIsElsewhere(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, 3)
	handle := func(group string, change func()) (pool *pgxpool.Pool, tries int64) {
		pool = db.AsRole(t, "daybook_relay")
		messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: pool, ConsumerGroup: group}), outbox.TopicAll)
		msg := receive(t, messages)
		change()
		tries = pool.Stat().AcquireCount()
		msg.Ack()
		receive(t, messages) // being handled until the end
		pgtest.WaitFor(t, patience, func() bool { return pool.Stat().AcquireCount() > tries }, "%s tries once", group)
		return pool, tries
	}
	moved, before := handle("moved", func() {
		db.Exec(t, `update daybook.cursor set position = 3 where name like 'moved/%'`)
	})
	locked, lockedBefore := handle("locked", func() {
		tx, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(background(t)) })
		if _, err := tx.Exec(t.Context(), `select from daybook.cursor where name like 'locked/%' for update`); err != nil {
			t.Fatal(err)
		}
	})
	pgtest.WaitFor(t, patience, func() bool { return locked.Stat().AcquireCount() > lockedBefore+20 }, "the other is tried again and again")
	// A beat needs a connection too.
	if tries := moved.Stat().AcquireCount() - before; tries > 5 {
		t.Errorf("%d tries to write a cursor that is elsewhere", tries)
	}
}

// A member of a group takes too long, and another member is served. The late ack of the first moves no cursor under it.
func TestLateAckMovesNoCursorOfAnotherMember(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, 3)
	slow := db.AsRole(t, "daybook_relay")
	var held []*pgxpool.Conn
	hold := func() {
		t.Helper()
		conn, err := slow.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	for range slow.Config().MaxConns - 1 {
		hold()
	}
	late := receive(t, subscribe(t, newSubscriber(t, outbox.Config{Pool: slow, AckDeadline: 200 * time.Millisecond}), outbox.TopicAll))
	// The page's connection is taken when its deadline has passed, before the first member can begin another page.
	hold()
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool, PollInterval: time.Millisecond}), outbox.TopicAll)
	msg := receive(t, messages)
	for _, conn := range held {
		conn.Release()
	}
	late.Ack()
	// The first one goes on polling.
	polls := slow.Stat().AcquireCount()
	pgtest.WaitFor(t, patience, func() bool { return slow.Stat().AcquireCount() > polls+10 }, "the first member polls")
	if at := cursorAt(t, db, "test/"+outbox.TopicAll); at != 0 {
		t.Errorf("the cursor is at %d, while the second member handles position 1", at)
	}
	got := []ledger.Position{position(t, msg)}
	msg.Ack()
	if diff := cmp.Diff(series(1, 3), append(got, positions(t, messages, 2)...)); diff != "" {
		t.Errorf("positions of the second member (-want +got):\n%s", diff)
	}
	waitCursor(t, db, "test/"+outbox.TopicAll, 3)
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
