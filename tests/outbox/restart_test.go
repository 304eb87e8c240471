package outbox_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// The server restarts under a subscriber and a projector. Both go on by themselves; the subscriber loses nothing, and
// the projector counts nothing twice.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	cluster := pgtest.NewCluster(t, nil)
	db := cluster.New(t)
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll)
	p := newTally(t, db, "one")
	stop := run(t, newProjector(t, db.Pool, 10, p))
	enqueue(t, db, 50)
	seen := map[ledger.Position]bool{}
	for range 20 {
		msg := receive(t, messages)
		seen[position(t, msg)] = true
		msg.Ack()
	}
	if err := cluster.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.WaitFor(t, patience, func() bool { return db.Pool.Ping(t.Context()) == nil }, "the server is back")
	enqueue(t, db, 50)
	for len(seen) < 100 {
		msg := receive(t, messages)
		seen[position(t, msg)] = true
		msg.Ack()
	}
	var got []ledger.Position
	for at := range seen {
		got = append(got, at)
	}
	if diff := cmp.Diff(series(1, 100), sorted(got)); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
	waitCursor(t, db, p.cursor(), 100)
	if n := p.count(t, db); n != 100 {
		t.Errorf("%d are counted, want 100", n)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Without LISTEN, events that others have sequenced are found by polling.
func TestPollOnly(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool, PollOnly: true}), outbox.TopicAll)
	enqueue(t, db, 5)
	if diff := cmp.Diff(series(1, 5), positions(t, messages, 5)); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
	var listening int
	err := db.Pool.QueryRow(t.Context(), `
		select count(*) from pg_stat_activity
		where datname = current_database() and query ilike 'listen%'`).Scan(&listening)
	if err != nil || listening != 0 {
		t.Errorf("%d connections listen (%v)", listening, err)
	}
}
