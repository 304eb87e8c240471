package projections

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/projection_open.sql
var projectionOpenSQL string

// instrumentation is the name under which this package traces.
const instrumentation = "github.com/daybook-go/daybook/projections"

// DefaultBatch is how many positions are folded at once. Their events are in memory, with those of the
// next two batches.
const DefaultBatch = 5000

// RunnerConfig configures a [Runner]. The zero value is ready for use.
type RunnerConfig struct {
	// TracerProvider gets a span "daybook.project" for each batch; default: OpenTelemetry's global one.
	TracerProvider trace.TracerProvider
}

// Runner folds what is new into the live tables of one projection. It holds no state between calls and is safe for
// concurrent use; runners of one projection in any number of processes are harmless to one another.
//
// Its role needs what daybook_relay has, and select, insert, update and delete on the tables.
type Runner struct {
	projection Projection
	tracer     trace.Tracer
}

// NewRunner checks the projection. It does not touch the database.
func NewRunner(projection Projection, config RunnerConfig) (*Runner, error) {
	projection, err := projection.checked()
	if err != nil {
		return nil, err
	}
	if config.TracerProvider == nil {
		config.TracerProvider = otel.GetTracerProvider()
	}
	return &Runner{projection: projection, tracer: config.TracerProvider.Tracer(instrumentation)}, nil
}

// Name returns the projection's name.
func (r *Runner) Name() string { return r.projection.Name }

// CursorName returns the name of a projection's cursor: "projection:" and its name.
func CursorName(projection string) string { return "projection:" + projection }

// Open returns the projection's cursor, and makes it, before the first position, where there is none. It returns a
// [*VersionError] where the live tables hold another version, and a [*ledger.EpochError] where the cursor is of
// another epoch.
func (r *Runner) Open(ctx context.Context, db ledger.Querier) (ledger.Cursor, error) {
	if err := checkVersion(ctx, db, r.projection); err != nil {
		return ledger.Cursor{}, err
	}
	return ledger.OpenCursor(ctx, db, CursorName(r.projection.Name), 0)
}

func checkVersion(ctx context.Context, db ledger.Querier, p Projection) error {
	// Two that open it first at once: the one whose insert lost finds the other's row in the next statement.
	for range 3 {
		rows, err := db.Query(ctx, projectionOpenSQL, p.Name, p.Version)
		if err != nil {
			return fmt.Errorf("daybook: open projection %s: %w", p.Name, err)
		}
		version, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return fmt.Errorf("daybook: open projection %s: %w", p.Name, err)
		}
		if version != p.Version {
			return &VersionError{Projection: p.Name, Live: version, Built: p.Version}
		}
		return nil
	}
	return fmt.Errorf("daybook: open projection %s: its row cannot be seen in this transaction's snapshot", p.Name)
}

// Apply folds the events of the positions (from, through] and moves the cursor from one to the other, in the caller's
// transaction or savepoint, in batches of [DefaultBatch]. through must have been sequenced; where it is from's own
// position or an earlier one, Apply does nothing.
//
// It returns [ledger.ErrCursorMoved] where the cursor is not at from, before it has folded anything, a [*VersionError]
// where a rebuild has put another version in place, and a [*FoldError] where an event could not be folded, whose
// Position is then exact only if the fold said so through [BadEvent], and the first of the batch if not. After any
// error the transaction, or the savepoint, must be rolled back. The caller's search_path is left as it was.
func (r *Runner) Apply(ctx context.Context, tx pgx.Tx, from ledger.Cursor, through ledger.Position) error {
	if through <= from.Position {
		return nil
	}
	l := r.lane(from)
	previous, err := l.take(ctx, tx, through)
	if err != nil {
		return err
	}
	for at := from.Position; at < through; {
		limit := min(DefaultBatch, int(through-at))
		events, read, err := ledger.Read(ctx, tx, at, limit, l.Kinds...)
		if err != nil {
			return err
		}
		if read == at {
			return fmt.Errorf("daybook: projection %s: position %d does not exist yet, the last one is %d", l.Name, through, read)
		}
		if err := l.fold(ctx, tx, at, events); err != nil {
			return err
		}
		at = read
	}
	if _, err := pinPath(ctx, tx, previous); err != nil {
		return fmt.Errorf("daybook: projection %s: %w", l.Name, err)
	}
	return nil
}

// CatchUp sequences what has committed and folds it, in batches of so many positions, each in a transaction of its
// own; 0 is [DefaultBatch], [ledger.MaxPage] the most. It returns how far the projection has come: at least up to
// what was there when it was called.
//
// Where another runner moves the cursor meanwhile, it goes on from there. Where an event cannot be folded it returns
// a [*FoldError] with that event's position; everything before it is folded and committed.
func (r *Runner) CatchUp(ctx context.Context, pool *pgxpool.Pool, batch int) (ledger.Position, error) {
	group, err := NewGroup(r)
	if err != nil {
		return 0, err
	}
	positions, err := group.CatchUp(ctx, pool, batch)
	return positions[r.projection.Name], err
}

// lane returns the projection over its live tables.
func (r *Runner) lane(cursor ledger.Cursor) *lane {
	return &lane{
		Projection: r.projection,
		place:      place{schema: r.projection.Schema, cursor: CursorName(r.projection.Name), live: true},
		tracer:     r.tracer,
		at:         cursor,
	}
}
