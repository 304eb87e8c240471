package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/projections"
)

// copyViews makes a schema with empty tables like a projection's live ones, with the same constraints and indexes. Their
// names are PostgreSQL's own choice, which for the constraint that a fold names is the same.
func copyViews(ctx context.Context, pool *pgxpool.Pool, schema string, views ...projections.Projection) error {
	if _, err := pool.Exec(ctx, "create schema if not exists "+pgx.Identifier{schema}.Sanitize()); err != nil {
		return fmt.Errorf("make schema %s: %w", schema, err)
	}
	for _, view := range views {
		for _, table := range view.Tables {
			_, err := pool.Exec(ctx, fmt.Sprintf("create table %s (like %s including all)",
				pgx.Identifier{schema, table}.Sanitize(), pgx.Identifier{projections.DefaultSchema, table}.Sanitize()))
			if err != nil {
				return fmt.Errorf("copy %s: %w", table, err)
			}
			// LIKE leaves it out, and it decides where updated rows go.
			if _, err := pool.Exec(ctx, fmt.Sprintf(copyFillFactor, schema, table)); err != nil {
				return fmt.Errorf("copy the fill factor of %s: %w", table, err)
			}
		}
	}
	return nil
}

// copyFillFactor gives a copy the storage options of the table it is a copy of.
const copyFillFactor = `
do $$
begin
    execute (
        select format('alter table %%I.%%I set (%%s)', '%[1]s', c.relname, array_to_string(c.reloptions, ', '))
        from pg_class as c
        where c.oid = 'daybook.%[2]s'::regclass
            and c.reloptions is not null
    );
end
$$`

// viewsDiffer says where the rows of a view in two schemas are not the same. Both are to have come from the same events.
func viewsDiffer(ctx context.Context, pool *pgxpool.Pool, table, one, other string) error {
	var different int64
	a, b := pgx.Identifier{one, table}.Sanitize(), pgx.Identifier{other, table}.Sanitize()
	err := pool.QueryRow(ctx, fmt.Sprintf(
		"select count(*) from ((table %[1]s except table %[2]s) union all (table %[2]s except table %[1]s)) as d", a, b,
	)).Scan(&different)
	if err != nil {
		return fmt.Errorf("compare %s with %s: %w", a, b, err)
	}
	if different != 0 {
		return fmt.Errorf("%s and %s differ in %d rows", a, b, different)
	}
	return nil
}
