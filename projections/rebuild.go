package projections

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
)

// Defaults of a [RebuildConfig].
const (
	DefaultRebuildBatch = 5_000
	DefaultLockTimeout  = 200 * time.Millisecond
	DefaultSwapTimeout  = time.Minute
	DefaultMaxSlices    = 4
)

// Stage is a part of a rebuild.
type Stage string

// The stages, in their order. One that was interrupted begins with the first again, and finds it done.
const (
	// StageFill: events are folded.
	StageFill Stage = "fill"
	// StageIndex: the indexes are made that the fold does not need.
	StageIndex Stage = "index"
	// StageSwap: the last events are folded, and the new tables are to take their place.
	StageSwap Stage = "swap"
)

// RebuildConfig configures [Rebuild]. The zero value is ready for use.
type RebuildConfig struct {
	// BatchSize is how many positions are folded in one transaction: 1 to [ledger.MaxPage]; default
	// [DefaultRebuildBatch]. Their events are in memory, with those of the next two batches. It is also how far the live
	// tables may be ahead when the swap begins.
	BatchSize int
	// Slices is how many transactions fold a projection's events at once, where its Slicing allows it: 1 to [MaxSlices],
	// each with a connection of the pool; default the number of processors, at most [DefaultMaxSlices]. An unfinished
	// rebuild goes on with as many as it began with.
	Slices int
	// Progress is called after each batch, by the goroutine that called Rebuild. Default: nobody is told.
	Progress func(Progress)
	// Stage is called when a projection's rebuild enters a stage, likewise.
	Stage func(projection string, stage Stage)
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
	if c.Slices == 0 {
		c.Slices = min(runtime.GOMAXPROCS(0), DefaultMaxSlices)
	}
	if c.Slices < 1 || c.Slices > MaxSlices {
		return c, fmt.Errorf("daybook: Slices is %d, must be 1 to %d", c.Slices, MaxSlices)
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
	// Slices is how many transactions folded at once.
	Slices int
	// Took is how long it took.
	Took time.Duration
	// Err is why it did not come further; nil where it has Swapped.
	Err error
}

// Rebuild fills a projection's tables anew from position 1, beside the live ones, and then swaps them, in one short
// transaction in which the live cursor takes the place of the new tables. Runners go on all the while, readers see the
// old rows until the swap and the new ones after it, and nothing is published.
//
// It works in transactions of its own. Interrupted at any point, it goes on from there when it is called again. Two
// at once for one projection are refused.
//
// Where the projection has DDL, the new tables are made by that, and may have other columns than the live ones, or
// there may be more of them; grants are taken over from both. Views on the live tables must find what they need in
// the new ones. A table that the new version no longer has stays where it is, for a migration to drop.
//
// It holds an advisory lock in a session of its own, so it does not work through a pooler in transaction mode.
//
// The role needs what daybook_relay has, and must be a member of the role that owns the tables (daybook_owner for the
// built-in ones); see the package documentation for what is asked of the tables. All of it is checked first.
//
// An event that cannot be folded ends it with a [*FoldError]; the live tables are as they were.
func Rebuild(ctx context.Context, pool *pgxpool.Pool, projection Projection, config RebuildConfig) (RebuildResult, error) {
	results, err := RebuildAll(ctx, pool, []Projection{projection}, config)
	if len(results) == 0 {
		return RebuildResult{}, err
	}
	return results[0], err
}

// RebuildAll is [Rebuild] for several projections: the ledger is read once for all of them. Each is swapped for itself.
// It returns what became of each, in the given order. One that cannot go on does not hold up the others: the errors
// are joined, and are in the results, too.
func RebuildAll(
	ctx context.Context, pool *pgxpool.Pool, projections []Projection, config RebuildConfig,
) ([]RebuildResult, error) {
	all, err := newRebuilds(pool, projections, config)
	if err != nil {
		return nil, err
	}
	locks, err := newLocks(ctx, pool)
	if err != nil {
		return nil, atBoundary("rebuild", err)
	}
	defer locks.release(ctx)
	all.run(ctx, locks)
	var results []RebuildResult
	var errs []error
	for _, b := range all.rebuilds {
		if b.err != nil {
			b.result.Err = atBoundary("rebuild "+b.Name, b.err)
			errs = append(errs, b.result.Err)
		}
		results = append(results, b.result)
	}
	if len(errs) == 1 {
		return results, errs[0]
	}
	return results, errors.Join(errs...)
}
