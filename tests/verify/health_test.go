package verify_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func readStatus(t testing.TB, db ledger.Querier) ledger.Status {
	t.Helper()
	status, err := ledger.ReadStatus(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// A subscriber, a projector and a relay say that they are there while there is nothing to do, and are remembered when they are gone:
// with a lag of 0, and an age that grows.
func TestRunnersAreHeardOf(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	fill(t, db, 3)
	ctx, stop := context.WithCancel(t.Context())
	subscriber, err := outbox.NewSubscriber(outbox.Config{Pool: db.Pool, ConsumerGroup: "mailer"})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := subscriber.Subscribe(ctx, outbox.TopicAll)
	if err != nil {
		t.Fatal(err)
	}
	runner, err := projections.NewRunner(projections.Builtin()[0], projections.RunnerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	projector, err := outbox.NewProjector(outbox.ProjectorConfig{Pool: db.Pool}, runner)
	if err != nil {
		t.Fatal(err)
	}
	relay, err := outbox.NewRelay(outbox.RelayConfig{Pool: db.Pool, Name: "broker", Publisher: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- projector.Run(ctx) }()
	go func() { ended <- relay.Run(ctx) }()
	for range 3 {
		(<-messages).Ack()
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	pid := int32(os.Getpid())
	want := []ledger.RunnerStatus{
		{Name: "mailer/" + outbox.TopicAll, Kind: ledger.RunnerSubscriber, Host: host, PID: pid},
		{Name: projections.CursorName(runner.Name()), Kind: ledger.RunnerProjection, Host: host, PID: pid},
		{Name: outbox.RelayCursorName("broker"), Kind: ledger.RunnerRelay, Host: host, PID: pid},
	}
	withoutAge := cmpopts.IgnoreFields(ledger.RunnerStatus{}, "BeatAge")
	pgtest.WaitFor(t, patience, func() bool {
		s := readStatus(t, db.AsRole(t, "daybook_operator"))
		behind := int64(0)
		for _, c := range s.Cursors {
			behind += c.Lag.Events
		}
		return cmp.Equal(want, s.Runners, withoutAge) && len(s.Cursors) == 3 && behind == 0
	}, "all are heard of and have caught up")

	// They go on saying so, idle as they are.
	db.Exec(t, `update daybook.runner_beat set beat_at = beat_at - interval '1 hour'`)
	pgtest.WaitFor(t, patience, func() bool {
		for _, r := range readStatus(t, db.Pool).Runners {
			if r.BeatAge > time.Minute {
				return false
			}
		}
		return true
	}, "all are heard of again")
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if err := subscriber.Close(); err != nil {
		t.Error(err)
	}

	// Nobody runs any more. The lag does not tell.
	db.Exec(t, `update daybook.runner_beat set beat_at = beat_at - interval '1 hour'`)
	status := readStatus(t, db.Pool)
	if diff := cmp.Diff(want, status.Runners, withoutAge); diff != "" {
		t.Errorf("runners (-want +got):\n%s", diff)
	}
	for _, r := range status.Runners {
		if r.BeatAge < time.Hour {
			t.Errorf("%s was heard of %v ago", r.Name, r.BeatAge)
		}
	}
	for _, c := range status.Cursors {
		if c.Lag.Events != 0 {
			t.Errorf("%s is %d behind", c.Name, c.Lag.Events)
		}
	}
	for _, wantForgotten := range []bool{true, false} {
		forgotten, err := ledger.ForgetRunner(t.Context(), db.AsRole(t, "daybook_operator"), outbox.RelayCursorName("broker"))
		if err != nil || forgotten != wantForgotten {
			t.Errorf("forgotten %v, %v", forgotten, err)
		}
	}
	if n := len(readStatus(t, db.Pool).Runners); n != 2 {
		t.Errorf("%d runners are left", n)
	}
}

// nowhere is a publisher that takes everything.
type nowhere struct{}

func (nowhere) Publish(string, ...*message.Message) error { return nil }
func (nowhere) Close() error                              { return nil }

// A projection that has stopped is not heard of any more, although its process goes on.
func TestStoppedProjectionIsSilent(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	fill(t, db, 1)
	ok, err := projections.NewRunner(projections.Builtin()[0], projections.RunnerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	other := projections.Builtin()[1]
	// Another version than the tables hold, so it cannot begin.
	db.Exec(t, `insert into daybook.projection (name, version) values ($1, $2)`, other.Name, other.Version+1)
	broken, err := projections.NewRunner(other, projections.RunnerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	projector, err := outbox.NewProjector(outbox.ProjectorConfig{Pool: db.Pool}, ok, broken)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- projector.Run(ctx) }()
	pgtest.WaitFor(t, patience, func() bool { return len(projector.Failed()) == 1 }, "one has failed")
	beaten := func(name string) bool {
		return one[int64](t, db.Pool, `select count(*) from daybook.runner_beat where name = $1 and beat_at > '2021-01-01Z'`, name) == 1
	}
	// A beat that was under way when it failed may still arrive, and no second one.
	pgtest.WaitFor(t, patience, func() bool {
		db.Exec(t, `update daybook.runner_beat set beat_at = '2020-01-01Z'`)
		pgtest.WaitFor(t, patience, func() bool { return beaten(projections.CursorName(ok.Name())) }, "the other one is heard of again")
		return !beaten(projections.CursorName(other.Name))
	}, "the one that has stopped is not heard of")
	stop()
	if err := <-ended; err == nil {
		t.Error("Run returned nil, although a projection had failed")
	}
}

// The gauges say what the status says.
func TestLagMetrics(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	fill(t, db, 5)
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	registration, err := ledger.RegisterLagMetrics(provider.Meter("test"), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mailer/all", "projection:view_key", "rebuild:view_key", "relay:broker"} {
		if _, err := ledger.OpenCursor(t.Context(), db.Pool, name, 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := ledger.Beat(t.Context(), db.Pool, ledger.RunnerRelay, "host", 7, "relay:broker"); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `update daybook.runner_beat set beat_at = clock_timestamp() - interval '1 hour'`)
	db.Exec(t, `insert into daybook.parked (relay, position, event_id, attempts, order_key, reason, parked_at, redriven_at)
		select 'broker', n, n, 1, '\x00', 'reason', clock_timestamp() - interval '2 hours', case when n = 3 then now() end from generate_series(1, 3) as n`)
	// One event waits for its position, and one transaction holds a gap.
	holder, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	const appendEvent = `with xid as materialized (select pg_current_xact_id())
		insert into daybook.event (recorded_at, kind, body) select clock_timestamp() - interval '3 hours', 'job.started', '{}' from xid`
	if _, err := holder.Exec(t.Context(), appendEvent); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, appendEvent)
	sequence(t, db.Pool)
	db.Exec(t, appendEvent)

	counts, ages := collect(t, reader)
	wantCounts := map[string]int64{
		"daybook.committed": 7, "daybook.sequenced": 6, "daybook.sequencing.lag": 1, "daybook.gaps": 1, "daybook.gaps.ids": 1,
		"daybook.parked": 2, "daybook.swept": 0, "daybook.epoch": 1,
		"daybook.reader.lag reader=mailer/all stage=published":          5,
		"daybook.reader.lag reader=projection:view_key stage=projected": 5,
		"daybook.reader.lag reader=relay:broker stage=published":        5,
	}
	if diff := cmp.Diff(wantCounts, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	for name, least := range map[string]time.Duration{
		"daybook.sequencing.age": 3 * time.Hour, "daybook.parked.age": 2 * time.Hour, "daybook.gaps.holder_age": 1,
		"daybook.runner.beat_age kind=relay runner=relay:broker": time.Hour, "daybook.reader.age reader=mailer/all stage=published": 3 * time.Hour,
	} {
		if got, ok := ages[name]; !ok || got < least.Seconds() || got > least.Seconds()+patience.Seconds() {
			t.Errorf("%s is %v, want at least %v", name, got, least)
		}
	}
	// Who may not know how old that transaction is says nothing of it.
	blind := sdkmetric.NewManualReader()
	if _, err := ledger.RegisterLagMetrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(blind)).Meter("test"), db.AsRole(t, "daybook_operator")); err != nil {
		t.Fatal(err)
	}
	counts, ages = collect(t, blind)
	if _, told := ages["daybook.gaps.holder_age"]; told || counts["daybook.gaps"] != 1 {
		t.Errorf("an operator is told %v, %v", counts, ages)
	}
	if err := registration.Unregister(); err != nil {
		t.Fatal(err)
	}
	if counts, _ := collect(t, reader); len(counts) != 0 {
		t.Errorf("unregistered, it tells %v", counts)
	}
}

// collect returns what the gauges say, by name and attributes.
func collect(t *testing.T, reader sdkmetric.Reader) (counts map[string]int64, ages map[string]float64) {
	t.Helper()
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &collected); err != nil {
		t.Fatal(err)
	}
	counts, ages = map[string]int64{}, map[string]float64{}
	named := func(name string, set attribute.Set) string {
		for _, kv := range set.ToSlice() {
			name += " " + string(kv.Key) + "=" + kv.Value.AsString()
		}
		return name
	}
	for _, scope := range collected.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				for _, point := range data.DataPoints {
					counts[named(m.Name, point.Attributes)] = point.Value
				}
			case metricdata.Gauge[float64]:
				for _, point := range data.DataPoints {
					ages[named(m.Name, point.Attributes)] = point.Value
				}
			default:
				t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	return counts, ages
}
