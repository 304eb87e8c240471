package projections

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

// DefaultSchema is where a projection's tables are looked for.
const DefaultSchema = "daybook"

// Fold adds events to the tables of a projection, in the transaction it is given. The events come in the order of
// their positions, at least one, each exactly once.
//
// A fold is a function of the tables and the events, of nothing else: no clock, no network, no other tables, and
// nothing about how the events were cut into slices. Otherwise a rebuild would not equal what it replaces.
//
// Its SQL names the tables without a schema; the package documentation says why. The transaction is the runner's:
// Commit and Rollback refuse, while Begin makes a savepoint as usual.
//
// Where one event is the reason for an error, return it through [BadEvent], so that it is found at once.
type Fold func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error

// Projection is a view of the ledger: tables, and the fold that fills them from events.
type Projection struct {
	// Name identifies the projection and its cursor: 1–40 lower-case letters, digits and underscores, a letter first.
	// By convention that of its table.
	Name string
	// Version says which fold and which columns: 1 or more. Raise it whenever the same events would give other rows,
	// then rebuild. A runner of another version than the live tables' gets a [*VersionError].
	Version int
	// Schema is where the live tables lie; default [DefaultSchema]. At most 55 bytes, since "_rebuild" is appended.
	Schema string
	// Tables are all the tables that the fold writes: at least one, plain, with a primary key, owned by one role, in
	// Schema, made by a migration. Names without the schema, of lower-case letters, digits and underscores.
	Tables []string
	// DDL makes the tables as this version has them: any number of statements, the same text that the migration runs
	// which makes the live ones. Its names of the projection's own tables have no schema, all others have one. With
	// it, [Rebuild] fills tables of that shape, so that a new version may have other columns while the live tables and
	// whoever reads them still have the old ones. Without it, they are like the live ones.
	DDL string
	// FoldIndexes are names of indexes by which the fold itself looks rows up. A rebuild builds all others that enforce
	// nothing when the tables are full, which is faster.
	FoldIndexes []string
	// Kinds are the kinds of events that the fold wants; none means all.
	Kinds []ledger.Kind
	// Slicing says how a rebuild may spread the events over several transactions at once; default [SliceNone].
	Slicing Slicing
	// Fold adds events to the tables. Required.
	Fold Fold
}

var (
	nameForm  = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)
	tableForm = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)
	// The suffixes of the other schemas have to fit beside the name, into PostgreSQL's 63 bytes.
	schemaForm = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,54}$`)
)

// checked returns the projection with its defaults, or says what is wrong with it.
func (p Projection) checked() (Projection, error) {
	if !nameForm.MatchString(p.Name) {
		return p, fmt.Errorf("daybook: projection name %q is not 1–40 lower-case letters, digits and underscores, "+
			"a letter first", p.Name)
	}
	wrong := func(format string, args ...any) (Projection, error) {
		return p, fmt.Errorf("daybook: projection %s: %s", p.Name, fmt.Sprintf(format, args...))
	}
	if p.Version < 1 {
		return wrong("version is %d, must be 1 or more", p.Version)
	}
	if p.Schema == "" {
		p.Schema = DefaultSchema
	}
	// In pg_catalog or a temporary schema, a table would not be found where the runner looks for it.
	if !schemaForm.MatchString(p.Schema) || strings.HasPrefix(p.Schema, "pg_") {
		return wrong("schema %q is not 1–55 lower-case letters, digits and underscores, or begins with pg_", p.Schema)
	}
	if len(p.Tables) == 0 {
		return wrong("it has no tables")
	}
	p.Tables = slices.Sorted(slices.Values(p.Tables))
	for i, table := range p.Tables {
		if !tableForm.MatchString(table) || strings.HasPrefix(table, "pg_") {
			return wrong("table %q is not 1–63 lower-case letters, digits and underscores, or begins with pg_", table)
		}
		if i > 0 && table == p.Tables[i-1] {
			return wrong("table %q is there twice", table)
		}
	}
	for _, index := range p.FoldIndexes {
		if index == "" {
			return wrong("an index by which it folds has no name")
		}
	}
	p.Kinds = slices.Compact(slices.Sorted(slices.Values(p.Kinds)))
	if p.Slicing < SliceNone || p.Slicing > SliceByJob {
		return wrong("slicing %d is unknown", p.Slicing)
	}
	if p.Fold == nil {
		return wrong("it has no fold")
	}
	return p, nil
}

// wants reports whether the fold is to see events of that kind.
func (p Projection) wants(kind ledger.Kind) bool {
	return len(p.Kinds) == 0 || slices.Contains(p.Kinds, kind)
}

// kindsOf returns the kinds that any of the projections wants; none where one of them wants all.
func kindsOf(lanes []*lane) []ledger.Kind {
	var kinds []ledger.Kind
	for _, l := range lanes {
		if len(l.Kinds) == 0 {
			return nil
		}
		kinds = append(kinds, l.Kinds...)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}
