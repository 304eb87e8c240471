package main

import (
	"context"
	"fmt"
	"sync/atomic"
)

// batchCases: each call brings many keys that were never seen before.
func batchCases() []Case {
	var all []Case
	for _, size := range []int64{100, 1000} {
		for _, writers := range []int{1, 4} {
			all = append(all, Case{
				Name: fmt.Sprintf("batch-%d/%d", size, writers),
				Run: func(ctx context.Context, b *Bench) ([]Row, error) {
					return b.batch(ctx, size, writers)
				},
			})
		}
	}
	return all
}

func (b *Bench) batch(ctx context.Context, size int64, writers int) ([]Row, error) {
	return b.withPeers(ctx, writers, func(f Field, p peers) ([]Row, error) {
		if err := b.settle(ctx, f); err != nil {
			return nil, err
		}
		var toDaybook, toRiver, toHand atomic.Int64
		next := func(n *atomic.Int64) []order { return orders(n.Add(size)-size, size) }
		goal := 1.5
		if size < 1000 {
			goal = 0
		}
		return b.race(ctx, Race{
			Work:    fmt.Sprintf("batch of %d keyed, fresh, %s", size, writersText(writers)),
			Writers: writers,
			PerCall: int(size),
			Daybook: func(ctx context.Context) error {
				return p.daybook.enqueueMany(ctx, next(&toDaybook))
			},
			Peers: []Peer{
				{Goal: goal, Contender: Contender{"River InsertMany, unique", func(ctx context.Context) error {
					return p.river.insertMany(ctx, next(&toRiver))
				}}},
				{Goal: 0.7, Contender: Contender{"hand-written SQL, same rows", func(ctx context.Context) error {
					return p.hand.insertMany(ctx, next(&toHand))
				}}},
			},
		})
	})
}
