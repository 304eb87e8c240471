package ledger

import (
	"context"
	_ "embed" // the statement
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/check_life.sql
var checkLifeSQL string

// Life says where a ledger is. A restore, a rewind or a move changes at least one of its parts; what is 0 is not known,
// because the server does not tell, and is not compared.
type Life struct {
	// SystemIdentifier is the cluster's. It changes with a restore into a new cluster, a logical copy, and pg_upgrade.
	SystemIdentifier int64 `json:"system_identifier,omitempty"`
	// Timeline is that of the cluster's WAL. It changes with a point-in-time restore and with the promotion of a replica.
	Timeline int64 `json:"timeline,omitempty"`
	// DatabaseOID is the database's. It changes with a restore, or a copy, into another database of the same cluster.
	DatabaseOID int64 `json:"database_oid,omitempty"`
}

// differences says in words in what another life differs; "" where in nothing that both know.
func (l Life) differences(found Life) string {
	var in []string
	add := func(what string, recorded, found int64) {
		if recorded != 0 && found != 0 && recorded != found {
			in = append(in, fmt.Sprintf("%s %d, now %d", what, recorded, found))
		}
	}
	add("in the cluster with system identifier", l.SystemIdentifier, found.SystemIdentifier)
	add("on timeline", l.Timeline, found.Timeline)
	add("in the database with oid", l.DatabaseOID, found.DatabaseOID)
	return strings.Join(in, "; ")
}

// EpochError says that a reader must not go on: its cursor belongs to another life of the ledger, or the ledger itself is
// not where its epoch began. The database was restored, rewound, moved or failed over, and somebody has to decide what the
// readers shall do: daybook doctor says what there is to decide.
type EpochError struct {
	// Name is the cursor's, and Cursor where it is; zero where there is none yet.
	Name   string
	Cursor Cursor
	// CurrentEpoch is the ledger's.
	CurrentEpoch int64
	// Recorded is where the epoch began and Found where the ledger is now. Both are zero where the epoch alone differs.
	Recorded, Found Life
}

// Error names the cursor, what differs, and what to run.
func (e *EpochError) Error() string {
	if differences := e.Recorded.differences(e.Found); differences != "" {
		return fmt.Sprintf("daybook: cursor %q must not be used: epoch %d of the ledger began %s: the database was restored, moved or failed over; run daybook doctor",
			e.Name, e.CurrentEpoch, differences)
	}
	return fmt.Sprintf("daybook: cursor %q is at position %d of epoch %d, but the ledger is in epoch %d; run daybook doctor",
		e.Name, e.Cursor.Position, e.Cursor.Epoch, e.CurrentEpoch)
}

// errNoMeta says that the schema is there and its data is not.
var errNoMeta = errors.New("daybook.meta has no row: the schema was restored without its data; run daybook doctor")

// lifeRow is the answer of daybook.check_life.
type lifeRow struct {
	Epoch                                                        *int64
	Same                                                         bool
	RecordedSystemIdentifier, RecordedTimeline, RecordedDatabase *int64
	SystemIdentifier, Timeline, Database                         *int64
}

// check returns the epoch, and the error for the reader of that name where it must not go on.
func (r lifeRow) check(name string, cursor Cursor) (epoch int64, err error) {
	if r.Epoch == nil {
		return 0, errNoMeta
	}
	if r.Same {
		return *r.Epoch, nil
	}
	return *r.Epoch, &EpochError{
		Name: name, Cursor: cursor, CurrentEpoch: *r.Epoch,
		Recorded: Life{orZero(r.RecordedSystemIdentifier), orZero(r.RecordedTimeline), orZero(r.RecordedDatabase)},
		Found:    Life{orZero(r.SystemIdentifier), orZero(r.Timeline), orZero(r.Database)},
	}
}

// CheckEpoch returns the epoch that the ledger is in, and an [*EpochError] for the reader of that name where the ledger is
// not where that epoch began. [OpenCursor] asks the same; a reader that keeps its cursor while its connections come and go
// asks again after it has lost one, because a server that comes back may be another one.
func CheckEpoch(ctx context.Context, db Querier, name string) (int64, error) {
	rows, err := db.Query(ctx, checkLifeSQL)
	if err != nil {
		return 0, fmt.Errorf("daybook: check the epoch: %w", err)
	}
	life, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[lifeRow])
	if err != nil {
		return 0, fmt.Errorf("daybook: check the epoch: %w", err)
	}
	return life.check(name, Cursor{})
}
