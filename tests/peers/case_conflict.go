package main

import (
	"context"
	"fmt"

	"github.com/daybook-go/daybook/commands"
)

// conflictCases: each call asks again for other work under a key that is bound, after the refusal was recorded.
func conflictCases(o Options) []Case {
	all := make([]Case, len(o.Writers))
	for i, writers := range o.Writers {
		all[i] = Case{Name: fmt.Sprintf("conflict/%d", writers), Run: func(ctx context.Context, b *Bench) ([]Row, error) {
			return b.conflict(ctx, writers)
		}}
	}
	return all
}

func (b *Bench) conflict(ctx context.Context, writers int) ([]Row, error) {
	return b.withPeers(ctx, writers, func(f Field, p peers) ([]Row, error) {
		o := newOrder(1)
		if err := p.daybook.enqueue(ctx, o, commands.OutcomeAccepted); err != nil {
			return nil, err
		}
		if err := p.daybook.conflict(ctx, o); err != nil {
			return nil, err
		}
		if err := b.settle(ctx, f); err != nil {
			return nil, err
		}
		return b.race(ctx, Race{
			Work:    "repeated conflict, " + writersText(writers),
			Writers: writers,
			Daybook: func(ctx context.Context) error { return p.daybook.conflict(ctx, o) },
			Peers:   []Peer{{Contender: Contender{"select 1", p.hand.selectOne}}},
		})
	})
}
