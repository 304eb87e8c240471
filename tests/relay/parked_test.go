package relay_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// refuse makes a broker refuse some positions as long as healed is false.
func refuse(b *broker, healed *atomic.Bool, positions ...ledger.Position) {
	b.deliver = func(_ string, _ *message.Message, a outbox.Attributes) error {
		for _, p := range positions {
			if a.Position == p && !healed.Load() {
				return errRefused
			}
		}
		return nil
	}
}

// One event is refused: it is parked with position and reason, the later ones of its key behind it, and all others go
// on. Redriving heals it, in order, without moving the relay's cursor.
func TestPoison(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.AsRole(t, "daybook_relay")
	appendEvents(t, db, 30, 10)
	var healed atomic.Bool
	b := newBroker(t)
	refuse(b, &healed, 3)
	r := start(t, outbox.RelayConfig{Pool: pool, Publisher: b, PageSize: 7, MaxAttempts: 4})
	waitCursor(t, db, "test", 30)

	want := []string{"3: 4 the broker refuses this message", "13: 0 " + behind, "23: 0 " + behind}
	if diff := cmp.Diff(want, parked(t, db, "test")); diff != "" {
		t.Fatalf("parked (-want +got):\n%s", diff)
	}
	if b.count() != 27 {
		t.Errorf("%d of the others were published, want 27", b.count())
	}

	// Still refused: it stays where it is, with one attempt more.
	redrive := outbox.RedriveConfig{Pool: pool, Relay: "test", Publisher: b}
	got, err := outbox.Redrive(t.Context(), redrive)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(outbox.Redriven{Failed: []ledger.Position{3}}, got); diff != "" {
		t.Errorf("redriven (-want +got):\n%s", diff)
	}
	want[0] = "3: 5 the broker refuses this message"
	if diff := cmp.Diff(want, parked(t, db, "test")); diff != "" {
		t.Errorf("parked (-want +got):\n%s", diff)
	}

	healed.Store(true)
	r.end()
	before := cursorRow(t, db)
	if got, err = outbox.Redrive(t.Context(), redrive); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(outbox.Redriven{Published: 3}, got); diff != "" {
		t.Errorf("redriven (-want +got):\n%s", diff)
	}
	if after := cursorRow(t, db); after != before {
		t.Errorf("the redrive has touched the cursor: %s, was %s", after, before)
	}
	if left := parked(t, db, "test"); len(left) != 0 {
		t.Errorf("still parked: %v", left)
	}
	b.checkComplete(t, 30)

	// The key is free: what comes of it is published by the relay.
	start(t, outbox.RelayConfig{Pool: pool, Publisher: b})
	appendEvents(t, db, 10, 10)
	waitCursor(t, db, "test", 40)
	b.checkComplete(t, 40)
	if b.count() != 40 {
		t.Errorf("%d messages for 40 events", b.count())
	}
	all, err := outbox.ListParked(t.Context(), pool, outbox.ParkedFilter{All: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 3 || all[0].RedrivenAt.IsZero() || all[0].Attempts != 5 {
		t.Errorf("the record of what was parked: %+v", all)
	}
}

func cursorRow(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	var row string
	if err := db.Pool.QueryRow(t.Context(), `select c::text || c.xmin::text from daybook.cursor as c`).Scan(&row); err != nil {
		t.Fatal(err)
	}
	return row
}

// A redrive can be for one key, and one that meets a broker that is away ends with an error.
func TestRedriveOneKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	appendEvents(t, db, 20, 5)
	var healed atomic.Bool
	b := newBroker(t)
	refuse(b, &healed, 2, 3, 9)
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, MaxAttempts: 1})
	waitCursor(t, db, "test", 20)
	// 2 7 12 17 are of one key, 3 8 13 18 of another, and 9 14 19 of a third from its second event on.
	if got := parked(t, db, "test"); len(got) != 11 {
		t.Fatalf("parked: %v", got)
	}
	healed.Store(true)
	redrive := outbox.RedriveConfig{Pool: db.Pool, Relay: "test", Publisher: b, Position: 12}
	got, err := outbox.Redrive(t.Context(), redrive)
	if err != nil || got.Published != 4 {
		t.Errorf("redriven %+v, %v; want the 4 events of the key", got, err)
	}
	redrive.Position = 12
	if _, err := outbox.Redrive(t.Context(), redrive); !errors.Is(err, outbox.ErrNotParked) {
		t.Errorf("redrive a position where nothing waits: %v", err)
	}
	redrive.Position = 0
	away := newBroker(t)
	away.deliver = func(_ string, _ *message.Message, a outbox.Attributes) error {
		if a.Position > 8 {
			return &timeoutError{}
		}
		return nil
	}
	redrive.Publisher = away
	got, err = outbox.Redrive(t.Context(), redrive)
	if err == nil || got.Published != 2 || len(got.Failed) != 0 {
		t.Errorf("redriven %+v, %v; want 2 and an error", got, err)
	}
	redrive.Publisher = b
	if got, err = outbox.Redrive(t.Context(), redrive); err != nil || got.Published != 5 {
		t.Errorf("redriven %+v, %v; want 5", got, err)
	}
	b.got = append(away.got, b.got...)
	seen := map[ledger.Position]bool{}
	for _, p := range b.positions() {
		seen[p] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d of 20 events were published", len(seen))
	}
}

type timeoutError struct{}

func (*timeoutError) Error() string   { return "no answer" }
func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }

// Two redrives at once would publish everything twice.
func TestTwoRedrives(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	appendEvents(t, db, 1, 0)
	var healed atomic.Bool
	b := newBroker(t)
	refuse(b, &healed, 1)
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, MaxAttempts: 1})
	waitCursor(t, db, "test", 1)
	slow := newBroker(t)
	slow.deliver = func(string, *message.Message, outbox.Attributes) error {
		if _, err := outbox.Redrive(t.Context(), outbox.RedriveConfig{Pool: db.Pool, Relay: "test", Publisher: b}); !errors.Is(err, outbox.ErrRedriving) {
			t.Errorf("a second redrive: %v", err)
		}
		return nil
	}
	if _, err := outbox.Redrive(t.Context(), outbox.RedriveConfig{Pool: db.Pool, Relay: "test", Publisher: slow}); err != nil {
		t.Error(err)
	}
}

// Events of parked keys come in all the time while they are redriven, again and again, and some are refused anew: none is
// lost, none overtakes, and in the end none waits.
func TestRedriveWhileTheRelayRuns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var attempts atomic.Int64
	b := newBroker(t)
	b.deliver = func(string, *message.Message, outbox.Attributes) error {
		if attempts.Add(1)%7 == 0 {
			return errRefused
		}
		return nil
	}
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, MaxAttempts: 1, PageSize: 20, Lanes: 4})
	const rounds, each = 25, 24
	redrive := outbox.RedriveConfig{Pool: db.Pool, Relay: "test", Publisher: b}
	for range rounds {
		appendEvents(t, db, each, 4)
		if _, err := outbox.Redrive(t.Context(), redrive); err != nil {
			t.Fatal(err)
		}
	}
	waitCursor(t, db, "test", rounds*each)
	pgtest.WaitFor(t, patience, func() bool {
		if _, err := outbox.Redrive(t.Context(), redrive); err != nil {
			t.Error(err)
		}
		return len(parked(t, db, "test")) == 0
	}, "nothing is parked any more")
	b.checkComplete(t, rounds*each)
	if b.count() != rounds*each {
		t.Errorf("%d messages for %d events", b.count(), rounds*each)
	}
}

// A broker that refuses everything gets nothing parked beyond the limit, and the relay goes on when it takes one.
func TestParkLimit(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	appendEvents(t, db, 100, 0)
	var healed atomic.Bool
	var attempts atomic.Int64
	b := newBroker(t)
	b.deliver = func(string, *message.Message, outbox.Attributes) error {
		attempts.Add(1)
		if !healed.Load() {
			return errRefused
		}
		return nil
	}
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, MaxAttempts: 1, ParkLimit: 6})
	pgtest.WaitFor(t, patience, func() bool { return len(parked(t, db, "test")) == 6 }, "six events are parked")
	// Far more attempts than there are events: it goes on trying.
	seen := attempts.Load()
	pgtest.WaitFor(t, patience, func() bool { return attempts.Load() > seen+300 }, "it tries again and again")
	if got := parked(t, db, "test"); len(got) != 6 || cursorAt(t, db, "test") != 0 {
		t.Errorf("parked %d, want 6; the cursor is at %d", len(got), cursorAt(t, db, "test"))
	}
	healed.Store(true)
	waitCursor(t, db, "test", 100)
	// One that was refused a moment before may be parked when the first has been published.
	if got := b.count() + len(parked(t, db, "test")); got != 100 || b.count() < 100-6-outbox.DefaultLanes {
		t.Errorf("%d published, %d published or parked, want 100", b.count(), got)
	}
	if _, err := outbox.Redrive(t.Context(), outbox.RedriveConfig{Pool: db.Pool, Relay: "test", Publisher: b}); err != nil {
		t.Fatal(err)
	}
	b.checkComplete(t, 100)
}

// What cannot even become a message is parked at once: a topic that is missing, a publisher that panics.
func TestUnsendable(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	appendEvents(t, db, 4, 0)
	b := newBroker(t)
	b.deliver = func(_ string, _ *message.Message, a outbox.Attributes) error {
		if a.Position == 3 {
			panic("index out of range\x00\xff" + strings.Repeat("…", 1000))
		}
		return nil
	}
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, Topic: func(event ledger.Event) string {
		if event.Position == 2 {
			return ""
		}
		return "t"
	}})
	waitCursor(t, db, "test", 4)
	got := parked(t, db, "test")
	if len(got) != 2 || got[0] != "2: 1 the event has no topic" || !strings.HasPrefix(got[1], "3: 1 panic: index out of range\uFFFD\uFFFD…") {
		t.Errorf("parked: %q", got)
	}
	if b.count() != 2 {
		t.Errorf("%d published", b.count())
	}
}

// A relay that has lost its lease and does not know parks nothing any more.
func TestParkingIsFenced(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	appendEvents(t, db, 1, 0)
	var tries atomic.Int64
	b := newBroker(t)
	b.deliver = func(string, *message.Message, outbox.Attributes) error {
		if tries.Add(1) == 1 {
			db.Exec(t, `
				update daybook.relay_lease
				set holder = gen_random_uuid(), expires_at = clock_timestamp() + interval '50 milliseconds'`)
			return errRefused
		}
		return nil
	}
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, MaxAttempts: 1, Lease: time.Minute})
	waitCursor(t, db, "test", 1)
	if got, err := outbox.ListParked(t.Context(), db.Pool, outbox.ParkedFilter{All: true}); err != nil || len(got) != 0 {
		t.Errorf("parked %+v, %v", got, err)
	}
	if b.count() != 1 || tries.Load() != 2 {
		t.Errorf("%d published after %d attempts", b.count(), tries.Load())
	}
}

// Operators see what is parked, and no hash of a key.
func TestOperatorSeesParked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, "an-order-of-somebody", "an-order-of-somebody")
	var healed atomic.Bool
	b := newBroker(t)
	refuse(b, &healed, 1)
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, MaxAttempts: 1})
	waitCursor(t, db, "test", 2)
	operator := db.AsRole(t, "daybook_operator")
	got, err := outbox.ListParked(t.Context(), operator, outbox.ParkedFilter{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Kind != ledger.KindAccepted || got[0].KeyPreview != "an-ord…" || len(got[0].KeyDigest) != 12 {
		t.Errorf("got %+v", got)
	}
	next, err := outbox.ListParked(t.Context(), operator, outbox.ParkedFilter{After: got[0]})
	if err != nil || len(next) != 1 || next[0].Position != 2 || next[0].Kind != ledger.KindConflictRejected {
		t.Errorf("the next page: %+v, %v", next, err)
	}
	for _, forbidden := range []string{
		`select order_key from daybook.parked`, `select * from daybook.parked`, `update daybook.parked set reason = ''`,
		`select * from daybook.debezium_outbox`,
	} {
		if _, err := operator.Exec(t.Context(), forbidden); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s: %v", forbidden, err)
		}
	}
	if _, err := outbox.ListParked(t.Context(), operator, outbox.ParkedFilter{Limit: -1}); err == nil {
		t.Error("a negative limit is taken")
	}
}
