package relay_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// patience bounds a failure; nothing waits for it to pass.
const patience = time.Minute

// errRefused is what a broker says of a message that it will never take.
var errRefused = errors.New("the broker refuses this message")

func newRelay(t testing.TB, config outbox.RelayConfig) *outbox.Relay {
	t.Helper()
	config.Name = cmp.Or(config.Name, "test")
	config.MaxBackOff = cmp.Or(config.MaxBackOff, time.Millisecond)
	config.RetryInterval = cmp.Or(config.RetryInterval, 10*time.Millisecond)
	config.PollInterval = cmp.Or(config.PollInterval, 5*time.Millisecond)
	relay, err := outbox.NewRelay(config)
	if err != nil {
		t.Fatal(err)
	}
	return relay
}

func newQueue(t testing.TB, db *pgtest.DB) *commands.Queue {
	t.Helper()
	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool})
	if err != nil {
		t.Fatal(err)
	}
	return queue
}

// appendEvents appends n events as fast as PostgreSQL can, past the decision, spread over so many keys. Event i has the
// key i % keys, and is the only one of key 0 where keys is 0: it then has none, and a job of its own.
func appendEvents(t testing.TB, db *pgtest.DB, n, keys int) {
	t.Helper()
	db.Exec(t, `
		insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
		select
			daybook.clock(), gen_random_uuid(),
			case when $2::int > 0 then sha256(int4send(n % $2::int)) end,
			'enqueue.accepted', 'default', '…', json_build_object('v', 1, 'n', n)
		from generate_series(1, $1::int) as n`, n, keys)
}

// enqueue makes one event for each key, by the front door.
func enqueue(t testing.TB, db *pgtest.DB, keys ...string) {
	t.Helper()
	queue := newQueue(t, db)
	for _, key := range keys {
		_, err := queue.EnqueueWithResult(t.Context(), commands.EnqueueOptions{
			Type: "test", Payload: time.Now().UnixNano(),
			Idempotency: &commands.Idempotency{Key: ledger.NewKey(key), TTL: time.Hour},
		})
		var conflict *commands.EnqueueIdempotencyConflictError
		if err != nil && !errors.As(err, &conflict) {
			t.Fatal(err)
		}
	}
}

// cursorAt returns where the relay's cursor is, -1 where it has none.
func cursorAt(t testing.TB, db *pgtest.DB, relay string) ledger.Position {
	t.Helper()
	var at ledger.Position
	err := db.Pool.QueryRow(background(t), `
		select coalesce(max(c.position), -1) from daybook.cursor as c where c.name = $1`,
		outbox.RelayCursorName(relay)).Scan(&at)
	if err != nil {
		t.Fatalf("cursor of %s: %v", relay, err)
	}
	return at
}

func waitCursor(t testing.TB, db *pgtest.DB, relay string, want ledger.Position) {
	t.Helper()
	pgtest.WaitFor(t, patience, func() bool { return cursorAt(t, db, relay) == want }, "the cursor of %s at %d", relay, want)
}

// parked returns what waits, as "position: attempts reason".
func parked(t testing.TB, db *pgtest.DB, relay string) []string {
	t.Helper()
	all, err := outbox.ListParked(background(t), db.Pool, outbox.ParkedFilter{Relay: relay, Limit: outbox.MaxParkedLimit})
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{}
	for _, p := range all {
		lines = append(lines, fmt.Sprintf("%d: %d %s", p.Position, p.Attempts, p.Reason))
	}
	return lines
}

const behind = "waits behind an earlier event of its key"

func series(from, through ledger.Position) []ledger.Position {
	var all []ledger.Position
	for p := from; p <= through; p++ {
		all = append(all, p)
	}
	return all
}

func background(t testing.TB) context.Context { return context.WithoutCancel(t.Context()) }
