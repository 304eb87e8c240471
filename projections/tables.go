package projections

import (
	"context"
	"crypto/sha256"
	_ "embed" // the statements
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
)

var (
	//go:embed sql/table_facts.sql
	tableFactsSQL string
	//go:embed sql/view_facts.sql
	viewFactsSQL string
	//go:embed sql/schema_facts.sql
	schemaFactsSQL string
)

// projectionLock is the advisory lock that a rebuild of a projection holds: the first eight bytes of
// SHA-256("daybook.projection." + name).
func projectionLock(name string) int64 {
	sum := sha256.Sum256([]byte("daybook.projection." + name))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // the bits are what counts
}

// locks are the locks of several projections, held by a connection of its own, so that they never outlive the process.
type locks struct {
	conn *pgx.Conn
}

func newLocks(ctx context.Context, pool *pgxpool.Pool) (*locks, error) {
	conn, err := ownConnection(ctx, pool)
	if err != nil {
		return nil, err
	}
	return &locks{conn: conn}, nil
}

// take takes the lock of one projection, at once or not at all.
func (l *locks) take(ctx context.Context, name string) error {
	var locked bool
	err := l.conn.QueryRow(ctx, `select pg_try_advisory_lock($1)`, projectionLock(name)).Scan(&locked)
	if err != nil {
		return fmt.Errorf("lock the projection: %w", err)
	}
	if !locked {
		return errors.New("another rebuild of it is under way; wait for that one")
	}
	return nil
}

// release gives up all of them.
func (l *locks) release(ctx context.Context) {
	// Closing alone would do, but returns before PostgreSQL has noticed; whoever comes next would be refused.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = l.conn.Exec(ctx, `select pg_advisory_unlock_all()`)
	_ = l.conn.Close(ctx)
}

// ownConnection takes a connection out of the pool, for good: whatever is left in its session ends with it.
func ownConnection(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn.Hijack(), nil
}

// tableFacts is what there is to know about a live table before it is rebuilt.
type tableFacts struct {
	Name     string
	Exists   bool
	Owner    string
	MayOwn   bool
	Problems []string
}

type viewFacts struct {
	Name      string
	Owner     string
	MayOwn    bool
	Statement string
}

type schemaFacts struct {
	Name           string
	Exists, Usable bool
}

// checkTables says why a projection cannot be rebuilt here and by this role, before anything is done; where it can,
// it returns the role that owns the tables.
func checkTables(ctx context.Context, db database, p Projection) (owner string, err error) {
	tables, err := collect[tableFacts](ctx, db, "look at the tables", tableFactsSQL, p.Schema, p.Tables)
	if err != nil {
		return "", err
	}
	for _, t := range tables {
		name := p.Schema + "." + t.Name
		switch {
		case !t.Exists && p.DDL != "":
			continue // the version before had no such table
		case !t.Exists:
			return "", fmt.Errorf("table %s does not exist; migrate first", name)
		case len(t.Problems) > 0:
			return "", fmt.Errorf("table %s cannot be rebuilt: %s", name, strings.Join(t.Problems, "; "))
		case owner != "" && t.Owner != owner:
			return "", fmt.Errorf("table %s is owned by %s, another one of the projection by %s", name, t.Owner, owner)
		case !t.MayOwn:
			return "", fmt.Errorf("table %s is owned by %s; rebuild as a member of that role", name, t.Owner)
		}
		owner = t.Owner
	}
	if owner == "" {
		return "", fmt.Errorf("none of its tables exists in schema %s; migrate first", p.Schema)
	}
	views, err := viewsOn(ctx, db, p)
	if err != nil {
		return "", err
	}
	for _, v := range views {
		if !v.MayOwn {
			return "", fmt.Errorf("view %s on its tables is owned by %s; rebuild as a member of that role", v.Name, v.Owner)
		}
	}
	names := []string{p.Schema, rebuildSchema(p.Schema), oldSchema(p.Schema)}
	schemas, err := collect[schemaFacts](ctx, db, "look at the schemas", schemaFactsSQL, names, owner)
	if err != nil {
		return "", err
	}
	for _, s := range schemas {
		if !s.Exists {
			return "", fmt.Errorf("schema %s is missing; have a migration run: create schema %s authorization %s",
				s.Name, quoted(s.Name), quoted(owner))
		}
		if !s.Usable {
			return "", fmt.Errorf("role %s may not create tables in schema %s; grant it create there", owner, s.Name)
		}
	}
	return owner, nil
}

// viewsOn returns the views on a projection's live tables, with all names in their definitions qualified.
func viewsOn(ctx context.Context, db database, p Projection) (views []viewFacts, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := clearPath(ctx, tx); err != nil {
			return err
		}
		views, err = collect[viewFacts](ctx, tx, "look at the views", viewFactsSQL, p.Schema, p.Tables)
		return err
	})
	return views, err
}

// clearPath lets nothing but PostgreSQL's own be found without its schema, for the rest of the transaction.
func clearPath(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "set local search_path = pg_catalog, pg_temp"); err != nil {
		return fmt.Errorf("set the search_path: %w", err)
	}
	return nil
}

// execAll runs the statements that a query returns.
func execAll(ctx context.Context, tx pgx.Tx, what, query string, args ...any) error {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

func collect[T any](ctx context.Context, db ledger.Querier, what, query string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return all, nil
}
