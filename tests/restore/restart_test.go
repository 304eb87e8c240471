package restore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// PostgreSQL goes away under everything, once in good order and once as in a crash: writers, a subscriber, a projector, a relay. Health is
// red meanwhile; then all loops go on by themselves, health is green, and everything was seen.
func TestRestartUnderEverything(t *testing.T) {
	t.Parallel()
	daybook := build(t)
	cluster := pgtest.NewCluster(t, nil)
	db := cluster.New(t, pgtest.MaxConns(16))
	check := func() (int, string) {
		return run(t, db.URL, daybook, "status", "--check", "--max-lag", "1h", "--max-beat-age", "1h")
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	subscriber := newSubscriber(t, db.Pool)
	seen := collect(subscribe(t, subscriber))
	projector, err := outbox.NewProjector(outbox.ProjectorConfig{Pool: db.Pool, RetryInterval: 20 * time.Millisecond}, runner(t, projections.Builtin()[0]))
	if err != nil {
		t.Fatal(err)
	}
	published := make(chan *message.Message)
	relayed := collect(published)
	relay, err := outbox.NewRelay(outbox.RelayConfig{Pool: db.Pool, Name: "broker", Publisher: collecting(published), RetryInterval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for _, loop := range []func(context.Context) error{projector.Run, relay.Run} {
		running.Go(func() {
			if err := loop(ctx); err != nil {
				t.Errorf("a loop has ended: %v", err)
			}
		})
	}
	running.Go(func() { enqueueOn(ctx, t, db.Pool) })

	wantAll := func() {
		t.Helper()
		before := seen.count()
		pgtest.WaitFor(t, patience, func() bool { return seen.count() > before+20 && relayed.count() > before+20 }, "events flow")
		pgtest.WaitFor(t, patience, func() bool { code, _ := check(); return code == 0 }, "health is green")
	}
	wantAll()
	for _, end := range []func() error{
		func() error { return cluster.Stop(t.Context(), localpg.Fast) },
		cluster.Kill,
	} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if code, output := check(); code != 1 {
			t.Errorf("exit code %d while PostgreSQL is away\n%s", code, output)
		}
		if _, err := ledger.ReadStatus(t.Context(), db.Pool); err == nil {
			t.Error("the status can be read while PostgreSQL is away")
		}
		if err := cluster.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantAll()
	}
	stop()
	running.Wait()
	close(published)
	<-relayed.ended

	// What has committed and nobody has seen yet is seen by whoever comes next; and nothing was left out.
	if err := subscriber.Close(); err != nil {
		t.Fatal(err)
	}
	<-seen.ended
	if _, err := ledger.Sequence(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	head, err := ledger.Head(t.Context(), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	behind := int(head - cursorAt(t, db.Pool))
	for _, a := range receive(t, subscribe(t, newSubscriber(t, db.Pool)), behind) {
		seen.add(a.Position)
	}
	if missing := seen.missing(head); len(missing) > 0 {
		t.Errorf("positions %v of %d were never delivered", missing, head)
	}
	relayCursor := one[ledger.Position](t, db.Pool, `select position from daybook.cursor where name = $1`, outbox.RelayCursorName("broker"))
	if missing := relayed.missing(relayCursor); len(missing) > 0 {
		t.Errorf("positions %v of %d were never published", missing, relayCursor)
	}
	wantEqual(t, db.Pool)
}

// enqueueOn enqueues until ctx ends, whatever happens to the server.
func enqueueOn(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	queue, err := commands.NewQueue(commands.Config{Pool: pool})
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil {
		if _, err := queue.Enqueue(ctx, commands.EnqueueOptions{Type: "work"}); err != nil {
			// Away: not so often.
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// collected is the set of positions that came.
type collected struct {
	mu        sync.Mutex
	positions map[ledger.Position]bool
	ended     chan struct{} // with the messages
}

// collect acks whatever comes, and remembers it.
func collect(messages <-chan *message.Message) *collected {
	c := &collected{positions: map[ledger.Position]bool{}, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		for msg := range messages {
			if attributes, err := outbox.AttributesOf(msg); err == nil {
				c.add(attributes.Position)
			}
			msg.Ack()
		}
	}()
	return c
}

func (c *collected) add(position ledger.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.positions[position] = true
}

func (c *collected) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.positions)
}

// missing returns which of the positions up to the last one have not come.
func (c *collected) missing(last ledger.Position) (missing []ledger.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for position := ledger.Position(1); position <= last; position++ {
		if !c.positions[position] {
			missing = append(missing, position)
		}
	}
	return missing
}
