package projections

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/enter.sql
var enterSQL string

// quoted returns a name of one part or more, quoted.
func quoted(parts ...string) string { return pgx.Identifier(parts).Sanitize() }

// searchPath returns the search_path under which a fold finds the tables of that schema and nothing else. pg_catalog
// comes first, so that nothing in the schema can stand in for PostgreSQL's own functions and operators.
func searchPath(schema string) string {
	if schema == tempSchema {
		return "pg_catalog, pg_temp"
	}
	return "pg_catalog, " + quoted(schema) + ", pg_temp"
}

// entered is what enter found.
type entered struct {
	Previous string
	Path     string
	// Version is that of the live tables; nil where the projection was never opened.
	Version *int
}

// enter pins the search_path for the rest of the transaction.
func enter(ctx context.Context, tx pgx.Tx, path, projection string) (entered, error) {
	rows, err := tx.Query(ctx, enterSQL, path, projection)
	if err != nil {
		return entered{}, fmt.Errorf("set the search_path: %w", err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[entered])
	if err != nil {
		return entered{}, fmt.Errorf("set the search_path: %w", err)
	}
	return found, nil
}

// foldTx is a transaction that its holder cannot end.
type foldTx struct{ pgx.Tx }

var errNotYours = errors.New("daybook: a fold does not end the transaction, its runner does")

func (foldTx) Commit(context.Context) error   { return errNotYours }
func (foldTx) Rollback(context.Context) error { return errNotYours }
