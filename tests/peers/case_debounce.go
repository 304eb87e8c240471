package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/daybook-go/daybook/commands"
)

// debounceCases: each call replaces a pending job, one of 1,000.
func debounceCases(o Options) []Case {
	all := make([]Case, len(o.Writers))
	for i, writers := range o.Writers {
		name := fmt.Sprintf("replace/%d", writers)
		all[i] = Case{Name: name, Run: func(ctx context.Context, b *Bench) ([]Row, error) {
			return b.replace(ctx, writers)
		}}
	}
	return all
}

// debounced waits an hour for the next one, so that the job is pending as long as the case runs.
func (o order) debounced() commands.EnqueueOptions {
	return commands.EnqueueOptions{
		Type: jobType, Payload: o, Debounce: &commands.Debounce{Key: o.key(), Window: time.Hour},
	}
}

func (b *Bench) replace(ctx context.Context, writers int) ([]Row, error) {
	const keys = 1000
	return b.withPeers(ctx, writers, func(f Field, p peers) ([]Row, error) {
		all := orders(0, keys)
		requests := make([]commands.EnqueueOptions, keys)
		for i, o := range all {
			requests[i] = o.debounced()
		}
		if err := p.daybook.askMany(ctx, requests); err != nil {
			return nil, err
		}
		if err := b.settle(ctx, f); err != nil {
			return nil, err
		}
		var toDaybook, toRiver atomic.Int64
		return b.race(ctx, Race{
			Work:    "debounced request replaces, 1,000 keys, " + writersText(writers),
			Writers: writers,
			// The writers share one walk over the keys, so that no two of them are ever at the same key: the goal is
			// about a replacement, and not about waiting for a row. Each asks for something else than the key's last.
			Daybook: func(ctx context.Context) error {
				n := toDaybook.Add(1)
				o := all[n%keys]
				o.Cents = int(n)
				return p.daybook.ask(ctx, o.debounced(), commands.OutcomeReplaced)
			},
			Peers: []Peer{
				{Goal: 1, Contender: Contender{"River Insert, unique, new rows", func(ctx context.Context) error {
					return p.river.insert(ctx, newOrder(toRiver.Add(1)), false)
				}}},
				{Contender: Contender{"select 1", p.hand.selectOne}},
			},
		})
	})
}
