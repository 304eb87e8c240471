package outbox

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/daybook-go/daybook/ledger"
)

// relayTelemetry tells what a relay does. Attributes are the relay's name and the kind; never scope or key.
type relayTelemetry struct {
	relay         attribute.KeyValue
	publishes     metric.Int64Counter
	failures      metric.Int64Counter
	parks         metric.Int64Counter
	delay         metric.Float64Histogram
	position, lag metric.Int64Gauge
}

func newRelayTelemetry(provider metric.MeterProvider, relay string) (*relayTelemetry, error) {
	meter := provider.Meter(instrumentation)
	t := &relayTelemetry{relay: attribute.String("relay", relay)}
	counter := func(into *metric.Int64Counter, name, description, unit string) error {
		var err error
		*into, err = meter.Int64Counter(name, metric.WithDescription(description), metric.WithUnit(unit))
		return err
	}
	gauge := func(into *metric.Int64Gauge, name, description, unit string) error {
		var err error
		*into, err = meter.Int64Gauge(name, metric.WithDescription(description), metric.WithUnit(unit))
		return err
	}
	var err error
	for _, e := range []error{
		counter(&t.publishes, "daybook.relay.published", "Events that the broker has acknowledged.", "{event}"),
		counter(&t.failures, "daybook.relay.failures", "Attempts to publish that failed.", "{attempt}"),
		counter(&t.parks, "daybook.relay.parked", "Events set aside, those behind an earlier event of their key included.", "{event}"),
		gauge(&t.position, "daybook.relay.position", "The position of the relay's cursor.", "{position}"),
		gauge(&t.lag, "daybook.relay.lag", "Events that have a position and are neither published nor parked.", "{event}"),
	} {
		if e != nil {
			err = e
		}
	}
	if err == nil {
		t.delay, err = meter.Float64Histogram("daybook.relay.delay",
			metric.WithDescription("From when an event got its position, by the database's clock, until the broker acknowledged it, by this process's."),
			metric.WithUnit("s"))
	}
	if err != nil {
		return nil, fmt.Errorf("daybook: make the relay's instruments: %w", err)
	}
	return t, nil
}

func (t *relayTelemetry) of(event ledger.Event) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(t.relay, attribute.String("kind", string(event.Kind))))
}

func (t *relayTelemetry) published(ctx context.Context, event ledger.Event) {
	t.publishes.Add(ctx, 1, t.of(event))
	t.delay.Record(ctx, max(0, time.Since(event.SequencedAt).Seconds()), t.of(event))
}

func (t *relayTelemetry) failed(ctx context.Context, event ledger.Event) {
	t.failures.Add(ctx, 1, t.of(event))
}

func (t *relayTelemetry) parked(ctx context.Context, event ledger.Event) {
	t.parks.Add(ctx, 1, t.of(event))
}

// at says where the relay is.
func (t *relayTelemetry) at(ctx context.Context, cursor, head ledger.Position) {
	relay := metric.WithAttributes(t.relay)
	t.position.Record(ctx, int64(cursor), relay)
	t.lag.Record(ctx, int64(max(0, head-cursor)), relay)
}
