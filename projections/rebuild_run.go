package projections

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
)

func rebuildSchema(schema string) string { return schema + "_rebuild" }
func oldSchema(schema string) string     { return schema + "_old" }

// rebuild is one under way. Its lanes lead over the shadow tables.
type rebuild struct {
	Projection
	pool   *pgxpool.Pool
	config RebuildConfig
	place  place // of the shadow tables; each lane has a cursor of its own
	lanes  []*lane
	result RebuildResult
	err    error
}

// rebuilds are those of one call.
type rebuilds struct {
	pool     *pgxpool.Pool
	config   RebuildConfig
	start    time.Time
	rebuilds []*rebuild
}

func newRebuilds(pool *pgxpool.Pool, projections []Projection, config RebuildConfig) (*rebuilds, error) {
	config, err := config.checked()
	if err != nil {
		return nil, err
	}
	all := &rebuilds{pool: pool, config: config, start: time.Now()}
	names := map[string]bool{}
	for _, p := range projections {
		p, err := p.checked()
		if err != nil {
			return nil, err
		}
		if names[p.Name] {
			return nil, fmt.Errorf("daybook: projection %s is to be rebuilt twice", p.Name)
		}
		names[p.Name] = true
		all.rebuilds = append(all.rebuilds, newRebuild(pool, p, config))
	}
	return all, nil
}

func newRebuild(pool *pgxpool.Pool, p Projection, config RebuildConfig) *rebuild {
	return &rebuild{
		Projection: p, pool: pool, config: config,
		place:  place{schema: rebuildSchema(p.Schema), shadow: true},
		result: RebuildResult{Projection: p.Name, Version: p.Version},
	}
}

func (all *rebuilds) run(ctx context.Context, locks *locks) {
	for _, b := range all.rebuilds {
		b.do(func() error { return locks.take(ctx, b.Name) })
		b.do(func() error { return b.prepare(ctx) })
		b.enter(StageFill)
	}
	all.fill(ctx, all.rebuilds)
	for _, b := range all.rebuilds {
		b.enter(StageIndex)
		b.do(func() error { return b.buildIndexes(ctx) })
		// What has come while the indexes were built, and while other projections were swapped.
		all.fill(ctx, []*rebuild{b})
		b.do(func() error { return b.analyze(ctx) })
		b.enter(StageSwap)
		b.do(func() error { return b.swap(ctx, all) })
		b.result.Position = b.at().Position
		b.result.Took = time.Since(all.start)
	}
}

// do does one part, unless an earlier one has failed.
func (b *rebuild) do(part func() error) {
	if b.err == nil {
		b.err = part()
	}
}

func (b *rebuild) enter(stage Stage) {
	if b.err == nil && b.config.Stage != nil {
		b.config.Stage(b.Name, stage)
	}
}

// at is how far all lanes are.
func (b *rebuild) at() ledger.Cursor {
	var least ledger.Cursor
	for i, l := range b.lanes {
		if i == 0 || l.at.Position < least.Position {
			least = l.at
		}
	}
	return least
}

// fill folds until what is left of each fits into its swap's own transaction.
func (all *rebuilds) fill(ctx context.Context, some []*rebuild) {
	some = slices.DeleteFunc(slices.Clone(some), func(b *rebuild) bool { return b.err != nil })
	w := walk{db: all.pool, batch: all.config.BatchSize, apart: true}
	var names []string
	for _, b := range some {
		names = append(names, b.Name)
		w.lanes = append(w.lanes, b.lanes...)
	}
	w.from = &source{db: all.pool, kinds: kindsOf(w.lanes)}
	defer w.from.stop()
	err := all.follow(ctx, &w, strings.Join(names, ", "))
	for _, b := range some {
		for _, l := range b.lanes {
			b.do(func() error { return l.err })
		}
		b.do(func() error { return err })
	}
}

// follow goes on until the head is near.
func (all *rebuilds) follow(ctx context.Context, w *walk, names string) error {
	from, _ := hindmost(w.lanes)
	pace := newPace(names, from)
	for {
		if _, err := ledger.Sequence(ctx, all.pool); err != nil {
			return err
		}
		head, err := ledger.Head(ctx, all.pool)
		if err != nil {
			return err
		}
		at, ok := hindmost(w.lanes)
		if !ok || at == head {
			return nil
		}
		w.after = func() {
			if at, ok := hindmost(w.lanes); ok && all.config.Progress != nil {
				all.config.Progress(pace.progress(at, head))
			}
		}
		if err := w.advance(ctx, head); err != nil || head-at <= ledger.Position(all.config.BatchSize) {
			return err
		}
	}
}
