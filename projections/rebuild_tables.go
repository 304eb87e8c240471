package projections

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel"

	"github.com/daybook-go/daybook/ledger"
)

var (
	//go:embed sql/cursor_find.sql
	cursorFindSQL string
	//go:embed sql/cursor_drop.sql
	cursorDropSQL string
	//go:embed sql/cursors_lock.sql
	cursorsLockSQL string
	//go:embed sql/same_tables.sql
	sameTablesSQL string
)

// cursorPrefix begins the names of the cursors of a projection's unfinished rebuilds.
func (b *rebuild) cursorPrefix() string { return "rebuild:" + b.Name + ":" }

// rebuildCursor is a cursor of an unfinished rebuild.
type rebuildCursor struct {
	Name string
	ledger.Cursor
	// Current is true where it is of the current epoch.
	Current bool
}

// lane returns the lane of one of count slices, before position 1.
func (b *rebuild) lane(index, count int) *lane {
	l := &lane{
		Projection: b.Projection,
		place:      b.place,
		slice:      slice{by: b.Slicing, index: index, count: count},
		tracer:     otel.GetTracerProvider().Tracer(instrumentation),
	}
	l.place.cursor = fmt.Sprintf("%sv%d", b.cursorPrefix(), b.Version)
	if count > 1 {
		l.place.cursor += fmt.Sprintf(":%dof%d", index+1, count) // no "/": that is in the names of consumer groups
	}
	return l
}

// prepare opens the rebuild's cursors, over the shadow tables that are there or over new ones.
func (b *rebuild) prepare(ctx context.Context) (err error) {
	if b.place.role, err = checkTables(ctx, b.pool, b.Projection); err != nil {
		return err
	}
	unfinished, err := b.findUnfinished(ctx)
	if err != nil {
		return err
	}
	if unfinished && !b.config.Restart {
		b.result.ResumedAt, b.result.Slices = b.at().Position, len(b.lanes)
		return nil
	}
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return b.begin(ctx, tx) })
}

// findUnfinished finds the lanes of an unfinished rebuild that can go on: of this version, over tables with the columns
// that they should have.
func (b *rebuild) findUnfinished(ctx context.Context) (found bool, err error) {
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		cursors, err := collect[rebuildCursor](ctx, tx, "look for an unfinished rebuild", cursorsLockSQL, b.cursorPrefix())
		if err != nil {
			return err
		}
		for i := range cursors {
			l := b.lane(i, len(cursors))
			at := slices.IndexFunc(cursors, func(c rebuildCursor) bool { return c.Name == l.place.cursor && c.Current })
			if at < 0 {
				b.lanes = nil
				break
			}
			l.at = cursors[at].Cursor
			b.lanes = append(b.lanes, l)
		}
		if err := setRole(ctx, tx, b.place.role); err != nil {
			return err
		}
		model, err := newModel(ctx, tx, b.Projection)
		if err != nil {
			return err
		}
		if err := model.fits(ctx, tx); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, sameTablesSQL, model.schema, b.Tables, b.place.schema).Scan(&found); err != nil {
			return fmt.Errorf("look for shadow tables: %w", err)
		}
		found = found && len(b.lanes) > 0
		return model.drop(ctx, tx)
	})
	return found, err
}

// begin throws away what there is and begins.
func (b *rebuild) begin(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, cursorDropSQL, b.cursorPrefix()); err != nil {
		return fmt.Errorf("forget an unfinished rebuild: %w", err)
	}
	count := 1
	if b.Slicing != SliceNone {
		count = b.config.Slices
	}
	b.lanes = nil
	for i := range count {
		l := b.lane(i, count)
		cursor, err := ledger.OpenCursor(ctx, tx, l.place.cursor, 0)
		if err != nil {
			return err
		}
		l.at = cursor
		b.lanes = append(b.lanes, l)
	}
	b.result.Slices = count
	if err := setRole(ctx, tx, b.place.role); err != nil {
		return err
	}
	model, err := newModel(ctx, tx, b.Projection)
	if err != nil {
		return err
	}
	for _, table := range b.Tables {
		if _, err := tx.Exec(ctx, "drop table if exists "+quoted(b.place.schema, table)); err != nil {
			return fmt.Errorf("drop a shadow table: %w", err)
		}
		if err := model.copyTable(ctx, tx, table, b.place.schema); err != nil {
			return err
		}
	}
	return model.drop(ctx, tx)
}

// buildIndexes makes what the fold did without, one table at a time, each in a transaction of its own.
func (b *rebuild) buildIndexes(ctx context.Context) error {
	for _, table := range b.Tables {
		err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			// So that whoever comes after this process was killed waits until it is known whether this has been committed.
			if _, err := collect[rebuildCursor](ctx, tx, "lock the cursors", cursorsLockSQL, b.cursorPrefix()); err != nil {
				return err
			}
			if err := setRole(ctx, tx, b.place.role); err != nil {
				return err
			}
			model, err := newModel(ctx, tx, b.Projection)
			if err != nil {
				return err
			}
			if err := model.copyIndexes(ctx, tx, table, b.place.schema); err != nil {
				return err
			}
			return model.drop(ctx, tx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// analyze lets the planner know the new tables before the first reader meets them.
func (b *rebuild) analyze(ctx context.Context) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if err := setRole(ctx, tx, b.place.role); err != nil {
			return err
		}
		for _, table := range b.Tables {
			if _, err := tx.Exec(ctx, "analyze "+quoted(b.place.schema, table)); err != nil {
				return fmt.Errorf("analyze the shadow tables: %w", err)
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
