package commands

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/daybook-go/daybook/ledger"
)

// instrumentation is the name under which this package measures and traces.
const instrumentation = "github.com/daybook-go/daybook/commands"

// telemetry tells what a running process does. Its counters are the only trace that a replay leaves. Attributes are
// queue, type, mode and outcome; never scope or key, which are many and may be secret.
type telemetry struct {
	outcomes metric.Int64Counter
	duration metric.Float64Histogram
	tracer   trace.Tracer
	logger   *slog.Logger
}

func newTelemetry(config Config) (*telemetry, error) {
	meters, tracers, logger := config.MeterProvider, config.TracerProvider, config.Logger
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	meter := meters.Meter(instrumentation)
	outcomes, err := meter.Int64Counter("daybook.enqueue.outcomes",
		metric.WithDescription("Requests that PostgreSQL has decided."), metric.WithUnit("{request}"))
	if err != nil {
		return nil, fmt.Errorf("daybook: make a counter: %w", err)
	}
	duration, err := meter.Float64Histogram("daybook.enqueue.duration",
		metric.WithDescription("How long a call took, single or batch."), metric.WithUnit("s"))
	if err != nil {
		return nil, fmt.Errorf("daybook: make a histogram: %w", err)
	}
	return &telemetry{outcomes: outcomes, duration: duration, tracer: tracers.Tracer(instrumentation), logger: logger}, nil
}

// call is one call under way.
type call struct {
	*telemetry
	ctx         context.Context //nolint:containedctx // it lives as long as the call, and carries its span
	span        trace.Span
	name        string
	start       time.Time
	traceparent *string
}

// begin opens the call's span and renders the W3C trace context that its events will carry.
func (t *telemetry) begin(ctx context.Context, name string) *call {
	ctx, span := t.tracer.Start(ctx, "daybook."+name, trace.WithSpanKind(trace.SpanKindProducer))
	c := &call{telemetry: t, ctx: ctx, span: span, name: name, start: time.Now()}
	if span.SpanContext().IsValid() {
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		if traceparent := carrier.Get("traceparent"); traceparent != "" {
			c.traceparent = &traceparent
		}
	}
	return c
}

// decided is a request with its answer.
type decided struct {
	request *request
	result  *EnqueueResult
}

func (c *call) end(err error, all ...decided) {
	defer c.span.End()
	elapsed := time.Since(c.start)
	// Where nobody listens, attributes are not even made: those of a large batch are many.
	measured := c.outcomes.Enabled(c.ctx) || c.duration.Enabled(c.ctx) || c.span.IsRecording()
	for _, d := range all {
		if d.result.Outcome == "" {
			continue
		}
		c.log(d)
		if !measured {
			continue
		}
		set := d.attributes()
		c.outcomes.Add(c.ctx, 1, metric.WithAttributeSet(set))
		if len(all) == 1 {
			c.duration.Record(c.ctx, elapsed.Seconds(), metric.WithAttributeSet(set))
			c.span.SetAttributes(set.ToSlice()...)
			c.span.SetAttributes(attribute.String("daybook.job_id", d.result.JobID.String()))
		}
	}
	if len(all) > 1 {
		c.duration.Record(c.ctx, elapsed.Seconds(), metric.WithAttributes(attribute.String("outcome", "batch")))
		c.span.SetAttributes(attribute.Int("daybook.batch", len(all)))
	}
	if err != nil {
		// The errors of this package hold digests only; a driver's error may hold anything, so its text stays out.
		c.span.SetStatus(codes.Error, fmt.Sprintf("%T", err))
	}
}

func (d decided) attributes() attribute.Set {
	mode := "none"
	if d.request.mode != nil {
		mode = *d.request.mode
	}
	return attribute.NewSet(
		attribute.String("queue", d.request.queue),
		attribute.String("type", d.request.typ),
		attribute.String("mode", mode),
		attribute.String("outcome", string(d.result.Outcome)),
	)
}

func (c *call) log(d decided) {
	level := slog.LevelDebug
	if d.result.Conflict != nil {
		level = slog.LevelInfo
	}
	if !c.logger.Enabled(c.ctx, level) {
		return
	}
	attributes := []slog.Attr{
		slog.String("outcome", string(d.result.Outcome)),
		slog.String("job_id", d.result.JobID.String()),
		slog.String("queue", d.request.queue),
		slog.String("type", d.request.typ),
	}
	if d.request.keyHash != nil {
		attributes = append(attributes, slog.String("key_digest", ledger.KeyHash(d.request.keyHash).String()))
	}
	if d.result.Conflict != nil {
		attributes = append(attributes, slog.Any("fields", d.result.Conflict.Fields))
	}
	c.logger.LogAttrs(c.ctx, level, "daybook: request decided", attributes...)
}
