package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
)

// expiredCases: fresh enqueues while maintenance removes expired bindings.
func expiredCases() []Case {
	return []Case{{Name: "expired", Run: func(ctx context.Context, b *Bench) ([]Row, error) { return b.expired(ctx) }}}
}

func (b *Bench) expired(ctx context.Context) ([]Row, error) {
	name, err := b.filledDatabase(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := b.pool(ctx, name, bindingWriters)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	enqueue, err := freshCall(pool, expiredFirst)
	if err != nil {
		return nil, err
	}
	keeper, err := b.newKeeper(ctx, name)
	if err != nil {
		return nil, err
	}
	defer keeper.pool.Close()

	usual, kept := &timed{call: enqueue}, &timed{call: enqueue}
	var removed Measure
	for round := range b.Rounds + 1 {
		roundTime := b.RoundTime
		if round == 0 {
			roundTime = warmUp
		}
		if err := b.timedRound(ctx, usual, roundTime); err != nil {
			return nil, err
		}
		stop := keeper.start(ctx)
		err := b.timedRound(ctx, kept, roundTime)
		stop(&removed)
		if err != nil {
			return nil, err
		}
		if round == 0 {
			if err := errors.Join(usual.err, kept.err, removed.err); err != nil {
				return nil, fmt.Errorf("warming up: %w", err)
			}
			usual.Measure, usual.p50s, usual.p99s = Measure{}, nil, nil
			kept.Measure, kept.p50s, kept.p99s = Measure{}, nil, nil
			removed = Measure{}
		}
	}
	for _, m := range []*Measure{&usual.Measure, &kept.Measure, &removed} {
		m.Rate = median(m.Rates)
	}
	usual.WAL, kept.WAL = median(usual.wals), median(kept.wals)
	return expiredRows(b.Bindings, usual, kept, removed), nil
}

func expiredRows(bindings int64, usual, kept *timed, removed Measure) []Row {
	slower := func(kept, usual []float64) float64 {
		ratios := make([]float64, len(kept))
		for i := range ratios {
			ratios[i] = kept[i] / usual[i]
		}
		return median(ratios)
	}
	work := fmt.Sprintf("keyed enqueue, fresh, while %d expired bindings are removed, %s", bindings,
		writersText(bindingWriters))
	note := fmt.Sprintf("p50 %.2f ms and p99 %.2f ms, without maintenance %.2f ms and %.2f ms",
		median(kept.p50s), median(kept.p99s), median(usual.p50s), median(usual.p99s))
	var rows []Row
	for _, told := range []struct {
		reached float64
		goal    Goal
	}{
		{slower(kept.p99s, usual.p99s), atMost(2, "× its p99")},
		{slower(kept.p50s, usual.p50s), Goal{Unit: "× its p50"}},
	} {
		rows = append(rows, Row{
			Work: work, Against: "itself without maintenance", Goal: told.goal, Reached: &told.reached,
			Met: told.goal.met(told.reached), Daybook: &kept.Measure, Peer: &usual.Measure, Note: note,
			Errors: kept.errors + usual.errors, err: errors.Join(kept.err, usual.err),
		})
	}
	// The WAL of the two cannot be told apart: it is in the lines above.
	ingress := kept.Measure
	ingress.wals, ingress.errors, ingress.err = nil, 0, nil
	pace := Peer{Goal: 1, Contender: Contender{Name: "fresh enqueues meanwhile"}}
	return append(rows, newRow("expired bindings removed meanwhile", pace, removed, ingress))
}

// timed is a call whose every time is kept.
type timed struct {
	Measure

	call       func(context.Context) error
	p50s, p99s []float64 // in milliseconds, one for each round

	mu    sync.Mutex
	times []time.Duration
}

// Call is the call with a clock.
func (t *timed) Call(ctx context.Context) error {
	start := time.Now()
	if err := t.call(ctx); err != nil {
		return err
	}
	took := time.Since(start)
	t.mu.Lock()
	t.times = append(t.times, took)
	t.mu.Unlock()
	return nil
}

func (b *Bench) timedRound(ctx context.Context, t *timed, roundTime time.Duration) error {
	t.times = t.times[:0]
	c := Contender{Name: "enqueue", Call: t.Call}
	if err := b.round(ctx, c, Race{Writers: bindingWriters}, roundTime, &t.Measure); err != nil {
		return err
	}
	slices.Sort(t.times)
	t.p50s = append(t.p50s, milliseconds(percentile(t.times, 50)))
	t.p99s = append(t.p99s, milliseconds(percentile(t.times, 99)))
	return nil
}

// percentile is the least of the sorted times that so many of a hundred do not exceed.
func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// keeper does what `daybook maintain` does: one pass of upkeep in one process, with its defaults.
type keeper struct {
	pool    *pgxpool.Pool
	queue   *commands.Queue
	stopped atomic.Bool
}

var errStopped = errors.New("the round is over")

// newKeeper makes a keeper with a connection of its own. A pass goes on until nothing is left, which is minutes, and
// cancelling it would leave PostgreSQL at work on a batch; so its next batch is refused a connection instead.
func (b *Bench) newKeeper(ctx context.Context, database string) (*keeper, error) {
	k := &keeper{}
	pool, err := b.pool(ctx, database, 1, func(config *pgxpool.Config) {
		config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
			if k.stopped.Load() {
				return true, errStopped
			}
			return true, nil
		}
	})
	if err != nil {
		return nil, err
	}
	k.pool = pool
	k.queue, err = commands.NewQueue(commands.Config{Pool: pool})
	return k, err
}

// start begins a pass. The function it returns ends it, and adds the rate at which it removed bindings.
func (k *keeper) start(ctx context.Context) (stop func(m *Measure)) {
	k.stopped.Store(false)
	var (
		done  commands.Maintained
		err   error
		ended = make(chan struct{})
		start = time.Now()
	)
	go func() {
		defer close(ended)
		done, err = k.queue.Maintain(ctx, commands.MaintainOptions{})
	}()
	return func(m *Measure) {
		k.stopped.Store(true)
		<-ended
		m.Rates = append(m.Rates, float64(done.ExpiredBindings)/time.Since(start).Seconds())
		if err == nil {
			err = errors.New("maintenance has removed every expired binding: more --bindings are needed")
		}
		if !errors.Is(err, errStopped) {
			m.errors++
			m.err = cmp.Or(m.err, err)
		}
	}
}
