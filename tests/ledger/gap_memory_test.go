package ledger_test

import (
	"testing"

	"github.com/daybook-go/daybook/tests/pgtest"
)

// Ten thousand ids that were rolled back, each between two that committed, pile up behind a transaction that stays open: what
// the sequencer keeps of them stays small, and everything flows.
func TestGapMemoryIsBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	long := begin(t, db.URL)
	long.append()

	const rounds, perRound = 200, 50
	var rows, ranges, bytes int64
	for range rounds {
		// An id that is drawn and never inserted is to the sequencer what a rolled back one is, and cheaper to make.
		db.Exec(t, `
			do $$
			begin
				perform pg_current_xact_id();
				for i in 1 .. 50 loop
					insert into daybook.event (recorded_at, kind, body) values (clock_timestamp(), 'enqueue.accepted', '{}');
					perform nextval('daybook.event_event_id_seq');
				end loop;
			end
			$$`)
		if n := sequence(t, db.Pool); n != perRound {
			t.Fatalf("%d sequenced, want %d", n, perRound)
		}
		rows = max(rows, one[int64](t, db.Pool, `select count(*) from daybook.sequencer_gap`))
		ranges = max(ranges, one[int64](t, db.Pool, `select count(*) from daybook.sequencer_gap as g cross join lateral unnest(g.ids)`))
		bytes = max(bytes, one[int64](t, db.Pool, `select sum(pg_column_size(g))::bigint from daybook.sequencer_gap as g`))
	}
	t.Logf("at most %d rows, %d ranges, %d bytes of gaps; the table has %d bytes", rows, ranges, bytes,
		one[int64](t, db.Pool, `select pg_total_relation_size('daybook.sequencer_gap')`))
	if rows > 65 || ranges > 65*perRound+256 || bytes > 128<<10 {
		t.Errorf("at most %d rows, %d ranges, %d bytes of gaps", rows, ranges, bytes)
	}

	long.commit()
	if n := sequence(t, db.Pool); n != 1 {
		t.Errorf("%d sequenced of the long transaction", n)
	}
	wantGapsForgotten(t, db)
	wantSound(t, db.Pool)
}
