package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/daybook-go/daybook/commands"
)

// throttleCases: each call repeats a throttled request within its window, one of 1,000.
func throttleCases(o Options) []Case {
	all := make([]Case, len(o.Writers))
	for i, writers := range o.Writers {
		name := fmt.Sprintf("coalesce/%d", writers)
		all[i] = Case{Name: name, Run: func(ctx context.Context, b *Bench) ([]Row, error) {
			return b.coalesce(ctx, writers)
		}}
	}
	return all
}

func (o order) throttled() commands.EnqueueOptions {
	return commands.EnqueueOptions{
		Type: jobType, Payload: o, Throttle: &commands.Throttle{Key: o.key(), Window: 24 * time.Hour},
	}
}

func (b *Bench) coalesce(ctx context.Context, writers int) ([]Row, error) {
	const keys = 1000
	return b.withPeers(ctx, writers, func(f Field, p peers) ([]Row, error) {
		throttled, replayed := orders(1, keys), orders(1+keys, keys)
		requests := make([]commands.EnqueueOptions, keys)
		for i, o := range throttled {
			requests[i] = o.throttled()
		}
		if err := p.daybook.askMany(ctx, requests); err != nil {
			return nil, err
		}
		// In the same database, through a pool of its own like every contender.
		replayer, err := newDaybook(f.Hand)
		if err != nil {
			return nil, err
		}
		if err := replayer.enqueueMany(ctx, replayed); err != nil {
			return nil, err
		}
		if err := p.river.insertMany(ctx, throttled); err != nil {
			return nil, err
		}
		if err := b.settle(ctx, f); err != nil {
			return nil, err
		}
		pick := func(from []order) order { return from[rand.IntN(keys)] }
		return b.race(ctx, Race{
			Work:    "coalesce, 1,000 keys, " + writersText(writers),
			Writers: writers,
			Daybook: func(ctx context.Context) error {
				return p.daybook.ask(ctx, pick(throttled).throttled(), commands.OutcomeCoalesced)
			},
			Peers: []Peer{
				{Goal: 0.9, Contender: Contender{"Daybook's replay, 1,000 keys", func(ctx context.Context) error {
					return replayer.enqueue(ctx, pick(replayed), commands.OutcomeReplayed)
				}}},
				{Goal: 5, Contender: Contender{"River Insert, duplicate", func(ctx context.Context) error {
					return p.river.insert(ctx, pick(throttled), true)
				}}},
				{Contender: Contender{"select 1", p.hand.selectOne}},
			},
		})
	})
}
