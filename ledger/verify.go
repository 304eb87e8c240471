package ledger

import (
	"context"
	_ "embed" // the statements
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

var (
	//go:embed sql/verify_bounds.sql
	verifyBoundsSQL string
	//go:embed sql/verify_positions.sql
	verifyPositionsSQL string
	//go:embed sql/verify_events.sql
	verifyEventsSQL string
	//go:embed sql/verify_next_event.sql
	verifyNextEventSQL string
)

// verifyPage is how many positions, or ids, are looked at in one statement; verify_positions.sql has it written out.
const verifyPage = 5000

// Report says whether the ledger is what it must be.
type Report struct {
	// OK is true where nothing is wrong.
	OK bool `json:"ok"`
	// Position is the last one that was looked at, the head when it began.
	Position Position `json:"position"`
	// Events is how many there are, with a position or without.
	Events int64 `json:"events"`
	// Damages are what is wrong, one entry for each kind.
	Damages []Damage `json:"damages,omitempty"`
}

// DamageKind says what is wrong.
type DamageKind string

// The kinds of damage.
const (
	DamageMissingPosition DamageKind = "missing_position" // positions are dense, and one is not there
	DamageMissingEvent    DamageKind = "missing_event"    // a position whose event is not there
	DamageLeafHash        DamageKind = "leaf_hash"        // an event whose stored bytes do not have the hash they were sequenced with
	DamageUnsequenced     DamageKind = "unsequenced"      // an event below the head without a position, and in no gap
	DamageRepeated        DamageKind = "repeated"         // an event with several positions
	DamageSequencer       DamageKind = "sequencer"        // the sequencer's row does not agree with the ledger
	DamageSwept           DamageKind = "swept"            // a sweep has found events that sequencing had missed
)

// Damage is one kind of damage, and where it begins.
type Damage struct {
	Kind DamageKind `json:"kind"`
	// Count is how many positions or events it is about.
	Count int64 `json:"count"`
	// FirstPosition and FirstEventID are those of the first one; 0 where it has none.
	FirstPosition Position `json:"first_position,omitempty"`
	FirstEventID  int64    `json:"first_event_id,omitempty"`
	// Detail says in plain words what that means.
	Detail string `json:"detail"`
}

var damageDetails = map[DamageKind]string{
	DamageMissingPosition: "rows of daybook.ledger_order are gone: readers stop there",
	DamageMissingEvent:    "rows of daybook.event are gone: readers stop there",
	DamageLeafHash:        "events were altered after they were sequenced",
	DamageUnsequenced:     "events are committed and no reader will ever see them; daybook.sweep() gives them positions",
	DamageRepeated:        "events are delivered and counted more than once",
	DamageSequencer:       "its row was altered, or is of another time than the ledger; see daybook doctor",
	DamageSwept:           "sequencing had missed events that a sweep found; please report it",
}

// Verify checks the ledger itself: that positions are dense up to the head, that each has its event, that every event
// at or below the head has exactly one or may still get it, and that each event's stored bytes have the hash under which it was
// sequenced, computed anew by [LeafHash]. What it finds is in the report, it is not an error.
//
// It reads everything there is, in pages of a few thousand, so that neither memory nor the age of a snapshot grows with the
// ledger. Writers and sequencers may go on: what they add meanwhile is not looked at, or is found in order. db is a
// pool or a connection; the role needs what daybook_relay has. progress, where it is not nil, is told how many positions are done,
// of how many. On error the report holds what was found until then, and its OK means nothing.
func Verify(ctx context.Context, db Querier, progress func(done, of Position)) (Report, error) {
	if progress == nil {
		progress = func(Position, Position) {}
	}
	v := &verification{db: db, damages: map[DamageKind]*Damage{}}
	if err := v.run(ctx, progress); err != nil {
		return v.finish(), fmt.Errorf("daybook: verify the ledger: %w", err)
	}
	return v.finish(), nil
}

// verification is one under way.
type verification struct {
	db      Querier
	report  Report
	damages map[DamageKind]*Damage
}

func (v *verification) found(kind DamageKind, count int64, position Position, eventID int64) {
	d := v.damages[kind]
	if d == nil {
		d = &Damage{Kind: kind, FirstPosition: position, FirstEventID: eventID, Detail: damageDetails[kind]}
		v.damages[kind] = d
	}
	d.Count += count
}

// finish lists the damages in the order in which their kinds are declared.
func (v *verification) finish() Report {
	v.report.OK = len(v.damages) == 0
	for _, kind := range []DamageKind{
		DamageMissingPosition, DamageMissingEvent, DamageLeafHash, DamageUnsequenced, DamageRepeated, DamageSequencer, DamageSwept,
	} {
		if d := v.damages[kind]; d != nil {
			v.report.Damages = append(v.report.Damages, *d)
		}
	}
	return v.report
}

func (v *verification) run(ctx context.Context, progress func(done, of Position)) error {
	type bounds struct {
		Position    Position
		Head, Swept int64
		Last        Position
		LastEvent   int64
	}
	rows, err := v.db.Query(ctx, verifyBoundsSQL)
	if err != nil {
		return err
	}
	b, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[bounds])
	if err != nil {
		return err
	}
	v.report.Position = max(b.Position, b.Last)
	if b.Position != b.Last || b.Head > b.LastEvent {
		v.found(DamageSequencer, 1, min(b.Position, b.Last), min(b.Head, b.LastEvent))
	}
	if b.Swept > 0 {
		v.found(DamageSwept, b.Swept, 0, 0)
	}
	// Positions that are beyond the last one would all be missing, and the sequencer's row says so already.
	for at := Position(0); at < b.Last; at += verifyPage {
		if err := v.positions(ctx, at, min(at+verifyPage, b.Last)); err != nil {
			return err
		}
		progress(min(at+verifyPage, b.Last), b.Last)
	}
	return v.events(ctx)
}

// positions looks at the positions (after, through]: dense, each with its event, each event with its hash.
func (v *verification) positions(ctx context.Context, after, through Position) error {
	rows, err := v.db.Query(ctx, verifyPositionsSQL, int64(after), int64(through))
	if err != nil {
		return err
	}
	var (
		position, next          Position
		id                      int64
		leaf, keyHash, body     []byte
		kind, scope, keyPreview *string
		jobID                   *uuid.UUID
		recordedAt              *time.Time
	)
	next = after + 1
	into := []any{&position, &id, &leaf, &kind, &jobID, &scope, &keyHash, &keyPreview, &body, &recordedAt}
	_, err = pgx.ForEachRow(rows, into, func() error {
		if position > next {
			v.found(DamageMissingPosition, int64(position-next), next, 0)
		}
		next = position + 1
		if kind == nil || recordedAt == nil {
			v.found(DamageMissingEvent, 1, position, id)
			return nil
		}
		event := Event{
			ID: id, Kind: Kind(*kind), JobID: orZero(jobID), Scope: orZero(scope), KeyPreview: orZero(keyPreview),
			Body: body, RecordedAt: *recordedAt,
		}
		if keyHash != nil && len(keyHash) == len(KeyHash{}) {
			event.KeyHash = (*KeyHash)(keyHash)
		}
		if hash := LeafHash(event); string(hash[:]) != string(leaf) || (keyHash != nil && event.KeyHash == nil) {
			v.found(DamageLeafHash, 1, position, id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if through >= next {
		v.found(DamageMissingPosition, int64(through-next)+1, next, 0)
	}
	return nil
}

// events looks at each event there is: one position, or none and a reason.
func (v *verification) events(ctx context.Context) error {
	for after := int64(0); ; {
		rows, err := v.db.Query(ctx, verifyNextEventSQL, after)
		if err != nil {
			return err
		}
		first, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[*int64])
		if err != nil {
			return err
		}
		if first == nil {
			return nil
		}
		if err := v.window(ctx, *first-1, *first-1+verifyPage); err != nil {
			return err
		}
		after = *first - 1 + verifyPage
	}
}

func (v *verification) window(ctx context.Context, after, through int64) error {
	type window struct {
		Events                    int64
		WithoutPosition, Repeated []int64
		RepeatedAt                []Position
	}
	rows, err := v.db.Query(ctx, verifyEventsSQL, after, through)
	if err != nil {
		return err
	}
	w, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[window])
	if err != nil {
		return err
	}
	v.report.Events += w.Events
	if n := len(w.WithoutPosition); n > 0 {
		v.found(DamageUnsequenced, int64(n), 0, w.WithoutPosition[0])
	}
	if n := len(w.Repeated); n > 0 {
		v.found(DamageRepeated, int64(n), w.RepeatedAt[0], w.Repeated[0])
	}
	return nil
}
