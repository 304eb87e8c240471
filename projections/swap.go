package projections

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
)

var (
	//go:embed sql/cursor_lock.sql
	cursorLockSQL string
	//go:embed sql/cursor_swap.sql
	cursorSwapSQL string
	//go:embed sql/projection_rebuilt.sql
	projectionRebuiltSQL string
	//go:embed sql/lock_holders.sql
	lockHoldersSQL string
)

// errBehind says that the live tables are further ahead than one batch.
var errBehind = errors.New("the live tables are too far ahead")

// swap puts the shadow tables in the place of the live ones. It waits for its locks only shortly, since whoever wants
// to read meanwhile waits behind it, and tries again until its time is up.
func (b *rebuild) swap(ctx context.Context, all *rebuilds) error {
	deadline := time.Now().Add(b.config.SwapTimeout)
	for wait := b.config.LockTimeout; ; wait = min(2*wait, 5*time.Second) {
		err := b.trySwap(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errBehind):
			wait = b.config.LockTimeout / 2
		case !lockFailed(err):
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("the swap got no lock on the live tables within %v%s; call again to go on from here: %w",
				b.config.SwapTimeout, b.holders(ctx), err)
		default:
			// Readers get a chance for at least as long as they were held up.
			if err := sleep(ctx, wait+rand.N(wait)); err != nil {
				return err
			}
		}
		if all.fill(ctx, []*rebuild{b}); b.err != nil {
			return b.err
		}
	}
}

// lockFailed reports whether an error is about a lock that another holds.
func lockFailed(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "55P03" || pgErr.Code == "40P01")
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// holders says who holds the live tables, for an error's text.
func (b *rebuild) holders(ctx context.Context) string {
	type holder struct {
		PID int32
		Age *string
	}
	all, err := collect[holder](ctx, b.pool, "look for the holders", lockHoldersSQL, b.Schema, b.Tables)
	if err != nil || len(all) == 0 {
		return ""
	}
	var texts []string
	for _, h := range all {
		text := "backend " + strconv.Itoa(int(h.PID))
		if h.Age != nil {
			text += ", in a transaction since " + *h.Age
		}
		texts = append(texts, text)
	}
	return " (held by " + strings.Join(texts, "; ") + ")"
}

func (b *rebuild) trySwap(ctx context.Context) error {
	at := b.at()
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		milliseconds := strconv.FormatInt(b.config.LockTimeout.Milliseconds(), 10)
		if _, err := tx.Exec(ctx, `select set_config('lock_timeout', $1, true)`, milliseconds); err != nil {
			return fmt.Errorf("set lock_timeout: %w", err)
		}
		// The cursor first: a runner that waits here goes on with the new tables, from the new position.
		live, err := lockCursor(ctx, tx, CursorName(b.Name), at)
		if err != nil {
			return err
		}
		// A live cursor of another epoch says nothing about this ledger.
		behind := live.Epoch == at.Epoch && live.Position > at.Position
		if behind && live.Position-at.Position > ledger.Position(b.config.BatchSize) {
			return errBehind
		}
		from := at.Position
		if behind {
			at.Position = live.Position
		}
		if _, err := tx.Exec(ctx, cursorSwapSQL, CursorName(b.Name), at.Epoch, int64(at.Position)); err != nil {
			return fmt.Errorf("move the live cursor: %w", err)
		}
		if _, err := tx.Exec(ctx, projectionRebuiltSQL, b.Name, b.Version); err != nil {
			return fmt.Errorf("record the version: %w", err)
		}
		if _, err := tx.Exec(ctx, cursorDropSQL, b.cursorPrefix()); err != nil {
			return fmt.Errorf("drop the rebuild's cursor: %w", err)
		}
		// From here on as the owner of the tables, who need not have any right on cursors.
		if err := b.foldRest(ctx, tx, from, at.Position); err != nil {
			return err
		}
		return b.exchange(ctx, tx)
	})
	if err != nil {
		return err
	}
	for _, l := range b.lanes {
		l.at = at
	}
	b.result.Swapped = true
	if !b.config.DropOld {
		b.result.OldSchema = oldSchema(b.Schema)
	}
	return nil
}

// lockCursor locks the live cursor; where there is none it makes one, so that a first runner waits, too.
func lockCursor(ctx context.Context, tx pgx.Tx, name string, shadow ledger.Cursor) (ledger.Cursor, error) {
	var stale *ledger.EpochError
	if _, err := ledger.OpenCursor(ctx, tx, name, 0); err != nil && !errors.As(err, &stale) {
		return ledger.Cursor{}, err
	}
	cursors, err := collect[ledger.Cursor](ctx, tx, "lock the live cursor", cursorLockSQL, name)
	if err != nil {
		return ledger.Cursor{}, err
	}
	if len(cursors) == 0 {
		return ledger.Cursor{Epoch: shadow.Epoch}, nil
	}
	return cursors[0], nil
}

// foldRest folds what the live tables have and the shadow tables have not.
func (b *rebuild) foldRest(ctx context.Context, tx pgx.Tx, from, through ledger.Position) error {
	// All slices are equally far by now.
	rest := b.lane(0, 1)
	// The cursor is the live one by now, and this transaction, unlike those before, is to be on disk when it is over.
	rest.place.cursor, rest.place.shadow = "", false
	var events []ledger.Event
	if through > from {
		var err error
		events, _, err = ledger.Read(ctx, tx, from, int(through-from), rest.Kinds...)
		if err != nil {
			return err
		}
	}
	if _, err := rest.take(ctx, tx, through); err != nil {
		return err
	}
	return rest.fold(ctx, tx, from, events)
}

// exchange moves the live tables to the schema of the old ones and the shadow tables to the schema of the live ones.
func (b *rebuild) exchange(ctx context.Context, tx pgx.Tx) error {
	model, err := newModel(ctx, tx, b.Projection)
	if err != nil {
		return err
	}
	if err := clearPath(ctx, tx); err != nil {
		return err
	}
	// From here on readers wait.
	live, err := b.lockLive(ctx, tx)
	if err != nil {
		return err
	}
	views, err := viewsOn(ctx, tx, b.Projection)
	if err != nil {
		return err
	}
	for _, table := range b.Tables {
		if err := model.copyGrants(ctx, tx, table, b.place.schema); err != nil {
			return err
		}
	}
	if err := model.drop(ctx, tx); err != nil {
		return err
	}
	if err := dropOld(ctx, tx, b.Projection, b.place.role); err != nil {
		return err
	}
	run := func(what, statement string) error {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	for _, table := range live {
		err := run("put a live table aside", "alter table "+quoted(b.Schema, table)+" set schema "+quoted(oldSchema(b.Schema)))
		if err != nil {
			return err
		}
	}
	for _, table := range b.Tables {
		err := run("put a new table in place", "alter table "+quoted(b.place.schema, table)+" set schema "+quoted(b.Schema))
		if err != nil {
			return err
		}
	}
	for _, view := range views {
		if err := setRole(ctx, tx, view.Owner); err != nil {
			return err
		}
		if err := run("redefine view "+view.Name, view.Statement); err != nil {
			return err
		}
	}
	if !b.config.DropOld {
		return nil
	}
	return dropOld(ctx, tx, b.Projection, b.place.role)
}

// lockLive keeps everybody else from the live tables, and returns those that exist: where the projection has DDL, the
// version before may have had fewer.
func (b *rebuild) lockLive(ctx context.Context, tx pgx.Tx) (live []string, err error) {
	tables, err := collect[tableFacts](ctx, tx, "look at the tables", tableFactsSQL, b.Schema, b.Tables)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range tables {
		if t.Exists {
			live, names = append(live, t.Name), append(names, quoted(b.Schema, t.Name))
		}
	}
	if _, err := tx.Exec(ctx, "lock table "+strings.Join(names, ", ")+" in access exclusive mode"); err != nil {
		return nil, fmt.Errorf("lock the live tables: %w", err)
	}
	return live, nil
}

// DropOld drops the tables that a projection had before its last rebuild, all or none, and returns their names with their
// schema. Where there are none it does nothing. It is refused while a rebuild of the projection is under way, and where
// something of somebody's, such as a view, stands on an old table; it needs the same role as [Rebuild].
func DropOld(ctx context.Context, pool *pgxpool.Pool, projection Projection) (dropped []string, err error) {
	projection, err = projection.checked()
	if err != nil {
		return nil, err
	}
	locks, err := newLocks(ctx, pool)
	if err != nil {
		return nil, atBoundary("drop the old tables of "+projection.Name, err)
	}
	defer locks.release(ctx)
	if err := locks.take(ctx, projection.Name); err != nil {
		return nil, atBoundary("drop the old tables of "+projection.Name, err)
	}
	owner, err := checkTables(ctx, pool, projection)
	if err != nil {
		return nil, atBoundary("drop the old tables of "+projection.Name, err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// Nobody else makes or drops them: the lock of the rebuilds is held.
		old, err := collect[tableFacts](ctx, tx, "look at the old tables", tableFactsSQL, oldSchema(projection.Schema), projection.Tables)
		if err != nil {
			return err
		}
		for _, table := range old {
			if table.Exists {
				dropped = append(dropped, oldSchema(projection.Schema)+"."+table.Name)
			}
		}
		return dropOld(ctx, tx, projection, owner)
	})
	if err != nil {
		return nil, atBoundary("drop the old tables of "+projection.Name, err)
	}
	return dropped, nil
}

func dropOld(ctx context.Context, tx pgx.Tx, p Projection, owner string) error {
	if err := setRole(ctx, tx, owner); err != nil {
		return err
	}
	for _, table := range p.Tables {
		// Restrict: what somebody has built on an old table is not thrown away.
		if _, err := tx.Exec(ctx, "drop table if exists "+quoted(oldSchema(p.Schema), table)+" restrict"); err != nil {
			return fmt.Errorf("drop table %s.%s: %w", oldSchema(p.Schema), table, err)
		}
	}
	return nil
}
