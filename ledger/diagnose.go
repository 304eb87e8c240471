package ledger

import (
	"context"
	_ "embed" // the statements
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

var (
	//go:embed sql/diagnose.sql
	diagnoseSQL string
	//go:embed sql/diagnose_cursors.sql
	diagnoseCursorsSQL string
)

// Diagnosis is what [Diagnose] found.
type Diagnosis struct {
	LedgerID uuid.UUID `json:"ledger_id"`
	Epoch    int64     `json:"epoch"`
	// Recorded is where the epoch began, zero where no reader has come yet; Found is where the ledger is.
	Recorded Life `json:"recorded"`
	Found    Life `json:"found"`
	// FollowTimelines: readers go on by themselves after the promotion of a replica.
	FollowTimelines bool `json:"follow_timelines"`
	// Position is the last one given.
	Position Position  `json:"position"`
	Findings []Finding `json:"findings"`
}

// NeedsEpoch reports whether anything was found that only a new epoch puts right.
func (d Diagnosis) NeedsEpoch() bool {
	for _, f := range d.Findings {
		if f.NeedsEpoch {
			return true
		}
	}
	return false
}

// FindingKind says what kind of trouble it is.
type FindingKind string

// The kinds of findings.
const (
	FindingNoData         FindingKind = "no_data"          // the schema without its rows
	FindingOtherCluster   FindingKind = "other_cluster"    // the epoch began in another cluster
	FindingOtherDatabase  FindingKind = "other_database"   // the epoch began in another database of this cluster
	FindingOtherTimeline  FindingKind = "other_timeline"   // the epoch began on another timeline
	FindingSeenBeyond     FindingKind = "seen_beyond"      // somebody has seen positions that do not exist
	FindingForeignXIDs    FindingKind = "foreign_xids"     // the sequencer remembers another cluster's transactions
	FindingEventIDs       FindingKind = "event_ids"        // event ids would be drawn a second time
	FindingEventsLost     FindingKind = "events_lost"      // ids that were sequenced or seen have no event
	FindingSequencer      FindingKind = "sequencer"        // the sequencer does not know its last position
	FindingCursorBeyond   FindingKind = "cursor_beyond"    // a cursor is beyond the last position
	FindingCursorOldEpoch FindingKind = "cursor_old_epoch" // a cursor belongs to another epoch
	FindingSwept          FindingKind = "swept"            // a sweep has found events that sequencing had missed
)

// Finding is one thing that is not as it should be.
type Finding struct {
	Kind FindingKind `json:"kind"`
	// Cursor is the name of the cursor that it is about, "" where it is about none.
	Cursor string `json:"cursor,omitempty"`
	// Detail says in plain words what was found and what it means; Advice what to do.
	Detail string `json:"detail"`
	Advice string `json:"advice"`
	// NeedsEpoch: only [BeginEpoch] puts it right.
	NeedsEpoch bool `json:"needs_epoch"`
}

// Diagnose finds out whether the ledger still is where its epoch began, whether its parts belong together, and which cursors
// cannot go on. seen is the highest position that anyone outside the database is known to have seen, such as the
// ce-sequence of a broker's last message; it shows a rewind that leaves no trace inside, such as that of a disk to a snapshot. 0 where that
// is not known.
//
// It costs a few index probes and changes nothing. Any member of daybook_operator or daybook_relay may call it.
func Diagnose(ctx context.Context, db Querier, seen Position) (Diagnosis, error) {
	diagnosis, err := diagnose(ctx, db, seen)
	if err != nil {
		return diagnosis, fmt.Errorf("daybook: diagnose the ledger: %w", err)
	}
	return diagnosis, nil
}

// facts is the answer of daybook.diagnose.
type facts struct {
	Epoch                                                        *int64
	LedgerID                                                     *uuid.UUID
	FollowTimelines                                              bool
	RecordedSystemIdentifier, RecordedTimeline, RecordedDatabase *int64
	SystemIdentifier, Timeline, Database                         *int64
	Position                                                     *Position
	Head, Swept                                                  *int64
	LastPosition                                                 Position
	LastEvent, LastOrdered, NextEvent                            int64
	ForeignXIDs                                                  bool
}

func diagnose(ctx context.Context, db Querier, seen Position) (Diagnosis, error) {
	rows, err := db.Query(ctx, diagnoseSQL)
	if err != nil {
		return Diagnosis{}, err
	}
	f, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[facts])
	if err != nil {
		return Diagnosis{}, err
	}
	d := Diagnosis{
		LedgerID: orZero(f.LedgerID), Epoch: orZero(f.Epoch), FollowTimelines: f.FollowTimelines, Position: orZero(f.Position),
		Recorded: Life{orZero(f.RecordedSystemIdentifier), orZero(f.RecordedTimeline), orZero(f.RecordedDatabase)},
		Found:    Life{orZero(f.SystemIdentifier), orZero(f.Timeline), orZero(f.Database)},
		Findings: []Finding{},
	}
	if f.Epoch == nil || f.Position == nil {
		d.Findings = append(d.Findings, Finding{
			Kind:   FindingNoData,
			Detail: "the schema is there without the rows that every ledger has: it was restored without its data",
			Advice: "restore the dump as a whole, schema and data, into an empty database",
		})
		return d, nil
	}
	d.findPlace(f)
	d.findParts(f, seen)

	rows, err = db.Query(ctx, diagnoseCursorsSQL, d.Epoch)
	if err != nil {
		return Diagnosis{}, err
	}
	type place struct {
		Name     string
		Epoch    int64
		Position Position
	}
	cursors, err := pgx.CollectRows(rows, pgx.RowToStructByPos[place])
	if err != nil {
		return Diagnosis{}, err
	}
	for _, c := range cursors {
		d.findCursor(c.Name, Cursor{c.Epoch, c.Position})
	}
	return d, nil
}

const adviceEpoch = "stop the readers, then daybook doctor --after-restore --carry-cursors"

// findPlace compares where the epoch began with where the ledger is. Before any reader has come there is nobody to mislead.
func (d *Diagnosis) findPlace(f facts) {
	if f.RecordedDatabase == nil {
		return
	}
	add := func(kind FindingKind, recorded, found int64, detail, advice string) bool {
		if recorded == 0 || found == 0 || recorded == found {
			return false
		}
		d.Findings = append(d.Findings, Finding{
			Kind: kind, Detail: fmt.Sprintf(detail, d.Epoch, recorded, found), Advice: advice, NeedsEpoch: true,
		})
		return true
	}
	if add(FindingOtherCluster, d.Recorded.SystemIdentifier, d.Found.SystemIdentifier,
		"epoch %d began in the cluster with system identifier %d, this is %d: the database was restored from a dump, or moved, or the cluster was upgraded with pg_upgrade",
		"make sure that nobody writes to the old database any more; "+adviceEpoch) {
		// In another cluster timeline and database say nothing more.
		return
	}
	add(FindingOtherDatabase, d.Recorded.DatabaseOID, d.Found.DatabaseOID,
		"epoch %d began in the database with oid %d, this is %d of the same cluster: the database was restored from a dump under another name, or it is a copy",
		"if this is the one to go on with: "+adviceEpoch)
	if d.FollowTimelines && d.Recorded.Timeline < d.Found.Timeline {
		return
	}
	add(FindingOtherTimeline, d.Recorded.Timeline, d.Found.Timeline,
		"epoch %d began on timeline %d, this is timeline %d: a replica was promoted, which loses what it had not received, or the cluster was restored to a point in time",
		adviceEpoch+"; where replicas are synchronous, so that a promotion loses nothing, daybook doctor --follow-timelines makes readers go on by themselves")
}

// findParts looks whether what the database holds can belong together.
func (d *Diagnosis) findParts(f facts, seen Position) {
	add := func(kind FindingKind, needsEpoch bool, advice, detail string, args ...any) {
		d.Findings = append(d.Findings, Finding{Kind: kind, Detail: fmt.Sprintf(detail, args...), Advice: advice, NeedsEpoch: needsEpoch})
	}
	if seen > f.LastPosition {
		add(FindingSeenBeyond, true, adviceEpoch,
			"position %d was seen, but the last one is %d: the database was rewound, and other events will stand at those positions", seen, f.LastPosition)
	}
	if f.ForeignXIDs {
		add(FindingForeignXIDs, true, adviceEpoch,
			"the sequencer remembers transactions that this cluster has not begun yet: its rows are from another cluster or a later time")
	}
	if highest := max(f.LastEvent, f.LastOrdered, orZero(f.Head)); f.NextEvent <= highest {
		add(FindingEventIDs, true, adviceEpoch,
			"the next event would get id %d, but ids up to %d have been given out: enqueues fail, or their events are never sequenced", f.NextEvent, highest)
	}
	if highest := max(f.LastOrdered, orZero(f.Head)); highest > f.LastEvent {
		add(FindingEventsLost, true, "restore again from a dump or backup that is whole; daybook verify ledger lists what is missing",
			"ids up to %d have been sequenced, but the last event is %d: events are lost", highest, f.LastEvent)
	}
	if d.Position != f.LastPosition || orZero(f.Head) < f.LastOrdered {
		add(FindingSequencer, true, adviceEpoch,
			"the sequencer stands at position %d and id %d, but the last one given is position %d, up to id %d: its row is older or younger than the ledger",
			d.Position, orZero(f.Head), f.LastPosition, f.LastOrdered)
	}
	if orZero(f.Swept) > 0 {
		add(FindingSwept, false, "please report it with what daybook verify ledger says",
			"a sweep has found %d events that sequencing had missed; they have their positions now", orZero(f.Swept))
	}
}

func (d *Diagnosis) findCursor(name string, c Cursor) {
	f := Finding{Kind: FindingCursorBeyond, Cursor: name, NeedsEpoch: true, Advice: adviceEpoch}
	f.Detail = fmt.Sprintf("it is at position %d, but the last one is %d: it was moved in a ledger that had more events", c.Position, d.Position)
	if c.Epoch != d.Epoch {
		f.Kind, f.NeedsEpoch = FindingCursorOldEpoch, false
		f.Detail = fmt.Sprintf("it is at position %d of epoch %d, the ledger is in epoch %d: its reader stops until that is decided", c.Position, c.Epoch, d.Epoch)
		f.Advice = "if it was restored together with the ledger: daybook doctor --carry-cursor " + name
	}
	d.Findings = append(d.Findings, f)
}
