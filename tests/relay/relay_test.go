package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// Every event once, in order for each key, and many at a time.
func TestOrderPerKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const events = 600
	appendEvents(t, db, events, 40)
	b := newBroker(t)
	var meet sync.WaitGroup
	meet.Add(8)
	b.deliver = func(_ string, _ *message.Message, a outbox.Attributes) error {
		if a.Position <= 8 {
			// Those of eight keys, so they are under way together: each waits for the others.
			meet.Done()
			meet.Wait()
		}
		return nil
	}
	r := start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, Lanes: 8, PageSize: 250})
	waitCursor(t, db, "test", events)
	r.end()

	b.checkComplete(t, events)
	if b.count() != events {
		t.Errorf("%d messages for %d events", b.count(), events)
	}
	if b.most != 8 {
		t.Errorf("%d messages were under way at once, want the 8 of Lanes", b.most)
	}
	for _, d := range b.deliveries() {
		if d.topic != "daybook.events.enqueue.accepted" || d.msg.UUID != d.msg.Metadata["ce-id"] {
			t.Fatalf("topic %s, UUID %s, metadata %v", d.topic, d.msg.UUID, d.msg.Metadata)
		}
	}
}

// Events of one job without a key keep their order too.
func TestOrderPerJob(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, `
		insert into daybook.event (recorded_at, job_id, kind, body)
		select daybook.clock(), uuid_in(md5((n % 3)::text)::cstring), 'job.started', '{"v":1}'
		from generate_series(1, 90) as n`)
	b := newBroker(t)
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b})
	waitCursor(t, db, "test", 90)
	b.checkComplete(t, 90)
}

func TestKindsAndTopicAndStart(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	appendEvents(t, db, 20, 5)
	db.Exec(t, `
		insert into daybook.event (recorded_at, job_id, kind, body)
		select daybook.clock(), gen_random_uuid(), 'job.failed', '{"v":1}' from generate_series(1, 2) as n`)
	appendEvents(t, db, 20, 5)
	b := newBroker(t)
	start(t, outbox.RelayConfig{
		Pool: db.Pool, Publisher: b, PageSize: 10, Kinds: []ledger.Kind{ledger.KindJobFailed},
		Start: outbox.FromAfter(21), Topic: func(event ledger.Event) string { return "alarms" },
	})
	// The cursor moves over other kinds as well.
	waitCursor(t, db, "test", 42)
	if got := b.deliveries(); len(got) != 1 || got[0].Position != 22 || got[0].topic != "alarms" {
		t.Errorf("got %+v", got)
	}
}

// While a publisher hangs, the relay has no transaction open, no lock, and no connection in use.
func TestHangingPublisherHoldsNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	appendEvents(t, db, 50, 10)
	pool := db.AsRole(t, "daybook_relay")
	hang := make(chan struct{})
	var hanging atomic.Int64
	b := newBroker(t)
	b.deliver = func(string, *message.Message, outbox.Attributes) error {
		hanging.Add(1)
		<-hang
		return nil
	}
	// Without the probe, whose statements would be seen in passing.
	start(t, outbox.RelayConfig{Pool: pool, Publisher: b, Lanes: 10, PollOnly: true, ProbeInterval: -1})
	pgtest.WaitFor(t, patience, func() bool { return hanging.Load() == 10 }, "every lane hangs")

	var hangs time.Time
	if err := db.Pool.QueryRow(t.Context(), `select clock_timestamp()`).Scan(&hangs); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		// Saying that it is there is a statement by itself, and may be under way; anything older, or that waits for
		// its client, is not.
		var backends, inTransaction, locks int
		err := db.Pool.QueryRow(t.Context(), `
			with held as (
				select a.pid, a.state like 'idle in transaction%' or a.xact_start <= $1 as in_transaction
				from pg_stat_activity as a
				where a.datname = current_database() and a.usename is not null and a.pid <> pg_backend_pid()
			)
			select
				count(*),
				count(*) filter (where h.in_transaction),
				count(*) filter (where exists (
					select from pg_locks as l
					join pg_stat_activity as a on a.pid = l.pid
					where l.pid = h.pid and (a.state <> 'active' or a.xact_start <= $1)
				))
			from held as h`, hangs).
			Scan(&backends, &inTransaction, &locks)
		if err != nil {
			t.Fatal(err)
		}
		if used := pool.Stat().AcquiredConns(); backends == 0 || inTransaction != 0 || locks != 0 || used > 2 {
			t.Fatalf("of %d backends %d have a transaction and %d a lock; %d connections are in use",
				backends, inTransaction, locks, used)
		}
		// Somebody may change whatever the relay has read, its cursor and its lease included.
		db.Exec(t, `update daybook.cursor set updated_at = clock_timestamp()`)
		db.Exec(t, `update daybook.relay_lease set beat_at = clock_timestamp()`)
	}
	if at := cursorAt(t, db, "test"); at != 0 {
		t.Errorf("the cursor is at %d before anything is acknowledged", at)
	}
	close(hang)
	waitCursor(t, db, "test", 50)
	b.checkComplete(t, 50)
}

// A publisher that hangs does not keep Run from ending.
func TestEndWhilePublisherHangs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	appendEvents(t, db, 30, 0)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	var hanging atomic.Int64
	b := newBroker(t)
	b.deliver = func(_ string, msg *message.Message, a outbox.Attributes) error {
		if a.Position <= 10 {
			return nil
		}
		hanging.Add(1)
		<-hang
		return nil
	}
	r := start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, Lanes: 4, CloseGrace: time.Millisecond})
	pgtest.WaitFor(t, patience, func() bool { return hanging.Load() == 4 }, "every lane hangs")
	r.end()
	// What was acknowledged does not come again.
	if at := cursorAt(t, db, "test"); at != 10 {
		t.Errorf("the cursor is at %d, want 10", at)
	}
	next := newBroker(t)
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: next})
	waitCursor(t, db, "test", 30)
	slices.SortFunc(next.got, func(a, b delivery) int { return int(a.Position - b.Position) })
	if diff := cmp.Diff(series(11, 30), next.positions()); diff != "" {
		t.Errorf("published by the next run (-want +got):\n%s", diff)
	}
}

// hanging is a publisher that hangs in the first attempts at some positions, and acknowledges all else.
type hanging struct {
	from, through ledger.Position
	free          chan struct{}

	mu   sync.Mutex
	hung map[ledger.Position]context.Context // of the messages
	got  []ledger.Position
}

func (h *hanging) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		a, err := outbox.AttributesOf(msg)
		if err != nil {
			return err
		}
		h.mu.Lock()
		hangs := a.Position >= h.from && a.Position <= h.through && h.hung[a.Position] == nil
		if hangs {
			h.hung[a.Position] = msg.Context()
		} else {
			h.got = append(h.got, a.Position)
		}
		h.mu.Unlock()
		if hangs {
			<-h.free
		}
	}
	return nil
}

func (*hanging) Close() error { return nil }

// abandoned says whether all of them hang, or hung, and nobody waits for them any more; waited whether they hang at all.
func (h *hanging) abandoned() (waited, abandoned bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	waited = len(h.hung) == int(h.through-h.from+1)
	abandoned = waited
	for _, ctx := range h.hung {
		abandoned = abandoned && ctx.Err() != nil
	}
	return waited, abandoned
}

// A relay whose lease is lost while its publisher hangs, in every lane, stops waiting for it, leaves the cursor to the other
// one, and is ready to take over again.
func TestLeaseIsLostWhilePublisherHangs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const lanes, events = 4, 30
	appendEvents(t, db, events, 0)
	p := &hanging{from: 11, through: 10 + lanes, free: make(chan struct{}), hung: map[ledger.Position]context.Context{}}
	defer close(p.free)
	// A lease that is not lost by being slow: the relay gives it up after 10 s without a renewal, and renews it every 5 s.
	start(t, outbox.RelayConfig{
		Pool: db.Pool, Publisher: p, Lanes: lanes, PageSize: events, Lease: 15 * time.Second, CloseGrace: time.Millisecond,
	})
	pgtest.WaitFor(t, patience, func() bool { waited, _ := p.abandoned(); return waited }, "every lane hangs")
	db.Exec(t, `update daybook.relay_lease set holder = gen_random_uuid(), expires_at = clock_timestamp() + interval '1 hour'`)
	pgtest.WaitFor(t, patience, func() bool { _, abandoned := p.abandoned(); return abandoned }, "the relay stops waiting")
	if at := cursorAt(t, db, "test"); at != 0 {
		t.Errorf("the cursor is at %d, and not the relay's any more", at)
	}
	db.Exec(t, `delete from daybook.relay_lease`)
	waitCursor(t, db, "test", events)

	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.got)
	want := append(series(1, 10), series(1, events)...)
	slices.Sort(want)
	if diff := cmp.Diff(want, p.got); diff != "" {
		t.Errorf("acknowledged (-want +got):\n%s", diff)
	}
}

// The broker goes away in the midst, for longer than an event would be tried, and comes back.
func TestBrokerAway(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const events = 300
	appendEvents(t, db, events, 30)
	var away atomic.Bool
	var failed atomic.Int64
	b := newBroker(t)
	b.deliver = func(_ string, _ *message.Message, a outbox.Attributes) error {
		if a.Position == 150 && failed.Load() == 0 {
			away.Store(true)
		}
		if away.Load() {
			if failed.Add(1) == 100 {
				away.Store(false)
			}
			return fmt.Errorf("publish: %w", context.DeadlineExceeded)
		}
		return nil
	}
	r := start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, Lanes: 8, PageSize: 64, MaxAttempts: 2})
	waitCursor(t, db, "test", events)
	r.end()
	b.checkComplete(t, events)
	if b.count() != events {
		t.Errorf("%d messages for %d events", b.count(), events)
	}
	if got := parked(t, db, "test"); len(got) != 0 {
		t.Errorf("parked while the broker was away: %v", got)
	}
}

// While the broker is away it is tried by one lane, and not by all.
func TestOneLaneTriesTheBroker(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	appendEvents(t, db, 64, 0)
	var attempts, first atomic.Int64
	var at sync.Mutex
	var underWay, most int
	b := newBroker(t)
	b.deliver = func(string, *message.Message, outbox.Attributes) error {
		if attempts.Add(1) > 16 {
			// The sixteen lanes have all met the outage by now.
			at.Lock()
			underWay++
			most = max(most, underWay)
			at.Unlock()
			defer func() {
				at.Lock()
				underWay--
				at.Unlock()
			}()
		}
		if first.Add(1) <= 60 {
			return context.DeadlineExceeded
		}
		return nil
	}
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, Lanes: 16})
	pgtest.WaitFor(t, patience, func() bool { return attempts.Load() >= 60 }, "the broker is tried again")
	at.Lock()
	got := most
	at.Unlock()
	if got != 1 {
		t.Errorf("%d lanes tried at once a broker that is away", got)
	}
	waitCursor(t, db, "test", 64)
}

// A context that was cancelled, whoever did it, is never the event's fault.
func TestCancelledIsNotPoison(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	appendEvents(t, db, 3, 0)
	var tries atomic.Int64
	b := newBroker(t)
	b.deliver = func(string, *message.Message, outbox.Attributes) error {
		if tries.Add(1) <= 20 {
			return fmt.Errorf("closing: %w", context.Canceled)
		}
		return nil
	}
	start(t, outbox.RelayConfig{
		Pool: db.Pool, Publisher: b, MaxAttempts: 1, Poison: func(error) bool { return true },
	})
	waitCursor(t, db, "test", 3)
	if got := parked(t, db, "test"); len(got) != 0 || b.count() != 3 {
		t.Errorf("%d published, parked: %v", b.count(), got)
	}
}

// Connections to PostgreSQL are cut again and again: the relay goes on.
func TestDatabaseConnectionsCut(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.AsRole(t, "daybook_relay")
	const events = 400
	appendEvents(t, db, events, 50)
	b := newBroker(t)
	var published atomic.Int64
	b.deliver = func(string, *message.Message, outbox.Attributes) error {
		if published.Add(1)%40 == 0 {
			db.Exec(t, `
				select pg_terminate_backend(a.pid) from pg_stat_activity as a
				where a.datname = current_database() and a.query like '%daybook.%' and a.pid <> pg_backend_pid() and a.state = 'idle'
					and a.application_name = ''`)
		}
		return nil
	}
	r := start(t, outbox.RelayConfig{Pool: pool, Publisher: b, PageSize: 30, Lease: 200 * time.Millisecond})
	waitCursor(t, db, "test", events)
	r.end()
	b.checkComplete(t, events)
}

// The ledger's epoch has changed: Run ends and says what to do.
func TestEpochChange(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	appendEvents(t, db, 5, 0)
	relay := newRelay(t, outbox.RelayConfig{Pool: db.Pool, Publisher: newBroker(t)})
	done := make(chan error, 1)
	go func() { done <- relay.Run(t.Context()) }()
	waitCursor(t, db, "test", 5)
	if err := relay.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("Run twice at once: %v", err)
	}
	db.Exec(t, `update daybook.meta set epoch = epoch + 1`)
	appendEvents(t, db, 1, 0)
	err := <-done
	var epoch *ledger.EpochError
	if !errors.As(err, &epoch) || !strings.Contains(err.Error(), "run daybook doctor") {
		t.Errorf("got %v", err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	appendEvents(t, db, 10, 5)
	reader := metric.NewManualReader()
	b := newBroker(t)
	b.deliver = func(_ string, _ *message.Message, a outbox.Attributes) error {
		if a.Position == 5 {
			return errRefused
		}
		return nil
	}
	r := start(t, outbox.RelayConfig{
		Pool: db.Pool, Publisher: b, MaxAttempts: 3, MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
	})
	waitCursor(t, db, "test", 10)
	r.end()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				got[m.Name] = data.DataPoints[0].Value
			case metricdata.Gauge[int64]:
				got[m.Name] = data.DataPoints[0].Value
			case metricdata.Histogram[float64]:
				got[m.Name] = int64(data.DataPoints[0].Count)
			}
		}
	}
	want := map[string]int64{
		// Position 10 is of the key of 5, and waits behind it.
		"daybook.relay.published": 8, "daybook.relay.delay": 8, "daybook.relay.parked": 2, "daybook.relay.failures": 3,
		"daybook.relay.position": 10, "daybook.relay.lag": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	good := outbox.RelayConfig{Pool: db.Pool, Publisher: newBroker(t), Name: "a"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(c *outbox.RelayConfig){
		"Pool is required":      func(c *outbox.RelayConfig) { c.Pool = nil },
		"Publisher is required": func(c *outbox.RelayConfig) { c.Publisher = nil },
		"name is required":      func(c *outbox.RelayConfig) { c.Name = "" },
		"without /":             func(c *outbox.RelayConfig) { c.Name = "a/b" },
		"PageSize is":           func(c *outbox.RelayConfig) { c.PageSize = outbox.MaxPageSize + 1 },
		"Lanes is":              func(c *outbox.RelayConfig) { c.Lanes = -1 },
		"MaxAttempts":           func(c *outbox.RelayConfig) { c.MaxAttempts = -1 },
		"ParkLimit":             func(c *outbox.RelayConfig) { c.ParkLimit = -1 },
		"PollInterval is":       func(c *outbox.RelayConfig) { c.PollInterval = 1 },
		"ProbeInterval is":      func(c *outbox.RelayConfig) { c.ProbeInterval = 1 },
		"Lease is":              func(c *outbox.RelayConfig) { c.Lease = time.Millisecond },
		"CloseGrace":            func(c *outbox.RelayConfig) { c.CloseGrace = -1 },
		"Format is":             func(c *outbox.RelayConfig) { c.Format = "gob" },
		"there is no kind":      func(c *outbox.RelayConfig) { c.Kinds = []ledger.Kind{"job.done"} },
		"Start is":              func(c *outbox.RelayConfig) { c.Start = outbox.FromAfter(-1) },
	} {
		bad := good
		spoil(&bad)
		if _, err := outbox.NewRelay(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}
