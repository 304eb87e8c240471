package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Contender does one kind of work in one way.
type Contender struct {
	// Name is what the table calls it.
	Name string
	// Call does the work once, as one of several callers. What was not done as it should be, an unexpected outcome
	// too, is an error.
	Call func(ctx context.Context) error
}

// Race is a piece of work with those who do it.
type Race struct {
	// Work is what is done, for the table.
	Work string
	// Writers is how many do it at once.
	Writers int
	// PerCall is how many operations one call counts for; 0 is one.
	PerCall int
	// Daybook is what is measured against each of the Peers.
	Daybook func(ctx context.Context) error
	Peers   []Peer
}

// Peer is a contender to be measured against.
type Peer struct {
	Contender

	// Goal is how many times its rate Daybook is to reach; 0 is no goal.
	Goal float64
}

// Measure is what a contender did.
type Measure struct {
	// Rate is the median of Rates, in operations per second.
	Rate float64 `json:"rate"`
	// Rates has one for each round.
	Rates []float64 `json:"rates,omitempty"`
	// WAL is the median of the bytes written to the WAL per operation.
	WAL float64 `json:"wal_bytes_per_op"`

	wals   []float64
	errors int64
	err    error // the first one
}

// warmUp is how long the round before the first takes: every connection is to have its statements prepared, and
// PostgreSQL to have settled on its plans, which takes it six calls on each connection.
const warmUp = time.Second

// race lets the contenders run in alternating rounds, one at a time, after one round each that does not count.
func (b *Bench) race(ctx context.Context, r Race) ([]Row, error) {
	contenders := []Contender{{Name: "daybook", Call: r.Daybook}}
	for _, peer := range r.Peers {
		contenders = append(contenders, peer.Contender)
	}
	measures := make([]Measure, len(contenders))
	for _, c := range contenders {
		warm := Measure{}
		if err := b.round(ctx, c, r, warmUp, &warm); err != nil {
			return nil, err
		}
		// Not counted, but nothing that fails here would do better later.
		if warm.err != nil {
			return nil, fmt.Errorf("warming up %s: %w", c.Name, warm.err)
		}
	}
	for range b.Rounds {
		for i, c := range contenders {
			if err := b.round(ctx, c, r, b.RoundTime, &measures[i]); err != nil {
				return nil, err
			}
		}
	}
	for i := range measures {
		measures[i].Rate = median(measures[i].Rates)
		measures[i].WAL = median(measures[i].wals)
	}
	rows := make([]Row, len(r.Peers))
	for i, peer := range r.Peers {
		rows[i] = newRow(r.Work, peer, measures[0], measures[1+i])
	}
	return rows, nil
}

// round measures one contender once.
func (b *Bench) round(ctx context.Context, c Contender, r Race, roundTime time.Duration, m *Measure) error {
	before, err := b.walPosition(ctx)
	if err != nil {
		return err
	}
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		calls int64
		start = time.Now()
		end   = start.Add(roundTime)
	)
	for range r.Writers {
		wg.Go(func() {
			var (
				done, failed int64
				first        error
			)
			for time.Now().Before(end) && ctx.Err() == nil {
				if err := c.Call(ctx); err != nil {
					failed++
					first = cmp.Or(first, err)
					continue
				}
				done++
			}
			mu.Lock()
			defer mu.Unlock()
			calls += done
			m.errors += failed
			m.err = cmp.Or(m.err, first)
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err := ctx.Err(); err != nil {
		return err
	}
	after, err := b.walPosition(ctx)
	if err != nil {
		return err
	}
	if calls == 0 {
		return errors.Join(fmt.Errorf("%s did not end a single call", c.Name), m.err)
	}
	ops := float64(calls) * float64(max(r.PerCall, 1))
	m.Rates = append(m.Rates, ops/elapsed.Seconds())
	m.wals = append(m.wals, float64(after-before)/ops)
	return nil
}

// ratio is the median over the rounds of the one's rate over the other's: neighbours in time met the same machine.
func ratio(one, other Measure) float64 {
	ratios := make([]float64, len(one.Rates))
	for i := range ratios {
		ratios[i] = one.Rates[i] / other.Rates[i]
	}
	return median(ratios)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
