package projections

import (
	"context"
	_ "embed" // the statement
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/plan_facts.sql
var planFactsSQL string

// sampleTime is how long a dry run folds.
const sampleTime = 2 * time.Second

// RebuildPlan says what a [Rebuild] would do.
type RebuildPlan struct {
	Projection string
	// Version is the one it would build, LiveVersion that of the live tables; 0 where the projection never ran.
	Version, LiveVersion int
	// Head is the last position now, ResumesAt where an unfinished rebuild would go on; 0 where there is none.
	Head, ResumesAt ledger.Position
	// Events is how many of the ledger's events are of its kinds.
	Events int64
	// LiveBytes is what the live tables take on disk, with their indexes; the new ones will take about as much beside them.
	LiveBytes int64
	// Sampled is how many positions were folded to see how long it takes, Rate how many a second that was.
	Sampled ledger.Position
	Rate    float64
	// Estimate is how long it would take at that rate, by one slice and without the indexes.
	Estimate time.Duration
}

// DryRun says what [Rebuild] would do and how long it would take, and checks what Rebuild checks before it begins. It
// folds the first events of the ledger, for about two seconds, into temporary tables that are rolled back: nothing is
// changed. An event among them that cannot be folded is a [*FoldError].
//
// It needs the rights that Rebuild needs, and to make temporary tables.
func DryRun(ctx context.Context, pool *pgxpool.Pool, projection Projection, config RebuildConfig) (RebuildPlan, error) {
	all, err := newRebuilds(pool, []Projection{projection}, config)
	if err != nil {
		return RebuildPlan{}, err
	}
	b := all.rebuilds[0]
	plan, err := b.plan(ctx)
	if err != nil {
		return plan, atBoundary("plan the rebuild of "+b.Name, err)
	}
	return plan, nil
}

func (b *rebuild) plan(ctx context.Context) (plan RebuildPlan, err error) {
	plan = RebuildPlan{Projection: b.Name, Version: b.Version}
	if b.place.role, err = checkTables(ctx, b.pool, b.Projection); err != nil {
		return plan, err
	}
	unfinished, err := b.findUnfinished(ctx)
	if err != nil {
		return plan, err
	}
	if unfinished && !b.config.Restart {
		plan.ResumesAt = b.at().Position
	}
	if plan.Head, err = ledger.Head(ctx, b.pool); err != nil {
		return plan, err
	}
	var kinds []string
	for _, kind := range b.Kinds {
		kinds = append(kinds, string(kind))
	}
	var live *int
	err = b.pool.QueryRow(ctx, planFactsSQL, b.Name, kinds, b.Schema, b.Tables).Scan(&live, &plan.Events, &plan.LiveBytes)
	if err != nil {
		return plan, fmt.Errorf("count the events: %w", err)
	}
	plan.LiveVersion = deref(live)
	var took time.Duration
	plan.Sampled, took, err = b.sample(ctx, plan.Head)
	if plan.Sampled > 0 {
		plan.Rate = float64(plan.Sampled) / took.Seconds()
		plan.Estimate = time.Duration(float64(plan.Head-plan.ResumesAt) / plan.Rate * float64(time.Second))
	}
	return plan, err
}

// sample folds the beginning of the ledger for a while, and says up to where.
func (b *rebuild) sample(ctx context.Context, head ledger.Position) (ledger.Position, time.Duration, error) {
	conn, err := ownConnection(ctx, b.pool)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := b.makeSample(ctx, tx); err != nil {
		return 0, 0, err
	}

	l := b.lane(0, 1)
	l.place.schema, l.place.cursor = tempSchema, ""
	w := walk{db: tx, from: &source{db: b.pool, kinds: kindsOf([]*lane{l})}, lanes: []*lane{l}, batch: b.config.BatchSize}
	defer w.from.stop()
	start := time.Now()
	for l.err == nil && l.at.Position < head && time.Since(start) < sampleTime {
		end := min(head, l.at.Position+ledger.Position(b.config.BatchSize))
		if err := w.advance(ctx, end); err != nil {
			return l.at.Position, time.Since(start), err
		}
	}
	return l.at.Position, time.Since(start), l.err
}

// makeSample makes the tables that a dry run folds into.
func (b *rebuild) makeSample(ctx context.Context, tx pgx.Tx) error {
	if err := setRole(ctx, tx, b.place.role); err != nil {
		return err
	}
	model, err := newModel(ctx, tx, b.Projection)
	if err != nil || b.DDL != "" {
		return err // the model itself will do
	}
	for _, table := range b.Tables {
		if err := model.copyTable(ctx, tx, table, tempSchema); err != nil {
			return err
		}
	}
	return nil
}
