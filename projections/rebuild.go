package projections

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"

	"github.com/daybook-go/daybook/ledger"
)

var (
	//go:embed sql/cursor_find.sql
	cursorFindSQL string
	//go:embed sql/cursor_drop.sql
	cursorDropSQL string
	//go:embed sql/same_tables.sql
	sameTablesSQL string
)

// Defaults of a [RebuildConfig].
const (
	DefaultRebuildBatch = 10_000
	DefaultLockTimeout  = 200 * time.Millisecond
	DefaultSwapTimeout  = time.Minute
)

// RebuildConfig configures [Rebuild]. The zero value is ready for use.
type RebuildConfig struct {
	// BatchSize is how many positions are folded in one transaction: 1 to [ledger.MaxPage]; default
	// [DefaultRebuildBatch]. Their events are in memory, with those of the next batch. It is also how far the live
	// tables may be ahead when the swap begins.
	BatchSize int
	// Progress is called after each batch, by the goroutine that called Rebuild. Default: nobody is told.
	Progress func(Progress)
	// Restart throws away what an unfinished rebuild has left, instead of going on from there. An unfinished
	// rebuild of another version, or of tables with other columns, is thrown away in any case.
	Restart bool
	// DropOld drops the old tables in the swap. Default: they stay until [DropOld] or the next rebuild.
	DropOld bool
	// LockTimeout is how long the swap waits for its locks at a time, which is how long readers can be held up behind
	// it: at least 1 ms, default [DefaultLockTimeout].
	LockTimeout time.Duration
	// SwapTimeout is how long the swap is tried again; then Rebuild gives up, and the next call goes on from there.
	// Default [DefaultSwapTimeout].
	SwapTimeout time.Duration
}

func (c RebuildConfig) checked() (RebuildConfig, error) {
	if c.BatchSize == 0 {
		c.BatchSize = DefaultRebuildBatch
	}
	if c.BatchSize < 1 || c.BatchSize > ledger.MaxPage {
		return c, fmt.Errorf("daybook: BatchSize is %d, must be 1 to %d", c.BatchSize, ledger.MaxPage)
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = DefaultLockTimeout
	}
	if c.LockTimeout < time.Millisecond {
		return c, fmt.Errorf("daybook: LockTimeout is %v, must be at least 1ms", c.LockTimeout)
	}
	if c.SwapTimeout == 0 {
		c.SwapTimeout = DefaultSwapTimeout
	}
	if c.SwapTimeout < 0 {
		return c, fmt.Errorf("daybook: SwapTimeout is %v, must be positive", c.SwapTimeout)
	}
	return c, nil
}

// RebuildResult says what [Rebuild] did; on an error, how far it came.
type RebuildResult struct {
	Projection string
	Version    int
	// ResumedAt is the position up to which an earlier, unfinished rebuild had come; 0 where there was none.
	ResumedAt ledger.Position
	// Position is how far the new tables have come; after a swap the live cursor stands there.
	Position ledger.Position
	// Swapped is true where the new tables have taken the place of the old ones.
	Swapped bool
	// OldSchema is where the old tables lie; "" where they were dropped.
	OldSchema string
	// Took is how long it took.
	Took time.Duration
}

// Rebuild fills a projection's tables anew from position 1, beside the live ones, and then swaps them, in one short
// transaction in which the live cursor takes the place of the new tables. Runners go on all the while, readers see the
// old rows until the swap and the new ones after it, and nothing is published.
//
// It works in transactions of its own. Interrupted at any point, it goes on from there when it is called again. Two
// at once for one projection are refused.
//
// It holds an advisory lock in a session of its own, so it does not work through a pooler in transaction mode.
//
// The role needs what daybook_relay has, and must be a member of the role that owns the tables (daybook_owner for the
// built-in ones); see the package documentation for what is asked of the tables. All of it is checked first.
//
// An event that cannot be folded ends it with a [*FoldError]; the live tables are as they were.
func Rebuild(ctx context.Context, pool *pgxpool.Pool, projection Projection, config RebuildConfig) (RebuildResult, error) {
	start := time.Now()
	projection, err := projection.checked()
	if err != nil {
		return RebuildResult{}, err
	}
	config, err = config.checked()
	if err != nil {
		return RebuildResult{}, err
	}
	b := &rebuild{
		pool: pool, config: config,
		result: RebuildResult{Projection: projection.Name, Version: projection.Version},
		lane: &lane{
			Projection: projection,
			place: place{
				schema: rebuildSchema(projection.Schema),
				cursor: fmt.Sprintf("%sv%d", rebuildCursors(projection.Name), projection.Version),
			},
			tracer: otel.GetTracerProvider().Tracer(instrumentation),
		},
	}
	err = b.run(ctx)
	b.result.Position = b.lane.at.Position
	b.result.Took = time.Since(start)
	if err != nil {
		return b.result, atBoundary("rebuild "+projection.Name, err)
	}
	return b.result, nil
}

func rebuildSchema(schema string) string { return schema + "_rebuild" }
func oldSchema(schema string) string     { return schema + "_old" }

// rebuildCursors begins the names of the cursors of a projection's unfinished rebuilds.
func rebuildCursors(projection string) string { return "rebuild:" + projection + ":" }

// rebuild is one under way. Its lane leads over the shadow tables.
type rebuild struct {
	pool   *pgxpool.Pool
	config RebuildConfig
	lane   *lane
	result RebuildResult
}

func (b *rebuild) run(ctx context.Context) error {
	unlock, err := lockProjection(ctx, b.pool, b.lane.Name)
	if err != nil {
		return err
	}
	defer unlock()
	if b.lane.place.role, err = checkTables(ctx, b.pool, b.lane.Projection); err != nil {
		return err
	}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	if err := b.fill(ctx); err != nil {
		return err
	}
	if err := b.analyze(ctx); err != nil {
		return err
	}
	return b.swap(ctx)
}

// prepare opens the rebuild's cursor, over the shadow tables that are there or over new ones.
func (b *rebuild) prepare(ctx context.Context) error {
	l := b.lane
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		var same bool
		if err := tx.QueryRow(ctx, sameTablesSQL, l.Schema, l.Tables, l.place.schema).Scan(&same); err != nil {
			return fmt.Errorf("look for shadow tables: %w", err)
		}
		cursor, found, err := findCursor(ctx, tx, l.place.cursor)
		if err != nil {
			return err
		}
		if found && same && !b.config.Restart {
			l.at = cursor
			b.result.ResumedAt = cursor.Position
			return nil
		}

		if _, err := tx.Exec(ctx, cursorDropSQL, rebuildCursors(l.Name)); err != nil {
			return fmt.Errorf("forget an unfinished rebuild: %w", err)
		}
		if l.at, err = ledger.OpenCursor(ctx, tx, l.place.cursor, 0); err != nil {
			return err
		}
		if err := setRole(ctx, tx, l.place.role); err != nil {
			return err
		}
		for _, table := range l.Tables {
			if _, err := tx.Exec(ctx, "drop table if exists "+quoted(l.place.schema, table)); err != nil {
				return fmt.Errorf("drop a shadow table: %w", err)
			}
			if err := copyTable(ctx, tx, l.Schema, table, l.place.schema); err != nil {
				return err
			}
		}
		return nil
	})
}

func findCursor(ctx context.Context, db ledger.Querier, name string) (ledger.Cursor, bool, error) {
	rows, err := db.Query(ctx, cursorFindSQL, name)
	if err != nil {
		return ledger.Cursor{}, false, fmt.Errorf("read cursor %q: %w", name, err)
	}
	cursor, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[ledger.Cursor])
	if errors.Is(err, pgx.ErrNoRows) {
		return ledger.Cursor{}, false, nil
	}
	if err != nil {
		return ledger.Cursor{}, false, fmt.Errorf("read cursor %q: %w", name, err)
	}
	return cursor, true, nil
}

// fill folds until what is left fits into the swap's own transaction.
func (b *rebuild) fill(ctx context.Context) error {
	source := &source{db: b.pool, kinds: kindsOf([]*lane{b.lane})}
	defer source.stop()
	pace := newPace(b.lane.Name, b.lane.at.Position)
	for {
		if _, err := ledger.Sequence(ctx, b.pool); err != nil {
			return err
		}
		head, err := ledger.Head(ctx, b.pool)
		if err != nil {
			return err
		}
		if head == b.lane.at.Position {
			return nil
		}
		near := head-b.lane.at.Position <= ledger.Position(b.config.BatchSize)
		err = advance(ctx, b.pool, source, []*lane{b.lane}, b.config.BatchSize, head, func() {
			if b.config.Progress != nil {
				b.config.Progress(pace.progress(b.lane.at.Position, head))
			}
		})
		if err = errors.Join(err, b.lane.err); err != nil {
			return err
		}
		if near {
			return nil
		}
	}
}

// analyze lets the planner know the new tables before the first reader meets them.
func (b *rebuild) analyze(ctx context.Context) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if err := setRole(ctx, tx, b.lane.place.role); err != nil {
			return err
		}
		for _, table := range b.lane.Tables {
			if _, err := tx.Exec(ctx, "analyze "+quoted(b.lane.place.schema, table)); err != nil {
				return fmt.Errorf("analyze the shadow tables: %w", err)
			}
		}
		return nil
	})
}
