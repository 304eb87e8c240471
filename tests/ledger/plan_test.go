package ledger_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// touch is what a session has read of event and ledger_order: whole tables, and rows by way of an index.
type touch struct{ SeqScans, Rows int64 }

// touched runs something in a transaction and says what that read. Counts tell what plans inside functions, and
// plans that a session has kept, really do.
func touched(t *testing.T, db *pgtest.DB, do func(tx pgx.Tx) error) touch {
	t.Helper()
	count := func(tx pgx.Tx) (c touch, err error) {
		err = tx.QueryRow(t.Context(), `
			select sum(s.seq_scan)::bigint, sum(s.seq_tup_read + s.idx_tup_fetch)::bigint
			from pg_stat_xact_all_tables as s
			where s.schemaname = 'daybook' and s.relname in ('event', 'ledger_order')`).Scan(&c.SeqScans, &c.Rows)
		return c, err
	}
	var before, after touch
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) (err error) {
		if before, err = count(tx); err != nil {
			return err
		}
		if err = do(tx); err != nil {
			return err
		}
		after, err = count(tx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return touch{after.SeqScans - before.SeqScans, after.Rows - before.Rows}
}

// fill gives the ledger n more events and their positions, as the bulk of a large one.
func fill(t *testing.T, db *pgtest.DB, n int) {
	t.Helper()
	db.Exec(t, `
		insert into daybook.event (recorded_at, kind, body)
		select clock_timestamp(), case when i % 3 = 0 then 'enqueue.accepted' else 'job.started' end, '{"v":1}'
		from generate_series(1, $1) as i`, n)
	db.Exec(t, `
		insert into daybook.ledger_order (position, event_id, sequenced_at, leaf_hash)
		select s.position + row_number() over (order by e.event_id), e.event_id, clock_timestamp(), daybook.leaf_hash(e)
		from daybook.event as e
		cross join daybook.sequencer as s
		where e.event_id > s.head`)
	db.Exec(t, `
		update daybook.sequencer
		set position = (select max(position) from daybook.ledger_order), head = (select max(event_id) from daybook.event)`)
}

// A page is one index range, whatever the planner knows: on tables never analysed, on empty ones whose emptiness was
// recorded, on large ones; in a session that made its plans when the ledger was small.
func TestReadTouchesThePageOnly(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(1))
	read := func(what string, after ledger.Position, want int, kinds ...ledger.Kind) {
		t.Helper()
		got := touched(t, db, func(tx pgx.Tx) error {
			_, through, err := ledger.Read(t.Context(), tx, after, 1000, kinds...)
			if int(through-after) != want {
				t.Errorf("%s: read through %d", what, through)
			}
			return err
		})
		// One row of each table for each position.
		if got.SeqScans != 0 || got.Rows > int64(2*want) {
			t.Errorf("%s: a page of %d positions took %+v", what, want, got)
		}
	}
	read("empty", 0, 0)
	db.Exec(t, `analyze daybook.event, daybook.ledger_order`)
	fill(t, db, 12)
	for range 10 { // long enough for the session to settle on a plan
		read("a dozen", 0, 12)
	}
	fill(t, db, 200_000)
	read("large, known as empty", 100_000, 1000)
	read("large, known as empty, one kind", 100_000, 1000, ledger.KindAccepted)
	db.Exec(t, `analyze daybook.event, daybook.ledger_order`)
	read("large", 100_000, 1000)
	read("large, one kind", 100_000, 1000, ledger.KindAccepted)
	read("the end", 200_000, 12)
	read("beyond", 200_012, 0)
}

// A page is fetched in the order of the index, by the session itself: starting workers takes longer than the page. They are made
// as cheap as can be here and get all of the work, so that a plan with workers would show none of it in this session.
func TestReadStartsNoWorkers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(1))
	fill(t, db, 200_000)
	db.Exec(t, `analyze daybook.event, daybook.ledger_order`)
	for _, cheap := range []string{
		"parallel_setup_cost = 0", "parallel_tuple_cost = 0", "min_parallel_table_scan_size = 0", "min_parallel_index_scan_size = 0",
		"parallel_leader_participation = off",
	} {
		db.Exec(t, "set "+cheap)
	}
	got := touched(t, db, func(tx pgx.Tx) error {
		_, _, err := ledger.Read(t.Context(), tx, 10_000, 1000)
		return err
	})
	if want := (touch{Rows: 2000}); got != want {
		t.Errorf("a page of 1000 positions took %+v in this session, want %+v", got, want)
	}
}

// Sequencing does not get dearer with the ledger either.
func TestSequenceTouchesWhatIsNew(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(1))
	small := func() touch {
		db.Exec(t, `
			insert into daybook.event (recorded_at, kind, body)
			select clock_timestamp(), 'enqueue.accepted', '{}' from generate_series(1, 100)`)
		return touched(t, db, func(tx pgx.Tx) error {
			if n, _ := round(t, tx, 5000); *n != 100 {
				t.Errorf("%d sequenced", *n)
			}
			return nil
		})
	}
	small()
	db.Exec(t, `analyze daybook.event, daybook.ledger_order`)
	first := small()
	fill(t, db, 200_000)
	for _, what := range []string{"known as small", "analysed"} {
		if got := small(); got.SeqScans != 0 || got.Rows > first.Rows+100 {
			t.Errorf("%s: 100 events behind 200,000 others took %+v, and %+v before", what, got, first)
		}
		db.Exec(t, `analyze daybook.event, daybook.ledger_order`)
	}
}

// A late transaction with many events is taken in many rounds, and each of them finds its place at once.
func TestSequenceTouchesALateTransactionOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	late := begin(t, db.URL)
	late.takeXID()
	if _, err := late.Exec(t.Context(), `
		insert into daybook.event (recorded_at, kind, body)
		select clock_timestamp(), 'enqueue.accepted', '{}' from generate_series(1, 20000)`); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `insert into daybook.event (recorded_at, kind, body) values (clock_timestamp(), 'enqueue.accepted', '{}')`)
	sequence(t, db.Pool)
	late.commit()
	var rows int64
	for more := true; more; {
		took := touched(t, db, func(tx pgx.Tx) error {
			_, more = round(t, tx, 500)
			return nil
		})
		rows += took.Rows
	}
	// It is found, looked up and read again for its leaf; and it was not there before in ledger_order.
	if rows > 4*20000 {
		t.Errorf("20,000 events took %d rows", rows)
	}
	wantSound(t, db.Pool)
}

// Appending writes nothing into the timeline's summary of a range that is not full: it would be made anew by each insert.
func TestFirstRangeIsSummarisedLater(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	fill(t, db, 1)
	var summarised int
	if err := db.Pool.QueryRow(t.Context(), `select brin_summarize_new_values('daybook.event_timeline')`).Scan(&summarised); err != nil {
		t.Fatal(err)
	}
	if summarised != 1 {
		t.Errorf("%d ranges had no summary; the first should have had none", summarised)
	}
}
