package projections

import (
	"context"
	_ "embed" // the statement
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"

	"github.com/daybook-go/daybook/ledger"
)

// tempSchema is how a session calls its own temporary schema.
const tempSchema = "pg_temp"

// Verify computes a projection anew, up to where its live tables have come, and compares the two. Runners go on
// meanwhile: the comparison, the cursor it goes by and the last events before it are of one snapshot.
//
// It fills temporary tables on a connection of its own, which it takes out of the pool and closes, so that nothing
// is left behind however it ends. The role needs what daybook_relay has, select on the live tables, and to make
// temporary tables. Differences are in the report, they are not an error; [*FoldError], [*VersionError] and
// [*ledger.EpochError] are.
func Verify(ctx context.Context, pool *pgxpool.Pool, projection Projection) (Report, error) {
	projection, err := projection.checked()
	if err != nil {
		return Report{}, err
	}
	conn, err := ownConnection(ctx, pool)
	if err != nil {
		return Report{}, atBoundary("verify "+projection.Name, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	v := &verification{
		conn: conn,
		lane: &lane{
			Projection: projection,
			place:      place{schema: tempSchema},
			tracer:     otel.GetTracerProvider().Tracer(instrumentation),
		},
		source: &source{db: pool},
		report: Report{Projection: projection.Name, Version: projection.Version},
	}
	v.source.kinds = kindsOf([]*lane{v.lane})
	defer v.source.stop()
	if err := v.run(ctx); err != nil {
		return v.report, atBoundary("verify "+projection.Name, err)
	}
	return v.report, nil
}

// verification is one under way.
type verification struct {
	conn   *pgx.Conn
	lane   *lane
	source *source
	report Report
}

func (v *verification) run(ctx context.Context) error {
	l := v.lane
	if err := checkVersion(ctx, v.conn, l.Projection); err != nil {
		return err
	}
	err := pgx.BeginFunc(ctx, v.conn, func(tx pgx.Tx) error {
		for _, table := range l.Tables {
			if err := (model{l.Projection, l.Schema}).copyTable(ctx, tx, table, tempSchema); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}

	// Most of it outside of the snapshot, which keeps PostgreSQL from cleaning up for as long as it lasts.
	for {
		live, err := ledger.OpenCursor(ctx, v.conn, CursorName(l.Name), 0)
		if err != nil {
			return err
		}
		near := live.Position-l.at.Position <= DefaultRebuildBatch
		if err := v.advance(ctx, v.conn, live.Position); err != nil {
			return err
		}
		if near {
			break
		}
	}
	for _, table := range l.Tables {
		if _, err := v.conn.Exec(ctx, "analyze "+quoted(tempSchema, table)); err != nil {
			return fmt.Errorf("analyze the computed tables: %w", err)
		}
	}
	return pgx.BeginTxFunc(ctx, v.conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		return v.compare(ctx, tx)
	})
}

func (v *verification) advance(ctx context.Context, db database, through ledger.Position) error {
	w := walk{db: db, from: v.source, lanes: []*lane{v.lane}, batch: DefaultRebuildBatch}
	err := w.advance(ctx, through)
	return errors.Join(err, v.lane.err)
}

// compare folds what is missing up to the cursor as the snapshot shows it, and compares table by table.
func (v *verification) compare(ctx context.Context, tx pgx.Tx) error {
	l := v.lane
	for _, table := range l.Tables {
		// Before the snapshot, which the first query takes: so a rebuild swaps its tables in before the snapshot or
		// after the comparison, and never shows this transaction tables that were filled after its snapshot.
		if _, err := tx.Exec(ctx, "lock table "+quoted(l.Schema, table)+" in access share mode"); err != nil {
			return fmt.Errorf("lock table %s: %w", table, err)
		}
	}
	if _, err := tx.Exec(ctx, "set local jit = off"); err != nil {
		return fmt.Errorf("set jit: %w", err)
	}
	live, found, err := findCursor(ctx, tx, CursorName(l.Name))
	if err != nil {
		return err
	}
	if !found || live.Position < l.at.Position {
		return fmt.Errorf("the cursor went back behind position %d meanwhile; verify again", l.at.Position)
	}
	if err := v.advance(ctx, tx, live.Position); err != nil {
		return err
	}
	v.report.Position = live.Position
	v.report.OK = true
	for _, table := range l.Tables {
		compared, err := compareTable(ctx, tx, l.Schema, table)
		if err != nil {
			return fmt.Errorf("compare table %s.%s: %w", l.Schema, table, err)
		}
		v.report.Tables = append(v.report.Tables, compared)
		v.report.OK = v.report.OK && compared.Missing+compared.Extra+compared.Different == 0
	}
	return nil
}
