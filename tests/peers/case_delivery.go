package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
)

// deliveryCases: from the commit, which is when the enqueue call has returned to the writer, to the subscriber's
// handler. Both instants are of one process and one clock; the job's ID says which belong together.
func deliveryCases() []Case {
	return []Case{
		{Name: "delivery-idle", Run: func(ctx context.Context, b *Bench) ([]Row, error) { return b.deliveryIdle(ctx) }},
		{Name: "delivery-busy", Run: func(ctx context.Context, b *Bench) ([]Row, error) { return b.deliveryBusy(ctx) }},
	}
}

const (
	// quietSpell is longer than it takes a reader's polls to be as rare as they get.
	quietSpell = 200 * time.Millisecond
	// busyRate is the load that is offered, in events a second, by so many writers, so many in a call. Two cores do not
	// manage that many single calls beside the readers.
	busyRate    = 4000
	busyWriters = 4
	busyBatch   = 10
)

func (b *Bench) deliveryIdle(ctx context.Context) ([]Row, error) {
	return b.withDelivery(ctx, nil, func(q daybook, d *delivery) ([]Row, error) {
		events := max(20, int(time.Duration(b.Rounds)*b.RoundTime/quietSpell))
		for n := range int64(events) {
			// At any phase of whoever polls or probes.
			if err := sleep(ctx, quietSpell+rand.N(quietSpell/4)); err != nil {
				return nil, err
			}
			if err := d.enqueue(ctx, q, orders(n, 1)); err != nil {
				return nil, err
			}
		}
		note := fmt.Sprintf("%d events, one at a time, each after a quiet spell of %s or longer", events, quietSpell)
		return d.rows(ctx, "commit → handler, idle", note, atMost(5, " ms"), Goal{Unit: " ms"})
	})
}

func (b *Bench) deliveryBusy(ctx context.Context) ([]Row, error) {
	folded := []projections.Projection{projections.ViewDecisionRate(), projections.ViewKey()}
	return b.withDelivery(ctx, folded, func(q daybook, d *delivery) ([]Row, error) {
		// As a warm-up, so that connections have their plans; then everything anew.
		if _, err := d.load(ctx, q, -1_000_000_000, warmUp); err != nil {
			return nil, err
		}
		if _, err := d.latencies(ctx); err != nil {
			return nil, err
		}
		d.forget()
		rate, err := d.load(ctx, q, 0, time.Duration(b.Rounds)*b.RoundTime)
		if err != nil {
			return nil, err
		}
		note := fmt.Sprintf("%d events/s offered by %d writers in calls of %d, %.0f/s reached; %s and %s are projected",
			busyRate, busyWriters, busyBatch, rate, folded[0].Name, folded[1].Name)
		return d.rows(ctx, "commit → handler, 4,000 events/s, two projections", note, atMost(15, " ms"), atMost(50, " ms"))
	})
}

// delivery is a subscriber that notes when each job came, and when it was committed.
type delivery struct {
	mu        sync.Mutex
	committed map[uuid.UUID]time.Time
	handled   map[uuid.UUID]time.Time
}

// withDelivery runs work while a subscriber, and a projector where there are projections, read with the defaults.
func (b *Bench) withDelivery(
	ctx context.Context, folded []projections.Projection, work func(q daybook, d *delivery) ([]Row, error),
) (rows []Row, err error) {
	err = b.onField(ctx, busyWriters, func(f Field) error {
		q, err := newDaybook(f.Daybook)
		if err != nil {
			return err
		}
		d := &delivery{}
		d.forget()
		// The hand-written SQL is not needed here, so its connections are the readers'.
		subscriber, err := outbox.NewSubscriber(outbox.Config{Pool: f.Hand, ConsumerGroup: "bench"})
		if err != nil {
			return err
		}
		defer func() { _ = subscriber.Close() }()
		messages, err := subscriber.Subscribe(ctx, outbox.TopicAll)
		if err != nil {
			return err
		}
		go d.handle(messages)
		stop, err := project(ctx, f.Hand, folded)
		if err != nil {
			return err
		}
		if err := b.settle(ctx, f); err != nil {
			return errors.Join(err, stop())
		}
		rows, err = work(q, d)
		return errors.Join(err, stop(), subscriber.Err())
	})
	return rows, err
}

// project runs projections until stop is called.
func project(ctx context.Context, pool *pgxpool.Pool, folded []projections.Projection) (stop func() error, err error) {
	if len(folded) == 0 {
		return func() error { return nil }, nil
	}
	var handlers []outbox.RangeHandler
	for _, p := range folded {
		runner, err := projections.NewRunner(p, projections.RunnerConfig{})
		if err != nil {
			return nil, err
		}
		handlers = append(handlers, runner)
	}
	projector, err := outbox.NewProjector(outbox.ProjectorConfig{Pool: pool}, handlers...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- projector.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}, nil
}

func (d *delivery) handle(messages <-chan *message.Message) {
	for msg := range messages {
		now := time.Now()
		attributes, err := outbox.AttributesOf(msg)
		if err == nil {
			d.mu.Lock()
			d.handled[attributes.JobID] = now
			d.mu.Unlock()
		}
		msg.Ack()
	}
}

func (d *delivery) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.committed, d.handled = map[uuid.UUID]time.Time{}, map[uuid.UUID]time.Time{}
}

// enqueue does one call, and notes when it has returned.
func (d *delivery) enqueue(ctx context.Context, q daybook, all []order) error {
	var (
		results []commands.EnqueueResult
		err     error
	)
	if len(all) == 1 {
		results = make([]commands.EnqueueResult, 1)
		results[0], err = q.queue.EnqueueWithResult(ctx, all[0].request())
	} else {
		requests := make([]commands.EnqueueOptions, len(all))
		for i, o := range all {
			requests[i] = o.request()
		}
		results, err = q.queue.EnqueueMany(ctx, requests)
	}
	now := time.Now()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, result := range results {
		if result.Outcome != commands.OutcomeAccepted {
			return fmt.Errorf("daybook decided %s, not accepted", result.Outcome)
		}
		d.committed[result.JobID] = now
	}
	return nil
}

// load offers busyRate events a second for a while, and returns the rate that was reached. Each writer has a timetable,
// and one that is late does not wait until it has caught up.
func (d *delivery) load(ctx context.Context, q daybook, first int64, length time.Duration) (float64, error) {
	const every = time.Second * busyBatch * busyWriters / busyRate
	var (
		writing sync.WaitGroup
		mu      sync.Mutex
		failed  error
		calls   = int64(length / every)
		start   = time.Now()
	)
	for w := range int64(busyWriters) {
		writing.Go(func() {
			for call := range calls {
				at := start.Add(time.Duration(call)*every + time.Duration(w)*every/busyWriters)
				err := sleep(ctx, time.Until(at))
				if err == nil {
					err = d.enqueue(ctx, q, orders(first+(call*busyWriters+w)*busyBatch, busyBatch))
				}
				if err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = errors.Join(failed, err)
					return
				}
			}
		})
	}
	writing.Wait()
	return float64(calls*busyWriters*busyBatch) / time.Since(start).Seconds(), failed
}

// latencies waits until everything that was committed has come, and returns how long it took, in milliseconds, in order
// of size. A handler may be faster than the way back to the writer: that counts as 0.
func (d *delivery) latencies(ctx context.Context) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		d.mu.Lock()
		var all []float64
		for id, committed := range d.committed {
			if handled, ok := d.handled[id]; ok {
				all = append(all, max(0, handled.Sub(committed).Seconds()*1000))
			}
		}
		missing := len(d.committed) - len(all)
		d.mu.Unlock()
		if missing == 0 {
			slices.Sort(all)
			return all, nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, fmt.Errorf("%d events were not delivered: %w", missing, err)
		}
	}
}

// rows are the median and the 99th percentile.
func (d *delivery) rows(ctx context.Context, work, note string, p50, p99 Goal) ([]Row, error) {
	all, err := d.latencies(ctx)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, percentile := range []struct {
		of   int
		goal Goal
	}{{50, p50}, {99, p99}} {
		reached := all[(len(all)-1)*percentile.of/100]
		rows = append(rows, Row{
			Work: fmt.Sprintf("%s, p%d", work, percentile.of), Goal: percentile.goal, Reached: &reached,
			Met: percentile.goal.met(reached), Note: note,
		})
	}
	return rows, nil
}

// sleep returns an error where ctx ends first.
func sleep(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
