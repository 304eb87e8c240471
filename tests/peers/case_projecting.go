package main

import (
	"context"
	_ "embed" // the statement
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
)

//go:embed sql/cursor_reached.sql
var cursorReachedSQL string

const (
	// projectedEvents is how many events each round projects, for each of the contenders anew.
	projectedEvents = 40_000
	// projectedBehind is how many events the long ledger has before the first that is projected.
	projectedBehind = 1_000_000
)

// projectingCases: the same events of the same ledger, projected in Go by Daybook and by a plain loop, into tables of
// their own each.
func projectingCases() []Case {
	return []Case{
		{Name: "projecting/0", Run: func(ctx context.Context, b *Bench) ([]Row, error) { return b.projecting(ctx, 0) }},
		{Name: "projecting/1M", Run: func(ctx context.Context, b *Bench) ([]Row, error) {
			return b.projecting(ctx, min(projectedBehind, b.Events))
		}},
	}
}

// projectingWays are Daybook's two ways of projecting, each with the plain loop that has pages of the same size.
var projectingWays = []struct {
	name    string
	page    int
	project func(ctx context.Context, pool *pgxpool.Pool, p projections.Projection, end ledger.Position) error
}{
	{"outbox.Projector", outbox.DefaultRangeSize, projectUntil},
	{"Runner.CatchUp", projections.DefaultBatch, catchUp},
}

// course is a contender on its way through the ledger.
type course struct {
	Measure

	name string
	run  func(ctx context.Context, at, end ledger.Position) error
}

func (b *Bench) projecting(ctx context.Context, behind int64) (rows []Row, err error) {
	name, err := b.ledgerDatabase(ctx, behind)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.drop(context.WithoutCancel(ctx), name)) }()
	pool, err := b.pool(ctx, name, 4)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	views := []projections.Projection{projections.ViewDecisionRate(), projections.ViewKey()}
	races := make([][]*course, len(views)*len(projectingWays))
	for i := range races {
		view, way := views[i/len(projectingWays)], projectingWays[i%len(projectingWays)]
		if races[i], err = b.projectingRace(ctx, pool, view, fmt.Sprintf("race_%d", i), ledger.Position(behind), way.page, way.project); err != nil {
			return nil, err
		}
	}
	length := int64(projectedEvents)
	if b.RoundTime < 500*time.Millisecond {
		length /= 4 // a short run
	}
	for round := range b.Rounds + 1 {
		at := behind + int64(round)*length
		if err := b.fillLedger(ctx, pool, at+1, at+length); err != nil {
			return nil, err
		}
		if err := b.settlePools(ctx, pool); err != nil {
			return nil, err
		}
		for _, race := range races {
			if err := b.projectingRound(ctx, race, round, ledger.Position(at), ledger.Position(length)); err != nil {
				return nil, err
			}
		}
	}
	for i, race := range races {
		view, way := views[i/len(projectingWays)], projectingWays[i%len(projectingWays)]
		if err := viewsDiffer(ctx, pool, view.Tables[0], race[0].name, race[1].name); err != nil {
			return nil, err
		}
		for _, c := range race {
			c.Rate, c.WAL = median(c.Rates), median(c.wals)
		}
		rows = append(rows, newRow(
			fmt.Sprintf("%s projected by %s, %d events behind", view.Name, way.name, behind),
			Peer{Goal: 0.85, Contender: Contender{Name: fmt.Sprintf("plain pgx loop, pages of %d", way.page)}},
			race[0].Measure, race[1].Measure,
		))
	}
	return rows, nil
}

// projectingRace gives both their tables and their cursors.
func (b *Bench) projectingRace(
	ctx context.Context, pool *pgxpool.Pool, view projections.Projection, name string, start ledger.Position, page int,
	project func(ctx context.Context, pool *pgxpool.Pool, p projections.Projection, end ledger.Position) error,
) ([]*course, error) {
	own := view
	own.Name, own.Schema = name, name
	plain := newPlainLoop(pool, view, "plain_"+name, page)
	for schema, cursor := range map[string]string{own.Schema: projections.CursorName(own.Name), plain.schema: plain.schema} {
		if err := copyViews(ctx, pool, schema, view); err != nil {
			return nil, err
		}
		if _, err := ledger.OpenCursor(ctx, pool, cursor, start); err != nil {
			return nil, err
		}
	}
	return []*course{
		{name: own.Schema, run: func(ctx context.Context, _, end ledger.Position) error { return project(ctx, pool, own, end) }},
		{name: plain.schema, run: plain.run},
	}, nil
}

// projectingRound lets both do the next events. Who goes first changes, and the first round is a warm-up.
func (b *Bench) projectingRound(ctx context.Context, race []*course, round int, at, length ledger.Position) error {
	order := slices.Clone(race)
	if round%2 == 1 {
		slices.Reverse(order)
	}
	for _, c := range order {
		before, err := b.walPosition(ctx)
		if err != nil {
			return err
		}
		start := time.Now()
		if err := c.run(ctx, at, at+length); err != nil {
			return err
		}
		took := time.Since(start)
		after, err := b.walPosition(ctx)
		if err != nil {
			return err
		}
		if round > 0 {
			c.Rates = append(c.Rates, float64(length)/took.Seconds())
			c.wals = append(c.wals, float64(after-before)/float64(length))
		}
	}
	return nil
}

func catchUp(ctx context.Context, pool *pgxpool.Pool, p projections.Projection, end ledger.Position) error {
	runner, err := projections.NewRunner(p, projections.RunnerConfig{})
	if err != nil {
		return err
	}
	at, err := runner.CatchUp(ctx, pool, 0)
	if err == nil && at != end {
		err = fmt.Errorf("%s is at position %d, not %d", p.Name, at, end)
	}
	return err
}

// projectUntil runs a Projector, with its start and its end, until the cursor is where it is to be.
func projectUntil(ctx context.Context, pool *pgxpool.Pool, p projections.Projection, end ledger.Position) error {
	stop, err := project(ctx, pool, []projections.Projection{p})
	if err != nil {
		return err
	}
	return errors.Join(awaitCursors(ctx, pool, end, p), stop())
}

// awaitCursors waits until the projections have come that far.
func awaitCursors(ctx context.Context, pool *pgxpool.Pool, end ledger.Position, all ...projections.Projection) error {
	for _, p := range all {
		if err := awaitCursor(ctx, pool, projections.CursorName(p.Name), end); err != nil {
			return err
		}
	}
	return nil
}

// awaitCursor waits until a cursor has come that far. It looks each 5 ms, which is little beside a round.
func awaitCursor(ctx context.Context, pool *pgxpool.Pool, name string, end ledger.Position) error {
	for {
		var there bool
		err := pool.QueryRow(ctx, cursorReachedSQL, name, int64(end)).Scan(&there)
		if err != nil {
			return fmt.Errorf("look at cursor %s: %w", name, err)
		}
		if there {
			return nil
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
