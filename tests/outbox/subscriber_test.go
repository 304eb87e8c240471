package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestPositionsAreDenseAndKeysAreInOrder(t *testing.T) {
	t.Parallel()
	const writers, keys, uses = 8, 20, 4
	db := pgtest.New(t)
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll)
	queue := newQueue(t, db)

	// Each key is used once and then for other work: one acceptance, then rejections with ever other types.
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for use := range uses {
				for k := w; k < keys; k += writers {
					_, err := queue.Decide(t.Context(), commands.EnqueueOptions{
						Type:        fmt.Sprintf("type-%d", use),
						Idempotency: &commands.Idempotency{Key: keyOf(k)},
					})
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	var got []ledger.Position
	ids := map[string]bool{}
	types := map[string][]string{}
	for range keys * uses {
		msg := receive(t, messages)
		got = append(got, position(t, msg))
		ids[msg.UUID] = true
		digest := msg.Metadata.Get(outbox.MetadataPartitionKey)
		types[digest] = append(types[digest], typeOf(t, msg))
		msg.Ack()
	}
	writing.Wait()

	if diff := cmp.Diff(series(1, keys*uses), got); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
	if len(ids) != keys*uses || len(types) != keys {
		t.Errorf("%d UUIDs of %d keys, want %d of %d", len(ids), len(types), keys*uses, keys)
	}
	for digest, got := range types {
		if diff := cmp.Diff([]string{"type-0", "type-1", "type-2", "type-3"}, got); diff != "" {
			t.Errorf("key %s (-want +got):\n%s", digest, diff)
		}
	}
}

func TestHandledOnceOfTenThenClosed(t *testing.T) {
	t.Parallel()
	end := map[string]func(*outbox.Subscriber, context.CancelFunc){
		"closed":            func(s *outbox.Subscriber, _ context.CancelFunc) { _ = s.Close() },
		"context cancelled": func(_ *outbox.Subscriber, cancel context.CancelFunc) { cancel() },
	}
	for name, end := range end {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			enqueue(t, db, 10)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			first := newSubscriber(t, outbox.Config{Pool: db.Pool})
			messages, err := first.Subscribe(ctx, outbox.TopicAll)
			if err != nil {
				t.Fatal(err)
			}
			receive(t, messages).Ack()
			// That the second comes says that the first's ack has been seen.
			second := receive(t, messages)
			end(first, cancel)
			<-second.Context().Done()
			if msg, ok := <-messages; ok {
				t.Fatalf("message %s after the end", msg.UUID)
			}

			messages = subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll)
			if diff := cmp.Diff(series(2, 10), positions(t, messages, 9)); diff != "" {
				t.Errorf("delivered again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNackedComesAgainAtOnceWithTheSameUUID(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, 2)
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll)
	first := receive(t, messages)
	first.Nack()
	again := receive(t, messages)
	if !first.Equals(again) {
		t.Errorf("first %v, then %v", first, again)
	}
	again.Ack()
	if got := positions(t, messages, 1); got[0] != 2 {
		t.Errorf("then position %d, want 2", got[0])
	}
}

func TestNotAckedInTimeComesAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, 3)
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool, AckDeadline: 50 * time.Millisecond}), outbox.TopicAll)
	receive(t, messages).Ack()
	hung := receive(t, messages)
	<-hung.Context().Done()
	again := receive(t, messages)
	if hung.UUID != again.UUID {
		t.Errorf("after the deadline came %s, want %s", again.UUID, hung.UUID)
	}
	// Too late: it must not stand for the second delivery.
	hung.Ack()
	again.Ack()
	if got := positions(t, messages, 1); got[0] != 3 {
		t.Errorf("then position %d, want 3", got[0])
	}
	waitCursor(t, db, "test/"+outbox.TopicAll, 3)
}

func TestTwoMembersShareAndTakeOver(t *testing.T) {
	t.Parallel()
	const n = 200
	db := pgtest.New(t)
	enqueue(t, db, n)
	one, two := newSubscriber(t, outbox.Config{Pool: db.Pool}), newSubscriber(t, outbox.Config{Pool: db.Pool})
	fromOne, fromTwo := subscribe(t, one, outbox.TopicAll), subscribe(t, two, outbox.TopicAll)
	var got []ledger.Position
	for len(got) < n {
		var msg *message.Message
		select {
		case msg = <-fromOne:
		case msg = <-fromTwo:
		case <-time.After(patience):
			t.Fatalf("%d of %d messages", len(got), n)
		}
		got = append(got, position(t, msg))
		msg.Ack()
	}
	if diff := cmp.Diff(series(1, n), got); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
	waitCursor(t, db, "test/"+outbox.TopicAll, n)

	closeSubscriber(t, one)
	enqueue(t, db, 10)
	if diff := cmp.Diff(series(n+1, n+10), positions(t, fromTwo, 10)); diff != "" {
		t.Errorf("positions after one has left (-want +got):\n%s", diff)
	}
}

func TestEachGroupGetsEverything(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, 20)
	for _, group := range []string{"one", "two"} {
		messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool, ConsumerGroup: group}), outbox.TopicAll)
		if diff := cmp.Diff(series(1, 20), positions(t, messages, 20)); diff != "" {
			t.Errorf("group %s (-want +got):\n%s", group, diff)
		}
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, 5)
	now := newSubscriber(t, outbox.Config{Pool: db.Pool, ConsumerGroup: "now", Start: outbox.FromNow()})
	if err := now.SubscribeInitialize(outbox.TopicAll); err != nil {
		t.Fatal(err)
	}
	enqueue(t, db, 1)
	starts := map[string]ledger.Position{"now": 6, "after three": 4, "beginning": 1}
	subscribers := map[string]*outbox.Subscriber{
		"now":         now,
		"after three": newSubscriber(t, outbox.Config{Pool: db.Pool, ConsumerGroup: "three", Start: outbox.FromAfter(3)}),
		"beginning":   newSubscriber(t, outbox.Config{Pool: db.Pool, ConsumerGroup: "beginning", Start: outbox.FromBeginning()}),
	}
	for name, want := range starts {
		if got := positions(t, subscribe(t, subscribers[name], outbox.TopicAll), 1); got[0] != want {
			t.Errorf("%s: first position %d, want %d", name, got[0], want)
		}
	}
}

func TestRareKind(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	appendEvents(t, db, ledger.KindJobStarted, 25_000)
	appendEvents(t, db, ledger.KindJobFailed, 1)
	appendEvents(t, db, ledger.KindJobStarted, 12_000)
	appendEvents(t, db, ledger.KindJobFailed, 3)
	appendEvents(t, db, ledger.KindJobStarted, 30_000)
	// All of it, so that no window ends where sequencing has come to.
	for sequenced := 1; sequenced > 0; {
		var err error
		if sequenced, err = ledger.Sequence(t.Context(), db.Pool); err != nil {
			t.Fatal(err)
		}
	}
	topic := outbox.Topic(ledger.KindJobFailed)
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), topic)

	first := receive(t, messages)
	if got := position(t, first); got != 25_001 {
		t.Errorf("first position %d, want 25001", got)
	}
	// What lies before has been passed by whole windows, and is never read again.
	if got := cursorAt(t, db, "test/"+topic); got != 20_000 {
		t.Errorf("cursor at %d while the first message is handled, want 20000", got)
	}
	first.Ack()
	if diff := cmp.Diff([]ledger.Position{37_002, 37_003, 37_004}, positions(t, messages, 3)); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
	// Nothing of the kind lies behind, and still the cursor goes to the end.
	waitCursor(t, db, "test/"+topic, 67_004)
	appendEvents(t, db, ledger.KindJobFailed, 1)
	if got := positions(t, messages, 1); got[0] != 67_005 {
		t.Errorf("then position %d, want 67005", got[0])
	}
}

// One event of a kind at the end of a ledger of another one is found in at most as many pages as one reading of the ledger takes,
// which are twice as many for twice the length. PostgreSQL may need fewer: it reads a short table from its beginning. Another
// subscription of the group reads none of it again.
func TestRareKindIsReadOnce(t *testing.T) {
	t.Parallel()
	topic := outbox.Topic(ledger.KindJobFailed)
	// take subscribes as the only member of the group, takes one event of the kind, and waits until the cursor is at the end.
	take := func(db *pgtest.DB, pool *pgxpool.Pool, want ledger.Position) {
		t.Helper()
		subscriber := newSubscriber(t, outbox.Config{Pool: pool})
		messages := subscribe(t, subscriber, topic)
		if got := positions(t, messages, 1); got[0] != want {
			t.Errorf("position %d, want %d", got[0], want)
		}
		waitCursor(t, db, "test/"+topic, want)
		if err := subscriber.Close(); err != nil {
			t.Error(err)
		}
	}
	type cost struct{ plain, first, second int64 }
	measure := func(events int) (c cost) {
		t.Helper()
		db := pgtest.New(t)
		appendEvents(t, db, ledger.KindJobStarted, events-1)
		appendEvents(t, db, ledger.KindJobFailed, 1)
		for sequenced := 1; sequenced > 0; {
			var err error
			if sequenced, err = ledger.Sequence(t.Context(), db.Pool); err != nil {
				t.Fatal(err)
			}
		}
		db.Exec(t, `vacuum (analyze) daybook.event, daybook.ledger_order`)
		c.plain = db.Pages(t, func(pool *pgxpool.Pool) {
			for at := ledger.Position(0); at < ledger.Position(events); {
				var err error
				if _, at, err = ledger.Read(t.Context(), pool, at, outbox.MaxPageSize, ledger.KindJobFailed); err != nil {
					t.Fatal(err)
				}
			}
		})
		c.first = db.Pages(t, func(pool *pgxpool.Pool) { take(db, pool, ledger.Position(events)) })
		appendEvents(t, db, ledger.KindJobFailed, 1)
		c.second = db.Pages(t, func(pool *pgxpool.Pool) { take(db, pool, ledger.Position(events+1)) })
		return c
	}
	const events = 40_000
	one, two := measure(events), measure(2*events)
	t.Logf("pages of %d events %+v, of %d events %+v", events, one, 2*events, two)
	for _, c := range []cost{one, two} {
		if c.first > c.plain {
			t.Errorf("the event is found in %d pages, reading the ledger takes %d", c.first, c.plain)
		}
	}
	// To a tenth: where the pages of an index end depends on how many there are.
	if off := two.plain - 2*one.plain; max(off, -off) > one.plain/10 {
		t.Errorf("reading twice the ledger takes %d pages instead of %d", two.plain, one.plain)
	}
	// Looking for what is new is all that it does.
	if two.second > two.first/20 {
		t.Errorf("the second subscription reads %d pages, the first one read %d", two.second, two.first)
	}
}

func TestUnknownTopic(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	subscriber := newSubscriber(t, outbox.Config{Pool: db.Pool})
	for _, topic := range []string{"", "daybook.events.", "daybook.events.enqueue.acepted", "enqueue.accepted"} {
		if _, err := subscriber.Subscribe(t.Context(), topic); err == nil || !strings.Contains(err.Error(), "no topic") {
			t.Errorf("topic %q: error %v", topic, err)
		}
	}
}

// An operator moves the cursor while a page is being handled: her word counts, not the page's.
func TestCursorIsComparedAndSet(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, 3)
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll)
	msg := receive(t, messages)
	db.Exec(t, `update daybook.cursor set position = 2`)
	msg.Ack()
	if diff := cmp.Diff([]ledger.Position{2, 3, 3}, positions(t, messages, 3)); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
	waitCursor(t, db, "test/"+outbox.TopicAll, 3)
}

func TestNewEpochStopsTheGroup(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, 2)
	subscriber := newSubscriber(t, outbox.Config{Pool: db.Pool})
	messages := subscribe(t, subscriber, outbox.TopicAll)
	positions(t, messages, 2)
	waitCursor(t, db, "test/"+outbox.TopicAll, 2)
	db.Exec(t, `update daybook.meta set epoch = 2`)
	enqueue(t, db, 1)
	select {
	case msg, ok := <-messages:
		if ok {
			t.Fatalf("message %s of the new epoch", msg.UUID)
		}
	case <-time.After(patience):
		t.Fatal("the subscription goes on")
	}
	want := ledger.EpochError{Name: "test/" + outbox.TopicAll, Cursor: ledger.Cursor{Epoch: 1, Position: 2}, CurrentEpoch: 2}
	var got *ledger.EpochError
	if !errors.As(subscriber.Err(), &got) || *got != want {
		t.Errorf("Err is %v, want %v", subscriber.Err(), &want)
	}
	if _, err := subscriber.Subscribe(t.Context(), outbox.TopicAll); !errors.As(err, &got) {
		t.Errorf("subscribing again: %v", err)
	}
}

// A connection that breaks in a handler takes nothing with it: what was acked was acked.
func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, 10)
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll)
	positions(t, messages, 2)
	third := receive(t, messages)
	var ended int
	err := db.Pool.QueryRow(t.Context(), `
		select count(*) from pg_stat_activity, pg_terminate_backend(pid)
		where datname = current_database() and state = 'idle in transaction'`).Scan(&ended)
	if err != nil || ended != 1 {
		t.Fatalf("%d connections ended, %v", ended, err)
	}
	third.Ack()
	// The rest of the page is in memory and is still handed over.
	if diff := cmp.Diff(series(4, 10), positions(t, messages, 7)); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
	waitCursor(t, db, "test/"+outbox.TopicAll, 10)
	enqueue(t, db, 5)
	if diff := cmp.Diff(series(11, 15), positions(t, messages, 5)); diff != "" {
		t.Errorf("then positions (-want +got):\n%s", diff)
	}
}

// While a handler works, its page holds a connection and an advisory lock: no xid, no snapshot, no lock on a row.
func TestHandlerHoldsNothingOthersNeed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, 5)
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll)
	msg := receive(t, messages)
	var held string
	err := db.Pool.QueryRow(t.Context(), `
		select format('xid %s, snapshot %s, locks %s', a.backend_xid, a.backend_xmin, (
			select string_agg(distinct l.locktype || ' ' || l.mode, ', ' order by l.locktype || ' ' || l.mode)
			from pg_locks as l
			where l.pid = a.pid
		))
		from pg_stat_activity as a
		where datname = current_database() and state = 'idle in transaction'`).Scan(&held)
	if err != nil {
		t.Fatal(err)
	}
	msg.Ack()
	const want = "xid , snapshot , locks advisory ExclusiveLock, relation AccessShareLock, virtualxid ExclusiveLock"
	if held != want {
		t.Errorf("a page holds\n%s, want\n%s", held, want)
	}
}

func TestIdlePollWritesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, 3)
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool, PollInterval: time.Millisecond}), outbox.TopicAll)
	positions(t, messages, 3)
	waitCursor(t, db, "test/"+outbox.TopicAll, 3)
	rows := func() string {
		var rows string
		err := db.Pool.QueryRow(t.Context(), `
			select format('cursor %s %s %s, sequencer %s %s %s', c.ctid, c.xmin, c.xmax, s.ctid, s.xmin, s.xmax)
			from daybook.cursor as c
			cross join daybook.sequencer as s`).Scan(&rows)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	// Two rounds of sequencing settle: the one that found the events, and one that forgets gaps.
	var before string
	pgtest.WaitFor(t, patience, func() bool {
		last := before
		before = rows()
		return last == before
	}, "the sequencer has nothing left to do")
	polls := db.Pool.Stat().AcquireCount()
	pgtest.WaitFor(t, patience, func() bool { return db.Pool.Stat().AcquireCount() > polls+50 }, "polls go on")
	if after := rows(); after != before {
		t.Errorf("before %s\nafter  %s", before, after)
	}
}

func TestRoleRelaySuffices(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	name := "relay_" + db.Name
	db.Exec(t, fmt.Sprintf(`create role %q login password 'relay' in role daybook_relay`, name))
	t.Cleanup(func() { db.Exec(t, fmt.Sprintf(`drop role %q`, name)) })
	address, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(name, "relay")
	pool, err := pgxpool.New(t.Context(), address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)

	enqueue(t, db, 3)
	for _, topic := range []string{outbox.TopicAll, outbox.Topic(ledger.KindAccepted)} {
		subscriber := newSubscriber(t, outbox.Config{Pool: pool})
		if diff := cmp.Diff(series(1, 3), positions(t, subscribe(t, subscriber, topic), 3)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", topic, diff)
		}
		closeSubscriber(t, subscriber)
	}
}

// Two subscriptions, handlers that use the pool themselves, and two connections for all of it.
func TestPoolOfTwo(t *testing.T) {
	t.Parallel()
	const n = 100
	db := pgtest.New(t, pgtest.MaxConns(2))
	subscriber := newSubscriber(t, outbox.Config{Pool: db.Pool})
	var handling sync.WaitGroup
	for _, topic := range []string{outbox.TopicAll, outbox.Topic(ledger.KindAccepted)} {
		messages := subscribe(t, subscriber, topic)
		handling.Go(func() {
			for range n {
				msg := <-messages
				if _, err := db.Pool.Exec(msg.Context(), `select 1`); err != nil {
					t.Error(err)
				}
				msg.Ack()
			}
		})
	}
	enqueue(t, db, n)
	handled := make(chan struct{})
	go func() {
		handling.Wait()
		close(handled)
	}()
	select {
	case <-handled:
	case <-time.After(patience):
		t.Fatal("the pool and the subscriptions wait for one another")
	}
}

// Not parallel: it looks at all goroutines of the process.
func TestCloseLeavesNothingBehind(t *testing.T) {
	db := pgtest.New(t)
	enqueue(t, db, 3)
	before := goleak.IgnoreCurrent()
	subscriber, err := outbox.NewSubscriber(outbox.Config{Pool: db.Pool, ConsumerGroup: "test"})
	if err != nil {
		t.Fatal(err)
	}
	var streams []<-chan *message.Message
	for _, topic := range []string{outbox.TopicAll, outbox.Topic(ledger.KindAccepted), outbox.Topic(ledger.KindJobFailed)} {
		streams = append(streams, subscribe(t, subscriber, topic))
	}
	positions(t, streams[0], 3)
	receive(t, streams[1]) // being handled
	var closing sync.WaitGroup
	for range 4 {
		closing.Go(func() { closeSubscriber(t, subscriber) })
	}
	closing.Wait()
	for _, stream := range streams {
		select {
		case _, ok := <-stream:
			if ok {
				t.Error("a message after Close")
			}
		default:
			t.Error("a channel is open after Close")
		}
	}
	if got := db.Pool.Stat().AcquiredConns(); got != 0 {
		t.Errorf("%d connections are held after Close", got)
	}
	if _, err := subscriber.Subscribe(t.Context(), outbox.TopicAll); !errors.Is(err, outbox.ErrClosed) {
		t.Errorf("subscribing after Close: %v", err)
	}
	goleak.VerifyNone(t, before)
}
