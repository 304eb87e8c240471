package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// counter is a broker that counts.
type counter chan struct{}

func (c counter) Publish(_ string, messages ...*message.Message) error {
	for range messages {
		c <- struct{}{}
	}
	return nil
}

func (counter) Close() error { return nil }

// Every reader probes, unless it is told not to; and then it hears of what others sequence all the same. Polls are an hour
// apart, after those that come soon.
func TestEveryReaderProbes(t *testing.T) {
	t.Parallel()
	const n = 3
	readers := map[string]func(t *testing.T, db *pgtest.DB, probe time.Duration){
		"subscriber": func(t *testing.T, db *pgtest.DB, probe time.Duration) {
			config := outbox.Config{Pool: db.Pool, PollInterval: time.Hour, ProbeInterval: probe}
			messages := subscribe(t, newSubscriber(t, config), outbox.TopicAll)
			for range n {
				enqueue(t, db, 1)
				positions(t, messages, 1)
			}
		},
		"projector": func(t *testing.T, db *pgtest.DB, probe time.Duration) {
			p := newTally(t, db, "one")
			config := outbox.ProjectorConfig{Pool: db.Pool, PollInterval: time.Hour, ProbeInterval: probe}
			projector, err := outbox.NewProjector(config, p)
			if err != nil {
				t.Fatal(err)
			}
			run(t, projector)
			for i := range ledger.Position(n) {
				enqueue(t, db, 1)
				waitCursor(t, db, p.cursor(), i+1)
			}
		},
		"relay": func(t *testing.T, db *pgtest.DB, probe time.Duration) {
			broker := make(counter, n)
			relay, err := outbox.NewRelay(outbox.RelayConfig{
				Pool: db.Pool, Name: "one", Publisher: broker, PollInterval: time.Hour, ProbeInterval: probe,
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(background(t))
			ended := make(chan error, 1)
			go func() { ended <- relay.Run(ctx) }()
			t.Cleanup(func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
			for range n {
				enqueue(t, db, 1)
				select {
				case <-broker:
				case <-time.After(patience):
					t.Fatal("nothing is published")
				}
			}
		},
	}
	for name, read := range readers {
		for _, probe := range []time.Duration{0, -1} {
			t.Run(fmt.Sprintf("%s %d", name, probe), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				read(t, db, probe)
				const listening = `
					select count(*) = 1 from pg_stat_activity
					where datname = current_database() and query like $1`
				like := "-- listening on daybook_sequenced%"
				if probe < 0 {
					like = "listen %" // and nothing since
				}
				pgtest.WaitFor(t, patience, func() bool {
					var found bool
					err := db.Pool.QueryRow(t.Context(), listening, like).Scan(&found)
					return err == nil && found
				}, "the last statement of the connection that listens is like %q", like)
				if status, err := ledger.ReadStatus(t.Context(), db.Pool); err != nil || status.Listeners != 1 {
					t.Errorf("%d listen (%v)", status.Listeners, err)
				}
			})
		}
	}
}
