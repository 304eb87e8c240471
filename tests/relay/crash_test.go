package relay_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// The relay is stopped and started again at every position of a ledger: no loss, no gap, and nothing comes twice.
func TestRestartAtEveryPosition(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const events = 200
	appendEvents(t, db, events, 7)
	b := newBroker(t)
	for range events {
		ctx, cancel := context.WithCancel(t.Context())
		b.deliver = func(string, *message.Message, outbox.Attributes) error {
			cancel()
			return nil
		}
		if err := newRelay(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, Lanes: 1, PageSize: 50, PollOnly: true}).Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	// The first event of a page is the first one to be published, and the end lets it be acknowledged: so each run moves by one.
	b.checkComplete(t, events)
	if b.count() != events {
		t.Errorf("%d messages for %d events", b.count(), events)
	}
	waited := cursorAt(t, db, "test")
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b})
	waitCursor(t, db, "test", events)
	t.Logf("%d messages for %d events; the cursor was at %d after %d runs", b.count(), events, waited, events)
}

// The same where all events are of one key: then the order is that of positions, and nothing at all comes twice.
func TestRestartAtEveryPositionOfOneKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const events = 200
	appendEvents(t, db, events, 1)
	b := newBroker(t)
	for range events {
		ctx, cancel := context.WithCancel(t.Context())
		b.deliver = func(string, *message.Message, outbox.Attributes) error {
			cancel()
			return nil
		}
		if err := newRelay(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, PageSize: 50, PollOnly: true}).Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(series(1, events), b.positions()); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
}

// The relay is stopped at random points, without time for what is under way.
func TestRestartAtRandomPoints(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const events = 1500
	appendEvents(t, db, events, 60)
	b := newBroker(t)
	runs := 0
	for ; cursorAt(t, db, "test") < events; runs++ {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		left := rand.IntN(120)
		b.decide(func(string, *message.Message, outbox.Attributes) error {
			mu.Lock()
			defer mu.Unlock()
			left--
			if left < 0 {
				cancel()
			}
			return nil
		})
		go func() {
			// The last run has nothing to be stopped by but this.
			for ctx.Err() == nil && cursorAt(t, db, "test") < events {
				pause(ctx)
			}
			cancel()
		}()
		relay := newRelay(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, PageSize: 100, CloseGrace: time.Nanosecond})
		if err := relay.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	b.checkComplete(t, events)
	t.Logf("%d runs, %d messages for %d events", runs, b.count(), events)
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Millisecond):
	}
}

// Several relays under one name: one works, and when it ends another takes over. Nothing is lost or comes twice.
func TestRelaysOfOneName(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const relays, events = 4, 800
	b := newBroker(t)
	var all []*running
	for range relays {
		// A lease that nobody loses by being slow: who ends gives it back.
		all = append(all, start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, PageSize: 20, Lease: 20 * time.Second}))
	}
	for i := range relays {
		appendEvents(t, db, events/relays, 11)
		waitCursor(t, db, "test", ledger.Position((i+1)*events/relays))
		if i < relays-1 {
			all[i].end()
		}
	}
	b.checkComplete(t, events)
	if b.count() != events {
		t.Errorf("%d messages for %d events", b.count(), events)
	}
}

// A relay that is not heard of any more, because its connections hang, is replaced; when it is back, no event is lost and
// none overtakes. The lease is stolen in the midst of pages, again and again.
func TestLeaseIsStolen(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const events = 600
	appendEvents(t, db, events, 20)
	// Two brokers that share what they got: they publish the same keys at once, which here is no failure.
	var mu sync.Mutex
	var got []delivery
	publisher := func() *broker {
		b := newBroker(t)
		b.deliver = func(topic string, msg *message.Message, a outbox.Attributes) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, delivery{a, topic, msg})
			if len(got)%50 == 0 && len(got) < 2000 {
				db.Exec(t, `
					update daybook.relay_lease
					set holder = gen_random_uuid(), expires_at = clock_timestamp() + interval '20 milliseconds'`)
			}
			return nil
		}
		return b
	}
	for range 2 {
		start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: publisher(), PageSize: 40, Lease: 30 * time.Millisecond})
	}
	waitCursor(t, db, "test", events)
	mu.Lock()
	defer mu.Unlock()
	checkComplete(t, got, events)
}

// The environment of a relay that will be killed.
const (
	victimURL  = "DAYBOOK_TEST_RELAY_URL"
	victimFile = "DAYBOOK_TEST_RELAY_FILE"
)

// relayUntilKilled is another process: it relays to a file, line by line.
func relayUntilKilled(url, path string) int {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Pool: pool, Name: "victim", Publisher: filePublisher{file}, PageSize: 50, Lease: 60 * time.Millisecond,
		PollInterval: 5 * time.Millisecond, RetryInterval: 10 * time.Millisecond,
	})
	if err == nil {
		err = relay.Run(ctx)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// filePublisher appends a line for each message. One short write to a file is whole or not there at all.
type filePublisher struct{ file *os.File }

func (p filePublisher) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		line := msg.Metadata[outbox.MetadataSequence] + " " + msg.Metadata[outbox.MetadataPartitionKey] + "\n"
		if _, err := p.file.WriteString(line); err != nil {
			return err
		}
	}
	return nil
}

func (filePublisher) Close() error { return nil }

// Relays in processes of their own are killed in the midst, while writers go on.
func TestKilledRelay(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	path := filepath.Join(t.TempDir(), "published")
	const kills, each = 12, 300
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func() *exec.Cmd {
		cmd := exec.Command(program, "-test.run=^$")
		cmd.Env = append(slices.Clone(os.Environ()), victimURL+"="+db.URL, victimFile+"="+path)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	end := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it says that it was killed
	}
	for range kills {
		appendEvents(t, db, each, 25)
		before := published(t, path)
		target := len(before) + 1 + rand.IntN(each)
		cmd := run()
		pgtest.WaitFor(t, patience, func() bool {
			return len(published(t, path)) >= target || cursorAt(t, db, "victim") >= 1 && len(published(t, path)) > len(before)
		}, "the relay publishes")
		end(cmd)
	}
	cmd := run()
	defer end(cmd)
	waitCursor(t, db, "victim", kills*each)
	got := published(t, path)
	checkComplete(t, got, kills*each)
	t.Logf("%d kills, %d messages for %d events", kills, len(got), kills*each)
}

func published(t *testing.T, path string) []delivery {
	t.Helper()
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []delivery
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		position, key, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseInt(position, 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		all = append(all, delivery{Attributes: outbox.Attributes{Position: ledger.Position(n), KeyDigest: ledger.KeyDigest(key)}})
	}
	return all
}
