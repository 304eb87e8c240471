package outbox_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// recordAt appends an event that was decided at an instant.
func recordAt(t *testing.T, db *pgtest.DB, at time.Time) {
	t.Helper()
	db.Exec(t, `insert into daybook.event (recorded_at, kind, body) values ($1, 'job.started', '{"v": 1}')`, at)
}

// A group that begins at an instant, with everything sequenced long after it was decided.
func TestStartFromTime(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	db := pgtest.New(t)
	// The third has committed later than the second, and was decided earlier.
	for _, second := range []time.Duration{10, 30, 20, 40} {
		recordAt(t, db, noon.Add(second*time.Second))
	}
	first := func(name string, start outbox.Start, want ...ledger.Position) {
		t.Helper()
		subscriber := newSubscriber(t, outbox.Config{Pool: db.Pool, ConsumerGroup: name, Start: start})
		messages := subscribe(t, subscriber, outbox.TopicAll)
		if diff := cmp.Diff(want, positions(t, messages, len(want))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	at := func(second time.Duration) outbox.Start { return outbox.FromTime(noon.Add(second * time.Second)) }
	first("before the first", at(0), 1, 2, 3, 4)
	first("exactly the first", at(10), 1, 2, 3, 4)
	first("a microsecond later", outbox.FromTime(noon.Add(10*time.Second+time.Microsecond)), 2, 3, 4)
	first("within a microsecond", outbox.FromTime(noon.Add(10*time.Second+1)), 1, 2, 3, 4)
	first("another zone", outbox.FromTime(noon.Add(10*time.Second).In(time.FixedZone("", 7200))), 1, 2, 3, 4)
	first("passed by a later one", at(20), 2, 3, 4)
	first("exactly the last", at(40), 4)

	// Beyond the last, a group begins with what comes, whatever that is. Its start is settled when it first subscribes.
	subscriber := newSubscriber(t, outbox.Config{Pool: db.Pool, ConsumerGroup: "after the last", Start: at(41)})
	if err := subscriber.SubscribeInitialize(outbox.TopicAll); err != nil {
		t.Fatal(err)
	}
	recordAt(t, db, noon)
	first("after the last", outbox.FromBeginning(), 5)
	subscribe(t, newSubscriber(t, outbox.Config{
		Pool: db.Pool, ConsumerGroup: "years to come", Start: outbox.FromTime(time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)),
	}), outbox.TopicAll)
	if got := cursorAt(t, db, "years to come/"+outbox.TopicAll); got != 5 {
		t.Errorf("a group that begins in years to come is after position %d, want 5", got)
	}
}

func TestStartFromTimeInAnEmptyLedger(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	subscriber := newSubscriber(t, outbox.Config{Pool: db.Pool, Start: outbox.FromTime(time.Now())})
	messages := subscribe(t, subscriber, outbox.TopicAll)
	enqueue(t, db, 2)
	if diff := cmp.Diff(series(1, 2), positions(t, messages, 2)); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
}

// A ledger that was sequenced as time went by, some of it late: each instant against a plain search.
func TestPositionBefore(t *testing.T) {
	t.Parallel()
	const n = 300
	db := pgtest.New(t)
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	// Position p is sequenced in second p, several in one instant, and decided 0 to 8 seconds before.
	db.Exec(t, `
		insert into daybook.event (recorded_at, kind, body)
		select $1::timestamptz + interval '1 second' * (p / 3 * 3 - p * 7 % 9), 'job.started', '{"v": 1}'
		from generate_series(1, $2::integer) as p
		order by p`, noon, n)
	db.Exec(t, `
		insert into daybook.ledger_order (position, event_id, sequenced_at, leaf_hash)
		select e.event_id, e.event_id, $1::timestamptz + interval '1 second' * (e.event_id / 3 * 3), '\x00'
		from daybook.event as e
		order by e.event_id`, noon)
	db.Exec(t, `update daybook.sequencer set position = $1, head = $1`, n)
	for second := -10; second <= n+2; second++ {
		at := noon.Add(time.Duration(second) * time.Second)
		var want ledger.Position
		err := db.Pool.QueryRow(t.Context(), `
			select coalesce(min(event_id) filter (where recorded_at >= $1) - 1, count(*))
			from daybook.event`, at).Scan(&want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ledger.PositionBefore(t.Context(), db.Pool, at)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("second %d: after position %d, want %d", second, got, want)
		}
	}
}
