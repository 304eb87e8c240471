package projections_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// A hole in the ledger is never folded over, also where the event that is missing may be of no interest.
func TestProjectionsStopAtAHole(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 20).tell(t, db, 200)
	db.Exec(t, `alter table daybook.ledger_order disable trigger ledger_order_append_only`)
	db.Exec(t, `delete from daybook.ledger_order where position in (150, 200)`)
	for _, p := range projections.Builtin() {
		positions, err := runner(t, p).CatchUp(t.Context(), db.Pool, 20)
		if err == nil || !strings.Contains(err.Error(), "position 151 follows 149") || positions != 140 {
			t.Errorf("%s: at %d, %v, want an error about position 150", p.Name, positions, err)
		}
		result, err := projections.Rebuild(t.Context(), db.Pool, p, projections.RebuildConfig{BatchSize: 20})
		if err == nil || !strings.Contains(err.Error(), "position 151 follows 149") || result.Swapped {
			t.Errorf("%s: %+v, %v, want an error about position 150", p.Name, result, err)
		}
	}
	// At the end of the ledger there is nothing that follows.
	db.Exec(t, `update daybook.cursor set position = 180`)
	if _, err := runner(t, projections.ViewKey()).CatchUp(t.Context(), db.Pool, 20); err == nil || !strings.Contains(err.Error(), "position 200 does not exist") {
		t.Errorf("%v, want an error about position 200", err)
	}
}

// Every field of an event reaches the fold as the ledger reads it, whichever way it was sent.
func TestFoldsGetWhatTheLedgerHas(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 20).tell(t, db, 300)
	db.Exec(t, `insert into daybook.event (recorded_at, kind, body) values ('1999-12-31 23:59:59.999999Z', 'binding.expired', '{"v" : 1}')`)
	sequence(t, db)
	want, _, err := ledger.Read(t.Context(), db.Pool, 0, 301)
	if err != nil {
		t.Fatal(err)
	}
	var got []ledger.Event
	p := builtin(t, "view_key")
	p.Kinds = nil
	p.Fold = func(_ context.Context, _ pgx.Tx, events []ledger.Event) error {
		got = append(got, events...)
		return nil
	}
	if _, err := runner(t, p).CatchUp(t.Context(), db.Pool, 70); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%.2000s", diff)
	}
}
