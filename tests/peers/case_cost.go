package main

import (
	"context"
	_ "embed" // the statement
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
)

//go:embed sql/rows.sql
var rowsSQL string

// costCases: what one call writes, counted and not timed.
func costCases() []Case {
	return []Case{{Name: "cost", Run: func(ctx context.Context, b *Bench) ([]Row, error) { return b.cost(ctx) }}}
}

// costCalls is how many calls one call's cost is the mean of, in each round.
const costCalls = 200

// costFill is how many rows are there before; 32 pages of events hold some 350.
const costFill = 1000

func (b *Bench) cost(ctx context.Context) ([]Row, error) {
	return b.withPeers(ctx, 1, func(f Field, p peers) ([]Row, error) {
		first := newOrder(0)
		if err := p.daybook.enqueue(ctx, first, commands.OutcomeAccepted); err != nil {
			return nil, err
		}
		if err := p.daybook.conflict(ctx, first); err != nil {
			return nil, err
		}
		// The first rows of a table cost more than the others: its pages are new, and the summary of the first pages of
		// daybook.event, which the empty table came with, is kept up until they are full.
		earlier := orders(-costFill, costFill)
		for _, fill := range []func(context.Context, []order) error{
			p.daybook.enqueueMany, p.hand.insertMany, p.river.insertMany,
		} {
			if err := fill(ctx, earlier); err != nil {
				return nil, err
			}
		}
		if err := b.settle(ctx, f); err != nil {
			return nil, err
		}
		var toDaybook, toRiver, toHand atomic.Int64
		fresh := func(ctx context.Context) error {
			return p.daybook.enqueue(ctx, newOrder(toDaybook.Add(1)), commands.OutcomeAccepted)
		}
		replay := func(ctx context.Context) error { return p.daybook.enqueue(ctx, first, commands.OutcomeReplayed) }
		conflict := func(ctx context.Context) error { return p.daybook.conflict(ctx, first) }
		hand := func(ctx context.Context) error { return p.hand.insert(ctx, newOrder(toHand.Add(1))) }
		unique := func(ctx context.Context) error { return p.river.insert(ctx, newOrder(toRiver.Add(1)), false) }

		var rows []Row
		for _, work := range []struct {
			name, against string
			call, peer    func(context.Context) error
			goal          Goal
		}{
			{"cost of a fresh enqueue", "hand-written SQL, same rows", fresh, hand, atMost(1.1, "× its WAL")},
			{"cost of a fresh enqueue", "River Insert, unique", fresh, unique, Goal{Unit: "× its WAL"}},
			{"cost of a replay", "", replay, nil, atMost(0, " B")},
			{"cost of a repeated conflict", "", conflict, nil, atMost(0, " B")},
		} {
			own, written, err := b.written(ctx, f.Daybook, work.call)
			if err != nil {
				return nil, err
			}
			row := Row{Work: work.name, Against: work.against, Goal: work.goal, Daybook: &own, Note: written}
			reached := own.WAL
			if work.peer != nil {
				peer, _, err := b.written(ctx, f.Daybook, work.peer)
				if err != nil {
					return nil, err
				}
				row.Peer = &peer
				reached = own.WAL / peer.WAL
			}
			row.Reached, row.Met = &reached, work.goal.met(reached)
			rows = append(rows, row)
		}
		return rows, nil
	})
}

// written is what a call writes: bytes of WAL, the median of the rounds' means, and rows.
func (b *Bench) written(ctx context.Context, pool *pgxpool.Pool, call func(context.Context) error) (Measure, string, error) {
	var m Measure
	before, err := countRows(ctx, pool)
	if err != nil {
		return m, "", err
	}
	for range b.Rounds {
		start, err := b.walPosition(ctx)
		if err != nil {
			return m, "", err
		}
		for range costCalls {
			if err := call(ctx); err != nil {
				return m, "", err
			}
		}
		end, err := b.walPosition(ctx)
		if err != nil {
			return m, "", err
		}
		m.wals = append(m.wals, float64(end-start)/costCalls)
	}
	m.WAL = median(m.wals)
	after, err := countRows(ctx, pool)
	if err != nil {
		return m, "", err
	}
	var words []string
	for i, table := range countedTables {
		words = append(words, fmt.Sprintf("%g %s", float64(after[i]-before[i])/float64(b.Rounds*costCalls), table))
	}
	return m, "rows per call: " + strings.Join(words, ", "), nil
}

// countedTables are those of the statement below, in its order.
var countedTables = [...]string{"binding", "job", "event", "rejection"}

func countRows(ctx context.Context, pool *pgxpool.Pool) (counts [len(countedTables)]int64, err error) {
	if err := pool.QueryRow(ctx, rowsSQL).Scan(&counts[0], &counts[1], &counts[2], &counts[3]); err != nil {
		return counts, fmt.Errorf("count rows: %w", err)
	}
	return counts, nil
}
