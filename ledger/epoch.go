package ledger

import (
	"context"
	_ "embed" // the statements
	"fmt"

	"github.com/jackc/pgx/v5"
)

var (
	//go:embed sql/raise_event_id.sql
	raiseEventIDSQL string
	//go:embed sql/begin_epoch.sql
	beginEpochSQL string
	//go:embed sql/follow_timelines.sql
	followTimelinesSQL string
	//go:embed sql/carry_cursors.sql
	carryCursorsSQL string
)

// Epoch is an epoch that was begun.
type Epoch struct {
	Epoch int64 `json:"epoch"`
	// Position is the last one given in the epochs before; the new one goes on behind it.
	Position Position `json:"position"`
	// Swept is how many events had no position although no gap was kept for them. They have one now.
	Swept int64 `json:"swept"`
	// Raised is true where event ids would have been drawn a second time.
	Raised bool `json:"raised"`
}

// BeginEpoch begins a new epoch where the database is now: after a restore, a rewind, a move or a failover. Positions stay
// as they are. Every cursor keeps its old epoch, so that each reader stops with an [*EpochError], those that are
// running included, until [CarryCursors] takes its cursor along.
//
// It also brings in order what a restore may leave behind: event ids that would be drawn again, transaction ids of another
// cluster, a sequencer that does not know its last position; and it sweeps. Writers may go on meanwhile.
//
// db must not be a transaction: this takes two. Any member of daybook_operator may call it.
func BeginEpoch(ctx context.Context, db Querier) (Epoch, error) {
	epoch, err := beginEpoch(ctx, db)
	if err != nil {
		return epoch, fmt.Errorf("daybook: begin an epoch: %w", err)
	}
	return epoch, nil
}

func beginEpoch(ctx context.Context, db Querier) (Epoch, error) {
	// Committed before the epoch is begun: see daybook.raise_event_id.
	rows, err := db.Query(ctx, raiseEventIDSQL)
	if err != nil {
		return Epoch{}, err
	}
	var epoch Epoch
	if epoch.Raised, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool]); err != nil {
		return Epoch{}, err
	}
	if rows, err = db.Query(ctx, beginEpochSQL, epoch.Raised); err != nil {
		return Epoch{}, err
	}
	type row struct {
		Epoch    int64
		Position Position
		Swept    int64
	}
	begun, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
	if err != nil {
		return Epoch{}, err
	}
	epoch.Epoch, epoch.Position, epoch.Swept = begun.Epoch, begun.Position, begun.Swept
	return epoch, nil
}

// CarriedCursor is a cursor that was taken along into the current epoch.
type CarriedCursor struct {
	Name string `json:"name"`
	// FromEpoch and FromPosition are where it was.
	FromEpoch    int64    `json:"from_epoch"`
	FromPosition Position `json:"from_position"`
	// Position is where it is now: the same, or the last position of the ledger where it was beyond that. A consumer group
	// then gets the events that stand there in this epoch; a projection has folded events that do not exist any more,
	// and must be rebuilt.
	Position Position `json:"position"`
}

// CarryCursors takes cursors of other epochs along into the current one: those named, or without names all. It returns
// those it took along, by name; a cursor that is in the current epoch already is left alone.
//
// After a dump and restore, or a move, each cursor belongs to the events it was restored with: carried along, its reader
// gets every event that it had not acknowledged when the dump was made, once, in order.
//
// Any member of daybook_operator may call it.
func CarryCursors(ctx context.Context, db Querier, names ...string) ([]CarriedCursor, error) {
	if len(names) == 0 {
		names = nil
	}
	rows, err := db.Query(ctx, carryCursorsSQL, names)
	if err != nil {
		return nil, fmt.Errorf("daybook: carry cursors: %w", err)
	}
	carried, err := pgx.CollectRows(rows, pgx.RowToStructByPos[CarriedCursor])
	if err != nil {
		return nil, fmt.Errorf("daybook: carry cursors: %w", err)
	}
	return carried, nil
}

// FollowTimelines sets whether readers go on by themselves when the cluster is on a later timeline: after the promotion of a
// replica. Set it where replication is synchronous, so that a promotion loses nothing that was committed. Where it is
// not, a promotion may lose events that readers have seen, and the default, to stop, is right; so it is where clusters are
// restored to a point in time, because that begins a timeline, too.
//
// Any member of daybook_operator may call it.
func FollowTimelines(ctx context.Context, db Querier, follow bool) error {
	rows, err := db.Query(ctx, followTimelinesSQL, follow)
	if err != nil {
		return fmt.Errorf("daybook: follow timelines: %w", err)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return fmt.Errorf("daybook: follow timelines: %w", err)
	}
	return nil
}
