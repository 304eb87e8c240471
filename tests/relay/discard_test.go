package relay_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/outbox/jetstream"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func decision(position ledger.Position) outbox.DiscardOptions {
	return outbox.DiscardOptions{Relay: "test", Position: position, Actor: "ann", Reason: "too large for every consumer"}
}

func discard(t *testing.T, db outbox.Beginner, position ledger.Position) outbox.Discarded {
	t.Helper()
	got, err := outbox.Discard(t.Context(), db, decision(position))
	if err != nil {
		t.Fatalf("discard position %d: %v", position, err)
	}
	return got
}

func status(t *testing.T, db *pgtest.DB) ledger.Lag {
	t.Helper()
	s, err := ledger.ReadStatus(t.Context(), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	return s.Parked
}

// NATS never takes one event. It is discarded, with the relay running and then with it down; the later events of its key are
// published in their order, and that one never is.
func TestDiscard(t *testing.T) {
	t.Parallel()
	for _, down := range []bool{false, true} {
		t.Run(map[bool]string{false: "the relay runs", true: "the relay is down"}[down], func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			pool := db.AsRole(t, "daybook_relay")
			n := startNATS(t)
			js := n.stream()
			if _, err := js.AddStream(&nats.StreamConfig{Name: "DAYBOOK", Subjects: []string{"daybook.events.>"}, MaxMsgSize: 2000}); err != nil {
				t.Fatal(err)
			}
			// 1, 4, 5, 8 and 11 are of one key.
			appendEvents(t, db, 3, 3)
			db.Exec(t, `
				insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
				values (daybook.clock(), gen_random_uuid(), sha256(int4send(1)), 'enqueue.accepted', 'default', '…',
					json_build_object('v', 1, 'n', repeat('x', 3000)))`)
			appendEvents(t, db, 6, 3)
			publisher := newPublisher(t, n)
			config := outbox.RelayConfig{Pool: pool, Publisher: publisher, MaxAttempts: 1, Poison: jetstream.Poison}
			r := start(t, config)
			waitCursor(t, db, "test", 10)
			if down {
				r.end()
			}
			before := cursorRow(t, db)
			got := discard(t, pool, 4)
			if after := cursorRow(t, db); after != before {
				t.Errorf("the discard has touched the cursor: %s, was %s", after, before)
			}
			want := outbox.Discarded{Relay: "test", Position: 4, DiscardedAt: got.DiscardedAt, Waiting: 2, First: 5}
			if diff := cmp.Diff(want, got); diff != "" || got.DiscardedAt.IsZero() {
				t.Errorf("discarded (-want +got):\n%s", diff)
			}
			// What was behind it waits for a redrive, and so does what comes of the key.
			if down {
				start(t, config)
			}
			appendEvents(t, db, 3, 3)
			waitCursor(t, db, "test", 13)
			if diff := cmp.Diff([]string{"5: 0 " + behind, "8: 0 " + behind, "11: 0 " + behind}, parked(t, db, "test")); diff != "" {
				t.Errorf("parked (-want +got):\n%s", diff)
			}
			redriven, err := outbox.Redrive(t.Context(), outbox.RedriveConfig{Pool: pool, Relay: "test", Publisher: publisher, Position: got.First})
			if diff := cmp.Diff(outbox.Redriven{Published: 3}, redriven); diff != "" || err != nil {
				t.Errorf("redriven (-want +got): %v\n%s", err, diff)
			}
			appendEvents(t, db, 1, 3)
			waitCursor(t, db, "test", 14)
			var ofKey []ledger.Position
			messages := n.read(js, 13)
			for _, d := range messages {
				if keyOf(d.Attributes) == keyOf(messages[0].Attributes) {
					ofKey = append(ofKey, d.Position)
				}
				if d.Position == 4 {
					t.Error("the discarded event was published")
				}
			}
			if stored := stored(t, js); stored != 13 {
				t.Errorf("%d messages are stored, want 13", stored)
			}
			if keyOf(messages[0].Attributes) == "" || len(ofKey) < 4 {
				t.Errorf("of the first key: %v", ofKey)
			}
			for i := 1; i < len(ofKey); i++ {
				if ofKey[i] < ofKey[i-1] {
					t.Errorf("out of order: %v", ofKey)
				}
			}
			if lag := status(t, db); lag != (ledger.Lag{}) {
				t.Errorf("status counts what was discarded: %+v", lag)
			}
			all, err := outbox.ListParked(t.Context(), db.AsRole(t, "daybook_operator"), outbox.ParkedFilter{All: true})
			if err != nil || len(all) != 4 || all[0].DiscardActor != "ann" || all[0].DiscardReason != "too large for every consumer" ||
				!all[0].DiscardedAt.Equal(got.DiscardedAt) || !all[0].RedrivenAt.IsZero() {
				t.Errorf("the record of what was parked: %+v, %v", all, err)
			}
		})
	}
}

// parkOne leaves position 1 parked and positions 2 and 3, of its key, behind it. No relay runs.
func parkOne(t *testing.T, db *pgtest.DB) (b *broker, healed *atomic.Bool) {
	t.Helper()
	appendEvents(t, db, 3, 1)
	b, healed = newBroker(t), new(atomic.Bool)
	refuse(b, healed, 1)
	r := start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, MaxAttempts: 1})
	waitCursor(t, db, "test", 3)
	r.end()
	return b, healed
}

// Said again a discard changes nothing, by somebody else or for another reason it is refused, and what does not wait is told.
func TestDiscardAnswers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b, healed := parkOne(t, db)
	at := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	db.FreezeClock(t, at)
	first := discard(t, db.Pool, 1)
	if !first.DiscardedAt.Equal(at) || first.Repeated {
		t.Errorf("discarded %+v", first)
	}
	row := func() (text string) {
		err := db.Pool.QueryRow(t.Context(), `
			select string_agg(p::text || p.xmin::text, ' ' order by p.position) || (select string_agg(l::text || l.xmin::text, ' ') from daybook.relay_lease as l)
			from daybook.parked as p`).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := row()
	db.AdvanceClock(t, time.Hour)
	again := discard(t, db.Pool, 1)
	first.Repeated = true
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("again (-first +again):\n%s", diff)
	}
	for _, other := range []struct {
		actor, reason string
		fields        []string
	}{
		{"bob", decision(1).Reason, []string{"actor"}},
		{"ann", "no", []string{"reason"}},
		{"bob", "no", []string{"actor", "reason"}},
	} {
		options := decision(1)
		options.Actor, options.Reason = other.actor, other.reason
		_, err := outbox.Discard(t.Context(), db.Pool, options)
		var conflict *outbox.DiscardConflictError
		if !errors.As(err, &conflict) {
			t.Fatalf("another decision: %v", err)
		}
		if diff := cmp.Diff(&outbox.DiscardConflictError{Relay: "test", Position: 1, Fields: other.fields}, conflict); diff != "" {
			t.Errorf("conflict (-want +got):\n%s", diff)
		}
	}
	if _, err := outbox.Discard(t.Context(), db.Pool, decision(4)); !errors.Is(err, outbox.ErrNotParked) {
		t.Errorf("a position where nothing is parked: %v", err)
	}
	elsewhere := decision(2)
	elsewhere.Relay = "other"
	if _, err := outbox.Discard(t.Context(), db.Pool, elsewhere); !errors.Is(err, outbox.ErrNotParked) {
		t.Errorf("another relay: %v", err)
	}
	if after := row(); after != before {
		t.Errorf("something was written:\n%s\nwas\n%s", after, before)
	}
	for _, wrong := range []outbox.DiscardOptions{
		{},
		{Relay: "test", Actor: "ann", Reason: "r"},
		{Relay: "test", Position: 2, Reason: "r"},
		{Relay: "test", Position: 2, Actor: "ann"},
		{Relay: "test", Position: 2, Actor: strings.Repeat("a", 201), Reason: "r"},
		{Relay: "test", Position: 2, Actor: "ann", Reason: "a\x00"},
		{Relay: "test", Position: 2, Actor: "ann", Reason: strings.Repeat("r", 1001)},
		{Relay: "test", Position: 2, Actor: "\xff", Reason: "r"},
	} {
		if _, err := outbox.Discard(t.Context(), db.Pool, wrong); err == nil || !strings.Contains(err.Error(), "outbox.DiscardOptions: ") {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	// In the caller's transaction, which each of these errors leaves usable.
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		if _, err := outbox.Discard(t.Context(), tx, decision(4)); !errors.Is(err, outbox.ErrNotParked) {
			t.Errorf("in a transaction: %v", err)
		}
		_, err := outbox.Discard(t.Context(), tx, decision(2))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	healed.Store(true)
	if got, err := outbox.Redrive(t.Context(), outbox.RedriveConfig{Pool: db.Pool, Relay: "test", Publisher: b}); err != nil || got.Published != 1 {
		t.Errorf("redriven %+v, %v; want position 3", got, err)
	}
	if _, err := outbox.Discard(t.Context(), db.Pool, decision(3)); !errors.Is(err, outbox.ErrRedriven) {
		t.Errorf("what was redriven: %v", err)
	}
	if diff := cmp.Diff([]ledger.Position{3}, b.positions()); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}

// Who may redrive may discard, and nobody else.
func TestWhoMayDiscard(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	parkOne(t, db)
	for _, role := range []string{"daybook_app", "daybook_operator"} {
		if _, err := outbox.Discard(t.Context(), db.AsRole(t, role), decision(1)); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s: %v", role, err)
		}
	}
	discard(t, db.AsRole(t, "daybook_relay"), 1)
}

// A discard that is killed before its end has not happened, and stands in nobody's way.
func TestKilledDiscard(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b, healed := parkOne(t, db)
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(background(t)) }()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	discard(t, tx, 1)
	db.Exec(t, `select pg_terminate_backend($1, 60000)`, conn.PgConn().PID())
	if got := parked(t, db, "test"); len(got) != 3 {
		t.Errorf("parked: %v", got)
	}
	healed.Store(true)
	if got, err := outbox.Redrive(t.Context(), outbox.RedriveConfig{Pool: db.Pool, Relay: "test", Publisher: b}); err != nil || got.Published != 3 {
		t.Errorf("redriven %+v, %v", got, err)
	}
}

// A relay that reads a discarded event again, as after a crash, passes over it: also where the discard is decided between its
// look at the page's keys and its look at that event.
func TestDiscardedIsReadAgain(t *testing.T) {
	t.Parallel()
	for _, meanwhile := range []bool{false, true} {
		db := pgtest.New(t)
		b, healed := parkOne(t, db)
		healed.Store(true)
		discard(t, db.Pool, 3)
		discard(t, db.Pool, 2)
		tx, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		discard(t, tx, 1)
		if !meanwhile {
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		db.Exec(t, `update daybook.cursor set position = 0 where name = $1`, outbox.RelayCursorName("test"))
		appendEvents(t, db, 1, 1)
		start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b})
		if meanwhile {
			db.WaitBlockedBy(t, tx.Conn().PgConn().PID(), 1)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		waitCursor(t, db, "test", 4)
		if diff := cmp.Diff([]ledger.Position{4}, b.positions()); diff != "" {
			t.Errorf("meanwhile %v: published (-want +got):\n%s", meanwhile, diff)
		}
	}
}

// What a redrive is about to publish cannot be discarded, and a redrive that begins waits for a discard.
func TestDiscardBesideRedrive(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	parkOne(t, db)
	slow := newBroker(t)
	slow.deliver = func(_ string, _ *message.Message, a outbox.Attributes) error {
		if _, err := outbox.Discard(t.Context(), db.Pool, decision(a.Position)); !errors.Is(err, outbox.ErrRedriving) {
			t.Errorf("discard what is being published: %v", err)
		}
		return nil
	}
	redrive := outbox.RedriveConfig{Pool: db.Pool, Relay: "test", Publisher: slow}
	if got, err := outbox.Redrive(t.Context(), redrive); err != nil || got.Published != 3 {
		t.Errorf("redriven %+v, %v", got, err)
	}

	db = pgtest.New(t)
	b, healed := parkOne(t, db)
	healed.Store(true)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	discard(t, tx, 1)
	redriven := make(chan outbox.Redriven, 1)
	go func() {
		got, err := outbox.Redrive(background(t), outbox.RedriveConfig{Pool: db.Pool, Relay: "test", Publisher: b})
		if err != nil {
			t.Error(err)
		}
		redriven <- got
	}()
	db.WaitBlockedBy(t, tx.Conn().PgConn().PID(), 1)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-redriven; got.Published != 2 {
		t.Errorf("redriven %+v; want what waited behind", got)
	}
	if diff := cmp.Diff([]ledger.Position{2, 3}, b.positions()); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}
