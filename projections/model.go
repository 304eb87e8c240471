package projections

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

var (
	//go:embed sql/copy_statements.sql
	copyStatementsSQL string
	//go:embed sql/grant_statements.sql
	grantStatementsSQL string
	//go:embed sql/temp_schema.sql
	tempSchemaSQL string
	//go:embed sql/view_columns.sql
	viewColumnsSQL string
)

// model is where the tables lie that a projection's shadow tables are to be like: the live ones, or where the projection
// has DDL, temporary ones that it has made. Those serve as a pattern only, in one transaction: so the same statements
// copy tables, indexes and grants whichever it is, and indexes can be made after the tables are full.
type model struct {
	Projection
	schema string
}

// newModel makes the model, in a transaction that has the role of the tables' owner.
func newModel(ctx context.Context, tx pgx.Tx, p Projection) (model, error) {
	if p.DDL == "" {
		return model{p, p.Schema}, nil
	}
	if _, err := tx.Exec(ctx, "set local search_path = pg_temp, pg_catalog"); err != nil {
		return model{}, fmt.Errorf("set the search_path: %w", err)
	}
	// The simple protocol takes any number of statements.
	if _, err := tx.Exec(ctx, p.DDL, pgx.QueryExecModeSimpleProtocol); err != nil {
		return model{}, fmt.Errorf("make its tables from its DDL: %w", err)
	}
	if tx.Conn().PgConn().TxStatus() != 'T' {
		return model{}, errors.New("its DDL ends the transaction; leave begin and commit to whoever runs it")
	}
	m := model{Projection: p}
	if err := tx.QueryRow(ctx, tempSchemaSQL).Scan(&m.schema); err != nil {
		return model{}, fmt.Errorf("its DDL makes no tables, or names their schema: %w", err)
	}
	tables, err := collect[tableFacts](ctx, tx, "look at the tables of its DDL", tableFactsSQL, m.schema, p.Tables)
	if err != nil {
		return model{}, err
	}
	for _, t := range tables {
		if !t.Exists {
			return model{}, fmt.Errorf("its DDL does not make table %s, or names its schema", t.Name)
		}
		if len(t.Problems) > 0 {
			return model{}, fmt.Errorf("table %s of its DDL cannot be rebuilt: %s", t.Name, strings.Join(t.Problems, "; "))
		}
	}
	return m, clearPath(ctx, tx)
}

// drop ends the model before the transaction ends, since a temporary table would outlive that in its session.
func (m model) drop(ctx context.Context, tx pgx.Tx) error {
	if m.DDL == "" {
		return nil
	}
	for _, table := range m.Tables {
		if _, err := tx.Exec(ctx, "drop table "+quoted(m.schema, table)); err != nil {
			return fmt.Errorf("drop a temporary table: %w", err)
		}
	}
	return nil
}

// fits says what the views on the live tables would miss in tables like the model.
func (m model) fits(ctx context.Context, tx pgx.Tx) error {
	if m.DDL == "" {
		return nil
	}
	type need struct{ View, Column string }
	needs, err := collect[need](ctx, tx, "look at the views", viewColumnsSQL, m.Schema, m.Tables, m.schema)
	if err != nil {
		return err
	}
	if len(needs) == 0 {
		return nil
	}
	return fmt.Errorf("view %s needs column %s as it is, which version %d does not have; change or drop the view first",
		needs[0].View, needs[0].Column, m.Version)
}

// copyTable makes, in another schema, an empty table like that of the model, without the indexes that can wait.
func (m model) copyTable(ctx context.Context, tx pgx.Tx, table, into string) error {
	return m.copy(ctx, tx, table, into, false)
}

// copyIndexes makes the rest of the indexes, those that are not there yet.
func (m model) copyIndexes(ctx context.Context, tx pgx.Tx, table, into string) error {
	return m.copy(ctx, tx, table, into, true)
}

func (m model) copy(ctx context.Context, tx pgx.Tx, table, into string, deferred bool) error {
	// A swap in the middle would move the table, with its indexes, while its definition is read.
	if _, err := tx.Exec(ctx, "lock table "+quoted(m.schema, table)+" in access share mode"); err != nil {
		return fmt.Errorf("lock table %s.%s: %w", m.schema, table, err)
	}
	doing := fmt.Sprintf("copy table %s.%s to schema %s", m.schema, table, into)
	return execAll(ctx, tx, doing, copyStatementsSQL, m.schema, table, into, append([]string{}, m.FoldIndexes...), deferred)
}

// copyGrants gives a shadow table the grants of the live one, and those that the model has besides.
func (m model) copyGrants(ctx context.Context, tx pgx.Tx, table, into string) error {
	doing := fmt.Sprintf("copy the grants of table %s.%s", m.Schema, table)
	if err := execAll(ctx, tx, doing, grantStatementsSQL, m.Schema, table, into, false); err != nil {
		return err
	}
	if m.DDL == "" {
		return nil
	}
	return execAll(ctx, tx, doing, grantStatementsSQL, m.schema, table, into, true)
}
