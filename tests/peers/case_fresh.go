package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/daybook-go/daybook/commands"
)

// freshCases: each call brings a key that was never seen before.
func freshCases(o Options) []Case {
	all := make([]Case, len(o.Writers))
	for i, writers := range o.Writers {
		all[i] = Case{Name: fmt.Sprintf("fresh/%d", writers), Run: func(ctx context.Context, b *Bench) ([]Row, error) {
			return b.fresh(ctx, writers)
		}}
	}
	return all
}

func (b *Bench) fresh(ctx context.Context, writers int) ([]Row, error) {
	return b.withPeers(ctx, writers, func(f Field, p peers) ([]Row, error) {
		if err := b.settle(ctx, f); err != nil {
			return nil, err
		}
		var toDaybook, toRiver, toHand atomic.Int64
		goal := 2.0
		if writers == 1 {
			goal = 0
		}
		return b.race(ctx, Race{
			Work:    fmt.Sprintf("keyed enqueue, fresh, %s", writersText(writers)),
			Writers: writers,
			Daybook: func(ctx context.Context) error {
				return p.daybook.enqueue(ctx, newOrder(toDaybook.Add(1)), commands.OutcomeAccepted)
			},
			Peers: []Peer{
				{Goal: goal, Contender: Contender{"River Insert, unique", func(ctx context.Context) error {
					return p.river.insert(ctx, newOrder(toRiver.Add(1)), false)
				}}},
				{Goal: 0.7, Contender: Contender{"hand-written SQL, same rows", func(ctx context.Context) error {
					return p.hand.insert(ctx, newOrder(toHand.Add(1)))
				}}},
				{Contender: Contender{"select 1", p.hand.selectOne}},
			},
		})
	})
}

func writersText(n int) string {
	if n == 1 {
		return "1 writer"
	}
	return fmt.Sprintf("%d writers", n)
}
