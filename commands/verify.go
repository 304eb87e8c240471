package commands

import (
	"cmp"
	"context"
	_ "embed" // the statements
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

var (
	//go:embed sql/compare_bindings.sql
	compareBindingsSQL string
	//go:embed sql/compare_jobs.sql
	compareJobsSQL string
	//go:embed sql/compare_size.sql
	compareSizeSQL string
)

// MaxSamples is how many differences a [TableReport] shows.
const MaxSamples = 20

// Slices of the key hashes and job ids that are compared in one statement each. Beyond 256 there is nothing left to cut by.
const (
	eventsPerSlice = 2_000_000
	maxSlices      = 256
)

// VerifyReport says how bindings and jobs compare with the events that made them.
type VerifyReport struct {
	// OK is true where both tables are what the events say.
	OK bool `json:"ok"`
	// Position is the last one given when the comparison began. Events that have committed and have no position yet count as well.
	Position ledger.Position `json:"position"`
	// Tables are "binding" and "job".
	Tables []TableReport `json:"tables"`
}

// TableReport says how one table compares.
type TableReport struct {
	Table string `json:"table"`
	// Rows is how many there are.
	Rows int64 `json:"rows"`
	// Missing rows are not there, Extra ones should not be, Different ones have other values than the events say.
	Missing   int64 `json:"missing"`
	Extra     int64 `json:"extra"`
	Different int64 `json:"different"`
	// FirstPosition is the least position of a last event of a row that differs: 0 where there is none, or it has no
	// position yet.
	FirstPosition ledger.Position `json:"first_position,omitempty"`
	// Samples are at most [MaxSamples] differences, those with the least positions first.
	Samples []StateDifference `json:"samples,omitempty"`
}

// StateDifference is one row that is not what the events say.
type StateDifference struct {
	// Kind is missing, extra or different.
	Kind string `json:"kind"`
	// KeyDigest is that of the binding's key, or of the job's where it is there and has one.
	KeyDigest ledger.KeyDigest `json:"key_digest,omitempty"`
	JobID     uuid.UUID        `json:"job_id"`
	// Columns are the names of the columns that differ, sorted, never their values; none for a missing or an extra row,
	// except that of an alias without its binding, which is "alias_of". "job" says that a binding's job is gone, and
	// "payload" that a payload has another size than was accepted.
	Columns []string `json:"columns,omitempty"`
	// EventID and Position are those of the last event that made the row what it should be; 0 where there is none.
	EventID  int64           `json:"event_id,omitempty"`
	Position ledger.Position `json:"position,omitempty"`
}

// Verify compares every binding and every job with a fold of their events. What it finds is in the report, it is not an error.
//
// A binding must have the event that accepted its work or replaced it, and none later that let it expire or released it; a
// job must have been accepted or redriven, and its state, its attempts, when it is due, what was asked for, and the size of its
// payload must be what its events add up to. A finished job may be gone, because its retention may be over; not so
// one whose key is still bound.
//
// Writers may go on: each slice of keys and jobs is compared in one statement, thus in one snapshot, in which every change is
// there together with its event. Memory does not grow with the ledger; time does: the events are read once for each two
// million of them. db is a pool or a connection; any member of daybook_relay or daybook_operator may call it. progress,
// where it is not nil, is told how many slices are done, of how many.
func Verify(ctx context.Context, db ledger.Querier, progress func(done, of int)) (VerifyReport, error) {
	report, err := verify(ctx, db, progress)
	if err != nil {
		return report, fmt.Errorf("daybook: verify bindings and jobs: %w", err)
	}
	return report, nil
}

func verify(ctx context.Context, db ledger.Querier, progress func(done, of int)) (VerifyReport, error) {
	rows, err := db.Query(ctx, compareSizeSQL)
	if err != nil {
		return VerifyReport{}, err
	}
	type size struct {
		Head     int64
		Position ledger.Position
	}
	s, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[size])
	if err != nil {
		return VerifyReport{}, err
	}
	report := VerifyReport{OK: true, Position: s.Position}
	count := int(min(s.Head/eventsPerSlice+1, maxSlices))
	done := 0
	for _, table := range []struct{ name, statement string }{{"binding", compareBindingsSQL}, {"job", compareJobsSQL}} {
		t := TableReport{Table: table.name}
		for slice := range count {
			if err := t.compare(ctx, db, table.statement, slice, count); err != nil {
				return report, err
			}
			if done++; progress != nil {
				progress(done, 2*count)
			}
		}
		t.sort()
		report.Tables = append(report.Tables, t)
		report.OK = report.OK && t.Missing+t.Extra+t.Different == 0
	}
	return report, nil
}

// compare adds one slice.
func (t *TableReport) compare(ctx context.Context, db ledger.Querier, statement string, slice, of int) error {
	rows, err := db.Query(ctx, statement, slice, of, MaxSamples)
	if err != nil {
		return err
	}
	var (
		compared, missing, extra, different int64
		kind, digest                        *string
		job                                 *uuid.UUID
		columns                             []string
		event                               *int64
		first, position                     *ledger.Position
	)
	into := []any{&compared, &missing, &extra, &different, &first, &kind, &digest, &job, &columns, &event, &position}
	_, err = pgx.ForEachRow(rows, into, func() error {
		if kind == nil {
			return nil
		}
		difference := StateDifference{Kind: *kind, Columns: slices.Clone(columns)}
		if digest != nil {
			difference.KeyDigest = ledger.KeyDigest(*digest)
		}
		if job != nil {
			difference.JobID = *job
		}
		if event != nil {
			difference.EventID = *event
		}
		if position != nil {
			difference.Position = *position
		}
		t.Samples = append(t.Samples, difference)
		return nil
	})
	if err != nil {
		return err
	}
	t.Rows += compared
	t.Missing += missing
	t.Extra += extra
	t.Different += different
	if first != nil && (t.FirstPosition == 0 || *first < t.FirstPosition) {
		t.FirstPosition = *first
	}
	t.sort()
	return nil
}

// sort puts the least positions first and keeps as many samples as are shown.
func (t *TableReport) sort() {
	slices.SortFunc(t.Samples, func(a, b StateDifference) int {
		// Without a position it is behind all that have one.
		if (a.Position == 0) != (b.Position == 0) {
			return cmp.Compare(b.Position, a.Position)
		}
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.EventID, b.EventID), cmp.Compare(a.JobID.String(), b.JobID.String()))
	})
	t.Samples = t.Samples[:min(len(t.Samples), MaxSamples)]
}
