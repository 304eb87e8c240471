package main

import (
	"context"
	_ "embed" // the statements
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
)

var (
	//go:embed sql/plain_read.sql
	plainReadSQL string
	//go:embed sql/plain_move.sql
	plainMoveSQL string
)

// plainLoop is what one would write without a Projector and a Runner: in one transaction read a page of events by
// position, fold it, move the cursor by compare-and-set, commit. The fold is the projection's own, with the same SQL.
type plainLoop struct {
	pool       *pgxpool.Pool
	projection projections.Projection
	schema     string // of the tables it fills, and the cursor's name
	page       int
	read       string
}

func newPlainLoop(pool *pgxpool.Pool, p projections.Projection, schema string, page int) *plainLoop {
	// A literal, so that the planner knows how little it will read.
	return &plainLoop{pool: pool, projection: p, schema: schema, page: page, read: fmt.Sprintf("%s\nlimit %d", plainReadSQL, page)}
}

// run goes on from a position to another.
func (l *plainLoop) run(ctx context.Context, at, end ledger.Position) error {
	for at < end {
		through := min(at+ledger.Position(l.page), end)
		err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error { return l.step(ctx, tx, at, through) })
		if err != nil {
			return fmt.Errorf("the plain loop, after position %d: %w", at, err)
		}
		at = through
	}
	return nil
}

func (l *plainLoop) step(ctx context.Context, tx pgx.Tx, at, through ledger.Position) error {
	if _, err := tx.Exec(ctx, "set local search_path = pg_catalog, "+l.schema); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, l.read, int64(at), int64(through))
	if err != nil {
		return err
	}
	events, err := pgx.CollectRows(rows, plainEvent)
	if err != nil {
		return err
	}
	if len(events) != int(through-at) {
		return fmt.Errorf("%d of %d events were there", len(events), through-at)
	}
	if err := l.projection.Fold(ctx, tx, events); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, plainMoveSQL, l.schema, int64(at), int64(through))
	if err == nil && tag.RowsAffected() != 1 {
		err = ledger.ErrCursorMoved
	}
	return err
}

func plainEvent(row pgx.CollectableRow) (event ledger.Event, err error) {
	var (
		job        *uuid.UUID
		hash, body []byte
		scope      *string
		preview    *string
	)
	err = row.Scan(&event.Position, &event.ID, &event.Kind, &job, &scope, &hash, &preview, &body, &event.RecordedAt,
		&event.SequencedAt)
	if err != nil {
		return event, err
	}
	event.Body = body
	if job != nil {
		event.JobID = *job
	}
	if scope != nil {
		event.Scope = *scope
	}
	if preview != nil {
		event.KeyPreview = *preview
	}
	if hash != nil {
		event.KeyHash = (*ledger.KeyHash)(hash)
	}
	return event, nil
}
