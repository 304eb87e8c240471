package ledger

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

var (
	//go:embed sql/status.sql
	statusSQL string
	//go:embed sql/status_cursors.sql
	statusCursorsSQL string
	//go:embed sql/status_holder.sql
	statusHolderSQL string
	//go:embed sql/status_runners.sql
	statusRunnersSQL string
	//go:embed sql/status_parked.sql
	statusParkedSQL string
)

// statusLimit is how many events a Status counts one by one before it goes by ids.
const statusLimit = 10_000

// Status is how far the ledger and its readers have come. All ages are measured by the database.
type Status struct {
	// At is the database's clock, in UTC.
	At time.Time
	// Epoch is the life of the ledger; a cursor of another one is not comparable.
	Epoch int64
	// Head is the last position given, and HeadAge how long ago it was given; both are 0 for an empty ledger.
	Head    Position
	HeadAge time.Duration
	// Unsequenced are the events that have committed and have no position yet. Where nobody reads the ledger nobody
	// sequences it, and they grow. Age is that of the oldest, since it was recorded.
	Unsequenced Lag
	// Estimated is true where Unsequenced.Events was told from ids, because there are more than 10,000: then it may count
	// events that were rolled back. It is also true where the gaps cover more than 1,000 events, and not all were looked at.
	Estimated bool
	// Swept counts the events that sequencing had missed and a sweep found. Anything but 0 is a defect.
	Swept int64
	// Listeners is how many connections wait to be told of new positions: each process that subscribes, projects or relays has
	// one, unless it only polls. Where there is none, a lag of 0 says only that nothing has committed since somebody
	// ran. It is -1 where the asking role may not see what others do: it then needs to be a member of pg_read_all_stats.
	Listeners int64
	// Gaps are the ids below the head that may still appear.
	Gaps Gaps
	// Parked are the events that relays could not publish and have set aside, with those that wait behind them; Age is that
	// of the first.
	Parked Lag
	// Cursors are the readers, consumer groups and projections alike, by name.
	Cursors []CursorStatus
	// Runners are those that have ever said that they are there, by name, the dead ones included.
	Runners []RunnerStatus
}

// Lag is what lies between two places.
type Lag struct {
	// Events is how many there are.
	Events int64
	// Age is how long the first of them has waited; 0 where there is none.
	Age time.Duration
}

// Gaps are event ids that were drawn and neither committed nor known to be rolled back when the head passed them.
type Gaps struct {
	// Count is how many gaps there are, and IDs how many ids they cover; those of merged gaps may have been sequenced.
	Count, IDs int64
	// OldestStamp is the xid that every transaction which can fill the oldest gap is older than; "" without gaps.
	OldestStamp string
	// Holder is the transaction that keeps them: the oldest in the cluster. Nil where it has just ended, and the next
	// round of sequencing forgets the gaps.
	Holder *GapHolder
}

// GapHolder is an open transaction, in whatever database of the cluster, that keeps gaps from being forgotten. It delays
// its own events only; while it lasts, sequencing must look into the gaps again.
type GapHolder struct {
	XID string
	// PID is the backend's; 0 for a prepared transaction, which has a GID instead.
	PID int32
	GID string
	// Database and ApplicationName say whose it is; State is PostgreSQL's ("active", "idle in transaction", "prepared").
	Database, ApplicationName, State string
	// Age is how long it has been open, and QueryStart when its last statement began, in UTC. Both are zero where the
	// asking role may not know: it then needs to be a member of pg_read_all_stats, and State is "" too.
	Age        time.Duration
	QueryStart time.Time
}

// CursorStatus is one reader's place.
type CursorStatus struct {
	Name   string
	Cursor Cursor
	// Lag is what has committed beyond the cursor, sequenced or not: with nobody running it grows as soon as anything
	// commits. Age counts from when the first event beyond the cursor was sequenced, or recorded if it is not yet.
	Lag Lag
	// MovedAge is how long ago the cursor last moved.
	MovedAge time.Duration
}

// ReadStatus returns the status of the ledger. It costs a few index probes, however large the ledger is, takes no
// lock and writes nothing; it does not sequence. Any member of daybook_operator or daybook_relay may call it; see
// [GapHolder] for what else pg_read_all_stats shows.
//
// Where db is not a transaction at REPEATABLE READ, its parts are read one after another, a moment apart.
func ReadStatus(ctx context.Context, db Querier) (Status, error) {
	status, err := readStatus(ctx, db)
	if err != nil {
		return Status{}, fmt.Errorf("daybook: read the status: %w", err)
	}
	return status, nil
}

func readStatus(ctx context.Context, db Querier) (Status, error) {
	rows, err := db.Query(ctx, statusSQL, statusLimit)
	if err != nil {
		return Status{}, err
	}
	type row struct {
		At          time.Time
		Epoch       int64
		Head        Position
		HeadAge     *int64
		Swept       int64
		Unsequenced int64
		Age         *int64
		Estimated   bool
		Gaps        int64
		GapIDs      *int64
		Stamp       *string
		Listeners   *int64
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
	if err != nil {
		return Status{}, err
	}
	status := Status{
		At: r.At.UTC(), Epoch: r.Epoch, Head: r.Head, HeadAge: microseconds(r.HeadAge), Swept: r.Swept,
		Unsequenced: Lag{Events: r.Unsequenced, Age: microseconds(r.Age)}, Estimated: r.Estimated,
		Gaps: Gaps{Count: r.Gaps, IDs: orZero(r.GapIDs), OldestStamp: orZero(r.Stamp)},
	}
	status.Listeners = -1
	if r.Listeners != nil {
		status.Listeners = *r.Listeners
	}
	if status.Gaps.Count > 0 {
		if status.Gaps.Holder, err = readHolder(ctx, db); err != nil {
			return Status{}, err
		}
	}
	if status.Parked, err = readParked(ctx, db); err != nil {
		return Status{}, err
	}
	if status.Runners, err = readRunners(ctx, db); err != nil {
		return Status{}, err
	}
	status.Cursors, err = readCursors(ctx, db, status)
	return status, err
}

func readParked(ctx context.Context, db Querier) (Lag, error) {
	rows, err := db.Query(ctx, statusParkedSQL)
	if err != nil {
		return Lag{}, err
	}
	return pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Lag, error) {
		var parked Lag
		var age *int64
		err := row.Scan(&parked.Events, &age)
		parked.Age = microseconds(age)
		return parked, err
	})
}

func readRunners(ctx context.Context, db Querier) ([]RunnerStatus, error) {
	rows, err := db.Query(ctx, statusRunnersSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (RunnerStatus, error) {
		var r RunnerStatus
		var age int64
		err := row.Scan(&r.Name, &r.Kind, &r.Host, &r.PID, &age)
		r.BeatAge = microseconds(&age)
		return r, err
	})
}

func readCursors(ctx context.Context, db Querier, status Status) ([]CursorStatus, error) {
	rows, err := db.Query(ctx, statusCursorsSQL, int64(status.Head))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (CursorStatus, error) {
		var c CursorStatus
		var age *int64
		var moved int64
		err := row.Scan(&c.Name, &c.Cursor.Epoch, &c.Cursor.Position, &c.Lag.Events, &age, &moved)
		c.Lag.Age, c.MovedAge = microseconds(age), microseconds(&moved)
		if c.Cursor.Position <= status.Head {
			c.Lag.Events += status.Unsequenced.Events
			c.Lag.Age = max(c.Lag.Age, status.Unsequenced.Age)
		}
		return c, err
	})
}

func readHolder(ctx context.Context, db Querier) (*GapHolder, error) {
	rows, err := db.Query(ctx, statusHolderSQL)
	if err != nil {
		return nil, err
	}
	holder, err := pgx.CollectOneRow(rows, func(row pgx.CollectableRow) (*GapHolder, error) {
		var h GapHolder
		var pid *int32
		var gid, database, application, state *string
		var age *int64
		var queryStart *time.Time
		err := row.Scan(&h.XID, &pid, &gid, &database, &application, &state, &age, &queryStart)
		h.PID, h.GID, h.Database = orZero(pid), orZero(gid), orZero(database)
		h.ApplicationName, h.State = orZero(application), orZero(state)
		h.Age, h.QueryStart = microseconds(age), orZero(queryStart).UTC()
		return &h, err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return holder, err
}

// microseconds is an age as PostgreSQL tells it; 0 where it tells none. Clocks that were set back make no age negative.
func microseconds(us *int64) time.Duration {
	return max(0, time.Duration(orZero(us))*time.Microsecond)
}

func orZero[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}
