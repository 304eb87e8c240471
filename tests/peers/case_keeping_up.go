package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
)

const (
	// keepingWriters is how many enqueue.
	keepingWriters = 32
	// keepingBacklog is how many events are sequenced and projected in a round, at least. What the writers of a round
	// enqueue is little for whoever reads, so batches make up for the rest.
	keepingBacklog = 30_000
)

// keepingUpCases: what has been enqueued is sequenced and projected, by all of the built-in projections.
func keepingUpCases() []Case {
	return []Case{{Name: "keeping-up/32", Run: func(ctx context.Context, b *Bench) ([]Row, error) { return b.keepingUp(ctx) }}}
}

func (b *Bench) keepingUp(ctx context.Context) (rows []Row, err error) {
	err = b.onField(ctx, keepingWriters, func(f Field) error {
		d, err := newDaybook(f.Daybook)
		if err != nil {
			return err
		}
		if err := b.settle(ctx, f); err != nil {
			return err
		}
		var n atomic.Int64
		enqueue := Contender{Name: "enqueue", Call: func(ctx context.Context) error {
			return d.enqueue(ctx, newOrder(n.Add(1)), commands.OutcomeAccepted)
		}}
		ways := []*keeping{{name: "outbox.Projector", project: projectAll}, {name: "Group.CatchUp", project: catchUpAll}}
		for round := range b.Rounds + 1 {
			for _, way := range ways {
				if err := b.keepingRound(ctx, f, d, &n, enqueue, way, round == 0); err != nil {
					return err
				}
			}
		}
		for _, way := range ways {
			for _, m := range []*Measure{&way.Measure, &way.writers} {
				m.Rate, m.WAL = median(m.Rates), median(m.wals)
			}
			rows = append(rows, newRow(
				"sequenced and projected, four projections, by "+way.name,
				Peer{Goal: 3, Contender: Contender{Name: "enqueued by 32 writers"}},
				way.Measure, way.writers,
			))
		}
		return nil
	})
	return rows, err
}

// keeping is a way of projecting everything, and what the writers did in its rounds.
type keeping struct {
	Measure

	name    string
	project func(ctx context.Context, pool *pgxpool.Pool, end ledger.Position) error
	writers Measure
}

// keepingRound makes a backlog, and has it sequenced and projected.
func (b *Bench) keepingRound(
	ctx context.Context, f Field, d daybook, n *atomic.Int64, enqueue Contender, way *keeping, warming bool,
) error {
	head, err := ledger.Head(ctx, f.Hand)
	if err != nil {
		return err
	}
	writers, roundTime := &way.writers, b.RoundTime
	if warming {
		writers, roundTime = &Measure{}, warmUp
	}
	first := n.Load()
	if err := b.round(ctx, enqueue, Race{Writers: keepingWriters}, roundTime, writers); err != nil {
		return err
	}
	// What was not enqueued would be waited for in vain.
	if writers.err != nil {
		return writers.err
	}
	for n.Load()-first < keepingBacklog {
		if err := d.enqueueMany(ctx, orders(n.Add(1000)-999, 1000)); err != nil {
			return err
		}
	}
	backlog := n.Load() - first
	before, err := b.walPosition(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := way.project(ctx, f.Hand, head+ledger.Position(backlog)); err != nil {
		return err
	}
	took := time.Since(start)
	after, err := b.walPosition(ctx)
	if err != nil {
		return err
	}
	if !warming {
		way.Rates = append(way.Rates, float64(backlog)/took.Seconds())
		way.wals = append(way.wals, float64(after-before)/float64(backlog))
	}
	return nil
}

// projectAll runs a Projector of the built-in projections until all have come that far.
func projectAll(ctx context.Context, pool *pgxpool.Pool, end ledger.Position) error {
	stop, err := project(ctx, pool, projections.Builtin())
	if err != nil {
		return err
	}
	return errors.Join(awaitCursors(ctx, pool, end, projections.Builtin()...), stop())
}

// catchUpAll is what `daybook project --once` does.
func catchUpAll(ctx context.Context, pool *pgxpool.Pool, end ledger.Position) error {
	var runners []*projections.Runner
	for _, p := range projections.Builtin() {
		runner, err := projections.NewRunner(p, projections.RunnerConfig{})
		if err != nil {
			return err
		}
		runners = append(runners, runner)
	}
	group, err := projections.NewGroup(runners...)
	if err != nil {
		return err
	}
	if _, err := group.CatchUp(ctx, pool, 0); err != nil {
		return err
	}
	return awaitCursors(ctx, pool, end, projections.Builtin()...)
}
