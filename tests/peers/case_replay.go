package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/daybook-go/daybook/commands"
)

// replayCases: each call repeats a request that was accepted before, one of 1,000 or always the same.
func replayCases(o Options) []Case {
	var all []Case
	for _, kind := range []struct {
		name, work string
		keys       int64
		goal       float64
	}{
		{"replay-spread", "replay, 1,000 keys", 1000, 8},
		{"replay-hot", "replay, one hot key", 1, 20},
	} {
		for _, writers := range o.Writers {
			all = append(all, Case{
				Name: fmt.Sprintf("%s/%d", kind.name, writers),
				Run: func(ctx context.Context, b *Bench) ([]Row, error) {
					return b.replay(ctx, kind.work, kind.keys, writers, kind.goal)
				},
			})
		}
	}
	return all
}

func (b *Bench) replay(ctx context.Context, work string, keys int64, writers int, goal float64) ([]Row, error) {
	return b.withPeers(ctx, writers, func(f Field, p peers) ([]Row, error) {
		all := orders(1, keys)
		if err := p.daybook.enqueueMany(ctx, all); err != nil {
			return nil, err
		}
		if err := p.river.insertMany(ctx, all); err != nil {
			return nil, err
		}
		if err := b.settle(ctx, f); err != nil {
			return nil, err
		}
		pick := func() order { return all[rand.IntN(len(all))] }
		return b.race(ctx, Race{
			Work:    work + ", " + writersText(writers),
			Writers: writers,
			Daybook: func(ctx context.Context) error {
				return p.daybook.enqueue(ctx, pick(), commands.OutcomeReplayed)
			},
			Peers: []Peer{
				{Goal: goal, Contender: Contender{"River Insert, duplicate", func(ctx context.Context) error {
					return p.river.insert(ctx, pick(), true)
				}}},
				{Goal: 0.5, Contender: Contender{"primary-key lookup", func(ctx context.Context) error {
					return p.hand.lookup(ctx, pick().hash())
				}}},
				{Contender: Contender{"select 1", p.hand.selectOne}},
			},
		})
	})
}
