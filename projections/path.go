package projections

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/pin_path.sql
var pinPathSQL string

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

// pinned is what pinning the search_path found and did.
type pinned struct{ Previous, Path string }

// pinPath pins the search_path for the rest of the transaction, and returns what it was.
func pinPath(ctx context.Context, tx pgx.Tx, path string) (previous string, err error) {
	rows, err := tx.Query(ctx, pinPathSQL, path)
	if err == nil {
		var found pinned
		found, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[pinned])
		previous = found.Previous
	}
	if err != nil {
		return "", fmt.Errorf("set the search_path: %w", err)
	}
	return previous, nil
}

// foldTx is a transaction that its holder cannot end.
type foldTx struct{ pgx.Tx }

var errNotYours = errors.New("daybook: a fold does not end the transaction, its runner does")

func (foldTx) Commit(context.Context) error   { return errNotYours }
func (foldTx) Rollback(context.Context) error { return errNotYours }
