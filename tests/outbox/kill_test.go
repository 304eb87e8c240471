package outbox_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// The environment of a subscriber that will be killed: where it reads, at which position its handler hangs, and how long
// it takes for each message before that.
const (
	victimURL   = "DAYBOOK_TEST_SUBSCRIBER_URL"
	victimHangs = "DAYBOOK_TEST_SUBSCRIBER_HANGS"
	victimTakes = "DAYBOOK_TEST_SUBSCRIBER_TAKES"
)

// subscribeUntilKilled is another process: it prints the position of each message that its handler is given.
func subscribeUntilKilled() error {
	hangs, err := strconv.ParseInt(os.Getenv(victimHangs), 10, 64)
	if err != nil {
		return err
	}
	takes, err := time.ParseDuration(os.Getenv(victimTakes))
	if err != nil {
		return err
	}
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(os.Getenv(victimURL))
	if err != nil {
		return err
	}
	// One for the page, one for the cursor, one for the beat: what has to dial first may be late.
	config.MinConns = 3
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	for pool.Stat().IdleConns() < config.MinConns {
		time.Sleep(time.Millisecond)
	}
	subscriber, err := outbox.NewSubscriber(outbox.Config{Pool: pool, ConsumerGroup: "test", PollInterval: 5 * time.Millisecond})
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, outbox.TopicAll)
	if err != nil {
		return err
	}
	for msg := range messages {
		attributes, err := outbox.AttributesOf(msg)
		if err != nil {
			return err
		}
		fmt.Println(attributes.Position)
		if int64(attributes.Position) == hangs {
			select {}
		}
		time.Sleep(takes) // the handler's work
		msg.Ack()
	}
	return subscriber.Err()
}

// subscriberThatHangs runs it until its handler hangs, and returns what it was given, and how to kill it.
func subscriberThatHangs(t *testing.T, db *pgtest.DB, at ledger.Position, takes time.Duration) (got []ledger.Position, kill func()) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^$")
	cmd.Env = append(slices.Clone(os.Environ()),
		victimURL+"="+db.URL, victimHangs+"="+strconv.FormatInt(int64(at), 10), victimTakes+"="+takes.String())
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it says that it was killed
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		n, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			kill()
			t.Fatal(err)
		}
		if got = append(got, ledger.Position(n)); ledger.Position(n) == at {
			return got, kill
		}
	}
	kill()
	t.Fatalf("the subscriber ended after %v, before position %d", got, at)
	return nil, nil
}

// A subscriber is killed in its handler: that message comes again and then the later ones, and none that was acked before.
func TestKilledInAHandler(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]time.Duration{
		// Each is written before the next is handed over, so it may be killed at any moment.
		"after slow messages": 25 * time.Millisecond,
		// What was acked within 20 ms is written while the next handler works.
		"in a slow message": 0,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const events = 120
			db := pgtest.New(t)
			enqueue(t, db, events)
			from := ledger.Position(1)
			// The first of all, one in the midst of the first page (of 16), its last, the first of the next one, and so on.
			for _, at := range []ledger.Position{1, 2, 10, 26, 27, 28, 44, 90} {
				got, kill := subscriberThatHangs(t, db, at, takes)
				if takes == 0 {
					waitCursor(t, db, "test/"+outbox.TopicAll, at-1)
				}
				kill()
				if diff := cmp.Diff(series(from, at), got); diff != "" {
					t.Errorf("killed at %d (-want +got):\n%s", at, diff)
				}
				from = at
			}
			messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll)
			if diff := cmp.Diff(series(from, events), positions(t, messages, events-int(from)+1)); diff != "" {
				t.Errorf("in the end (-want +got):\n%s", diff)
			}
		})
	}
}
