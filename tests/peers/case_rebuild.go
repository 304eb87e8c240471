package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
)

var (
	//go:embed sql/aggregate_decision_rate.sql
	aggregateDecisionRateSQL string
	//go:embed sql/aggregate_key.sql
	aggregateKeySQL string
)

// rebuiltEvents is how many events the case rebuild has; the case scale has all of them.
const rebuiltEvents = 300_000

// aggregateSchema is where the plain statements put their rows.
const aggregateSchema = "aggregate"

// rebuildCases: a projection is built anew, and one statement makes the same rows of the same events.
func rebuildCases() []Case {
	return []Case{{Name: "rebuild", Run: func(ctx context.Context, b *Bench) ([]Row, error) { return b.rebuildFew(ctx) }}}
}

func (b *Bench) rebuildFew(ctx context.Context) (rows []Row, err error) {
	events := min(rebuiltEvents, b.Events)
	name, err := b.ledgerDatabase(ctx, events)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.drop(context.WithoutCancel(ctx), name)) }()
	return b.rebuild(ctx, name, b.Rounds, events, true)
}

// rebuild compares both, in turns. The first rebuild of a view does not count where there is a round to warm up with.
func (b *Bench) rebuild(ctx context.Context, database string, rounds int, events int64, warm bool) (rows []Row, err error) {
	// As `daybook rebuild` has it: pgx's own size, and a connection for the lock.
	pool, err := b.pool(ctx, database, 5)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	for _, work := range []struct {
		view      projections.Projection
		aggregate string
	}{
		{projections.ViewDecisionRate(), aggregateDecisionRateSQL},
		{projections.ViewKey(), aggregateKeySQL},
	} {
		if err := copyViews(ctx, pool, aggregateSchema, work.view); err != nil {
			return nil, err
		}
		both := []*course{
			{name: "daybook", run: func(ctx context.Context, _, end ledger.Position) error {
				result, err := projections.Rebuild(ctx, pool, work.view, projections.RebuildConfig{DropOld: true})
				if err == nil && result.Position != end {
					err = fmt.Errorf("%s is rebuilt up to position %d, not %d", work.view.Name, result.Position, end)
				}
				return err
			}},
			{name: "plain", run: func(ctx context.Context, _, _ ledger.Position) error {
				_, err := pool.Exec(ctx, work.aggregate)
				return err
			}},
		}
		round := 1
		if warm {
			round = 0
		}
		for ; round <= rounds; round++ {
			if err := b.rebuildRound(ctx, pool, both, work.view.Tables[0], round, events); err != nil {
				return nil, err
			}
		}
		for _, c := range both {
			c.Rate, c.WAL = median(c.Rates), median(c.wals)
		}
		shown := fmt.Sprintf("rebuild of %s, %d events", work.view.Name, events)
		against := newRow(shown, Peer{Goal: 0.5, Contender: Contender{Name: "plain insert … select … group by"}},
			both[0].Measure, both[1].Measure)
		absolute := Row{Work: shown, Goal: Goal{Value: 100_000, Unit: " events/s", Set: true}, Reached: &both[0].Rate, Daybook: &both[0].Measure}
		absolute.Met = absolute.Goal.met(*absolute.Reached)
		rows = append(rows, against, absolute)
	}
	return rows, nil
}

func (b *Bench) rebuildRound(
	ctx context.Context, pool *pgxpool.Pool, both []*course, table string, round int, events int64,
) error {
	order := slices.Clone(both)
	if round%2 == 1 {
		slices.Reverse(order)
	}
	if _, err := pool.Exec(ctx, "truncate "+aggregateSchema+"."+table); err != nil {
		return fmt.Errorf("empty %s: %w", table, err)
	}
	for _, c := range order {
		if _, err := b.admin.Exec(ctx, "checkpoint"); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		before, err := b.walPosition(ctx)
		if err != nil {
			return err
		}
		start := time.Now()
		if err := c.run(ctx, 0, ledger.Position(events)); err != nil {
			return err
		}
		took := time.Since(start)
		after, err := b.walPosition(ctx)
		if err != nil {
			return err
		}
		if round > 0 {
			c.Rates = append(c.Rates, float64(events)/took.Seconds())
			c.wals = append(c.wals, float64(after-before)/float64(events))
		}
	}
	return viewsDiffer(ctx, pool, table, projections.DefaultSchema, aggregateSchema)
}
