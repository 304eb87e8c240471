package projections

import (
	"context"
	_ "embed" // the statement
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/compare_columns.sql
var compareColumnsSQL string

// MaxSamples is how many differences a [TableReport] shows.
const MaxSamples = 20

// Report says how the live tables of a projection compare with the events.
type Report struct {
	Projection string `json:"projection"`
	Version    int    `json:"version"`
	// Position is the live cursor's, up to which both were compared.
	Position ledger.Position `json:"position"`
	// OK is true where every table equals what the events say.
	OK     bool          `json:"ok"`
	Tables []TableReport `json:"tables"`
}

// TableReport says how one table compares.
type TableReport struct {
	Table string `json:"table"`
	// Rows is how many rows the events say there are.
	Rows int64 `json:"rows"`
	// Missing rows are not in the live table, Extra rows should not be there, Different ones have other values.
	Missing   int64 `json:"missing"`
	Extra     int64 `json:"extra"`
	Different int64 `json:"different"`
	// FirstPosition is the least position among the differing rows, by the column position or first_position where the
	// table has one: no event before it is behind a difference. 0 where there is none, or no such column.
	FirstPosition ledger.Position `json:"first_position,omitempty"`
	// Samples are at most [MaxSamples] differences, those with the least positions.
	Samples []Difference `json:"samples,omitempty"`
}

// Difference is one row that is not what the events say.
type Difference struct {
	// Kind is missing, extra or different.
	Kind string `json:"kind"`
	// Key is the row's primary key as a JSON object; of bytes, such as a key hash, only the first twelve hex digits.
	Key string `json:"key"`
	// Columns are the names of the columns that differ, never their values; none for a missing or an extra row.
	Columns []string `json:"columns,omitempty"`
	// Position is the row's, as in [TableReport.FirstPosition]; 0 where the table has none.
	Position ledger.Position `json:"position,omitempty"`
}

// comparedColumn is a column of a compared table.
type comparedColumn struct {
	Name       string
	IsBytes    bool
	IsBigint   bool
	KeyOrdinal *int
}

func compareTable(ctx context.Context, tx pgx.Tx, schema, table string) (TableReport, error) {
	report := TableReport{Table: table}
	columns, err := collect[comparedColumn](ctx, tx, "read its columns", compareColumnsSQL, schema, table)
	if err != nil {
		return report, err
	}
	if len(columns) == 0 {
		return report, errors.New("it has no primary key, or does not exist")
	}
	err = tx.QueryRow(ctx, "select count(*) from "+quoted(tempSchema, table)).Scan(&report.Rows)
	if err != nil {
		return report, err
	}
	rows, err := tx.Query(ctx, compareSQL(schema, table, columns))
	if err != nil {
		return report, err
	}
	var (
		sample   Difference
		position *ledger.Position
		first    *ledger.Position
	)
	_, err = pgx.ForEachRow(rows,
		[]any{&sample.Kind, &sample.Key, &sample.Columns, &position, &report.Missing, &report.Extra, &report.Different, &first},
		func() error {
			sample.Position, report.FirstPosition = orZero(position), orZero(first)
			report.Samples = append(report.Samples, sample)
			return nil
		})
	return report, err
}

func orZero(position *ledger.Position) ledger.Position {
	if position == nil {
		return 0
	}
	return *position
}

// compareSQL joins the live table (l) and the computed one (c) by their primary key and keeps what differs. Rows are
// compared as they are stored, which works for types without equality, too.
func compareSQL(schema, table string, columns []comparedColumn) string {
	key := slices.DeleteFunc(slices.Clone(columns), func(c comparedColumn) bool { return c.KeyOrdinal == nil })
	slices.SortFunc(key, func(a, b comparedColumn) int { return *a.KeyOrdinal - *b.KeyOrdinal })
	var on, shown, differing []string
	for _, column := range key {
		name := quoted(column.Name)
		on = append(on, fmt.Sprintf("l.%s = c.%s", name, name))
		value := fmt.Sprintf("coalesce(l.%s, c.%s)", name, name)
		if column.IsBytes {
			value = "left(encode(" + value + ", 'hex'), 12)"
		}
		shown = append(shown, literal(column.Name)+", "+value)
	}
	position := "null::bigint"
	for _, column := range columns {
		name := quoted(column.Name)
		differing = append(differing, fmt.Sprintf("case when l.%s::text is distinct from c.%s::text then %s end",
			name, name, literal(column.Name)))
		if column.IsBigint && (column.Name == "position" || column.Name == "first_position") {
			position = fmt.Sprintf("least(l.%s, c.%s)", name, name)
		}
	}
	first := quoted(key[0].Name)
	return fmt.Sprintf(`
with differing as (
    select
        case
            when l.%[1]s is null then 'missing'
            when c.%[1]s is null then 'extra'
            else 'different'
        end as kind,
        json_build_object(%[2]s)::text as key,
        case
            when l.%[1]s is not null and c.%[1]s is not null
                then array_remove(array[%[3]s], null)
        end as columns,
        %[4]s as position
    from %[5]s as l
    full join %[6]s as c
        on %[7]s
    where l.%[1]s is null
        or c.%[1]s is null
        or l *<> c
)
select
    d.kind,
    d.key,
    d.columns,
    d.position,
    count(*) filter (where d.kind = 'missing') over (),
    count(*) filter (where d.kind = 'extra') over (),
    count(*) filter (where d.kind = 'different') over (),
    min(d.position) over ()
from differing as d
order by d.position, d.key
limit %[8]d`,
		first, strings.Join(shown, ", "), strings.Join(differing, ", "), position,
		quoted(schema, table), quoted(tempSchema, table),
		strings.Join(on, " and "), MaxSamples)
}

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
