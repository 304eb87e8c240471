package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// lagMetrics are the instruments of RegisterLagMetrics.
type lagMetrics struct {
	committed, sequenced, gaps, gapIDs, swept, epoch       metric.Int64ObservableGauge
	sequencingLag, readerLag, parked                       metric.Int64ObservableGauge
	sequencingAge, readerAge, parkedAge, gapAge, runnerAge metric.Float64ObservableGauge
}

// RegisterLagMetrics makes gauges of what [ReadStatus] tells, each time that metrics are collected. Any exporter will do.
// OpenTelemetry's for Prometheus puts _ for each dot and leaves out the units in braces, so that daybook.reader.lag is
// daybook_reader_lag there; the ages, in seconds, get _seconds: daybook.reader.age is daybook_reader_age_seconds,
// daybook.runner.beat_age is daybook_runner_beat_age_seconds.
//
//	daybook.committed      {event}     events that have committed
//	daybook.sequenced      {position}  the last position given
//	daybook.sequencing.lag {event}     committed, without a position yet
//	daybook.sequencing.age s           how long the first of them has waited
//	daybook.reader.lag     {event}     committed, beyond a reader's cursor; by reader and stage
//	daybook.reader.age     s           how long the first of them has waited; likewise
//	daybook.runner.beat_age s          since a runner was last heard of; by runner and kind
//	daybook.parked         {event}     set aside by relays
//	daybook.parked.age     s           how long the first of them has been
//	daybook.gaps           {gap}       kept below the head
//	daybook.gaps.ids       {id}        covered by them
//	daybook.gaps.holder_age s          of the oldest transaction that keeps them; see [GapHolder] for who may know
//	daybook.swept          {event}     that sequencing had missed; alarm at anything but 0
//	daybook.epoch          {epoch}     alarm at a change
//
// reader is a cursor's name and stage "published" or "projected"; there is nothing of a key in any of it. A lag of 0 says that
// there is nothing to do, not that anybody would do it: that is what daybook.runner.beat_age is for.
//
// A collection that cannot read the status reports its error to OpenTelemetry's error handler and no values, so also alarm
// at values that are absent. One process that registers them is enough; unregister with the result. db is a pool, since
// collections may overlap; its role is a member of daybook_operator or daybook_relay.
func RegisterLagMetrics(meter metric.Meter, db Querier) (metric.Registration, error) {
	var m lagMetrics
	var instruments []metric.Observable
	var failed error
	counts := func(into *metric.Int64ObservableGauge, name, unit, description string) {
		var err error
		*into, err = meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		failed, instruments = errors.Join(failed, err), append(instruments, *into)
	}
	ages := func(into *metric.Float64ObservableGauge, name, description string) {
		var err error
		*into, err = meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(description))
		failed, instruments = errors.Join(failed, err), append(instruments, *into)
	}
	counts(&m.committed, "daybook.committed", "{event}", "Events that have committed.")
	counts(&m.sequenced, "daybook.sequenced", "{position}", "The last position given.")
	counts(&m.sequencingLag, "daybook.sequencing.lag", "{event}", "Events that have committed and have no position yet.")
	ages(&m.sequencingAge, "daybook.sequencing.age", "How long the first event without a position has waited.")
	counts(&m.readerLag, "daybook.reader.lag", "{event}", "Events that have committed beyond a reader's cursor.")
	ages(&m.readerAge, "daybook.reader.age", "How long the first event beyond a reader's cursor has waited.")
	ages(&m.runnerAge, "daybook.runner.beat_age", "Since a runner was last heard of.")
	counts(&m.parked, "daybook.parked", "{event}", "Events that relays have set aside.")
	ages(&m.parkedAge, "daybook.parked.age", "How long the first of the parked events has been parked.")
	counts(&m.gaps, "daybook.gaps", "{gap}", "Gaps that are kept below the head.")
	counts(&m.gapIDs, "daybook.gaps.ids", "{id}", "Ids that the gaps cover.")
	ages(&m.gapAge, "daybook.gaps.holder_age", "Age of the oldest transaction that keeps gaps.")
	counts(&m.swept, "daybook.swept", "{event}", "Events that sequencing had missed and a sweep found.")
	counts(&m.epoch, "daybook.epoch", "{epoch}", "The epoch that the ledger is in.")
	if failed != nil {
		return nil, fmt.Errorf("daybook: make the instruments of the lag: %w", failed)
	}
	registration, err := meter.RegisterCallback(func(ctx context.Context, observer metric.Observer) error {
		status, err := ReadStatus(ctx, db)
		if err == nil {
			m.observe(observer, status)
		}
		return err
	}, instruments...)
	if err != nil {
		return nil, fmt.Errorf("daybook: register the lag: %w", err)
	}
	return registration, nil
}

func (m *lagMetrics) observe(o metric.Observer, s Status) {
	o.ObserveInt64(m.committed, int64(s.Head)+s.Unsequenced.Events)
	o.ObserveInt64(m.sequenced, int64(s.Head))
	o.ObserveInt64(m.sequencingLag, s.Unsequenced.Events)
	o.ObserveFloat64(m.sequencingAge, s.Unsequenced.Age.Seconds())
	for _, c := range s.Cursors {
		stage := stageOf(c.Name)
		// An unfinished rebuild is behind by nature.
		if stage == "" {
			continue
		}
		reader := metric.WithAttributes(attribute.String("reader", c.Name), attribute.String("stage", stage))
		o.ObserveInt64(m.readerLag, c.Lag.Events, reader)
		o.ObserveFloat64(m.readerAge, c.Lag.Age.Seconds(), reader)
	}
	for _, r := range s.Runners {
		runner := metric.WithAttributes(attribute.String("runner", r.Name), attribute.String("kind", string(r.Kind)))
		o.ObserveFloat64(m.runnerAge, r.BeatAge.Seconds(), runner)
	}
	o.ObserveInt64(m.parked, s.Parked.Events)
	o.ObserveFloat64(m.parkedAge, s.Parked.Age.Seconds())
	o.ObserveInt64(m.gaps, s.Gaps.Count)
	o.ObserveInt64(m.gapIDs, s.Gaps.IDs)
	switch h := s.Gaps.Holder; {
	case h == nil:
		o.ObserveFloat64(m.gapAge, 0)
	case h.State != "":
		o.ObserveFloat64(m.gapAge, h.Age.Seconds())
	default: // not for this role to know, and no reason to look healthy
	}
	o.ObserveInt64(m.swept, s.Swept)
	o.ObserveInt64(m.epoch, s.Epoch)
}

// stageOf tells by its name what a cursor's reader does; see the packages that name them. "" is a rebuild under way.
func stageOf(cursor string) string {
	switch {
	case strings.Contains(cursor, "/"):
	case strings.HasPrefix(cursor, "projection:"):
		return "projected"
	case strings.HasPrefix(cursor, "rebuild:"):
		return ""
	}
	return "published"
}
