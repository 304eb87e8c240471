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
	// Slices is how many transactions would fold at once.
	Slices int
	// Fold is how long the folding would take at that rate if one slice did it all; Indexes how long it would take to make
	// the indexes at the end, which is told from those of the sample's rows; 0 where the projection has DDL: then the
	// sample has had them from the beginning, and the rate is the lower for it.
	Fold, Indexes time.Duration
	// Shortest and Longest are between which two the rebuild should lie. What slices gain depends on the processors that
	// the server has to spare: at best they share Fold evenly, at worst there is no gain. Besides, a rebuild takes half to
	// one and a half times what a sample says. Neither of the two has in it what cannot be told: events that are appended
	// meanwhile, other projections rebuilt in the same call, and waiting, for disks and for the locks of the swap.
	Shortest, Longest time.Duration
}

// How a rebuild by one slice was to what its sample said: 12 of the built-in projections, from 300,000 events and beside other
// work, took 0.53 to 1.48 times as long. A sample is the slower where it updates the same rows again and again, in one
// transaction, and the faster where a rebuild waits for disks.
const fastest, slowest = 0.5, 1.5

// DryRun says what [Rebuild] would do and how long it would take, and checks what Rebuild checks before it begins. It
// folds the first events of the ledger, for about two seconds, into temporary tables, and makes their indexes; all of it
// is rolled back: nothing is changed. An event among them that cannot be folded is a [*FoldError].
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
	switch {
	case unfinished && !b.config.Restart:
		plan.ResumesAt, plan.Slices = b.at().Position, len(b.lanes)
	case b.Slicing == SliceNone:
		plan.Slices = 1
	default:
		plan.Slices = b.config.Slices
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
	sampled, err := b.sample(ctx, plan.Head)
	plan.Sampled = sampled.through
	plan.estimate(sampled)
	return plan, err
}

// estimate says how long it takes, from how long a sample has taken.
func (p *RebuildPlan) estimate(s sample) {
	if s.through == 0 {
		return
	}
	p.Rate = float64(s.through) / s.folding.Seconds()
	p.Fold = time.Duration(float64(p.Head-p.ResumesAt) / p.Rate * float64(time.Second))
	p.Indexes = time.Duration(float64(s.indexing) * float64(p.Head) / float64(s.through))
	p.Shortest = time.Duration(fastest * float64(p.Fold/time.Duration(p.Slices)+p.Indexes))
	p.Longest = time.Duration(slowest * float64(p.Fold+p.Indexes))
}

// sample is what was folded to see how long it takes.
type sample struct {
	through           ledger.Position
	folding, indexing time.Duration
}

// sample folds the beginning of the ledger for a while, and makes the indexes of that.
func (b *rebuild) sample(ctx context.Context, head ledger.Position) (s sample, err error) {
	conn, err := ownConnection(ctx, b.pool)
	if err != nil {
		return s, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return s, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	model, err := b.makeSample(ctx, tx)
	if err != nil {
		return s, err
	}

	l := b.lane(0, 1)
	l.place.schema, l.place.cursor = tempSchema, ""
	w := walk{db: tx, from: &source{db: b.pool, kinds: kindsOf([]*lane{l})}, lanes: []*lane{l}, batch: b.config.BatchSize}
	defer w.from.stop()
	start := time.Now()
	for l.err == nil && l.at.Position < head && time.Since(start) < sampleTime {
		end := min(head, l.at.Position+ledger.Position(b.config.BatchSize))
		if err = w.advance(ctx, end); err != nil {
			break
		}
	}
	s.through, s.folding = l.at.Position, time.Since(start)
	if err == nil {
		err = l.err
	}
	if err != nil {
		return s, err
	}
	if b.DDL != "" {
		return s, nil // the model itself has them
	}
	start = time.Now()
	for _, table := range b.Tables {
		if err := model.copyIndexes(ctx, tx, table, tempSchema); err != nil {
			return s, err
		}
	}
	s.indexing = time.Since(start)
	return s, nil
}

// makeSample makes the tables that a dry run folds into.
func (b *rebuild) makeSample(ctx context.Context, tx pgx.Tx) (model, error) {
	if err := setRole(ctx, tx, b.place.role); err != nil {
		return model{}, err
	}
	m, err := newModel(ctx, tx, b.Projection)
	if err != nil || b.DDL != "" {
		return m, err // the model itself will do
	}
	for _, table := range b.Tables {
		if err := m.copyTable(ctx, tx, table, tempSchema); err != nil {
			return m, err
		}
	}
	return m, nil
}
