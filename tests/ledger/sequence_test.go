package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestSequenceGivesDensePositions(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if n := sequence(t, db.Pool); n != 0 {
		t.Errorf("%d positions in an empty ledger", n)
	}
	queue := newQueue(t, db.Pool)
	jobs := accept(t, queue, 12)

	// Rounds of five: the last is not full, and says that there is no more.
	for _, want := range []string{"5 true", "5 true", "2 false", "0 false"} {
		n, more := round(t, db.Pool, 5)
		if got := fmt.Sprint(*n, more); got != want {
			t.Errorf("round: %s, want %s", got, want)
		}
	}
	// A full round can't know that it was the last.
	accept(t, queue, 5)
	for _, want := range []string{"5 true", "0 false"} {
		n, more := round(t, db.Pool, 5)
		if got := fmt.Sprint(*n, more); got != want {
			t.Errorf("round: %s, want %s", got, want)
		}
	}
	events, through, err := ledger.Read(t.Context(), db.Pool, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	if through != 17 || len(events) != 17 {
		t.Errorf("%d events through %d", len(events), through)
	}
	for i, job := range jobs {
		if events[i].JobID != job || events[i].Position != ledger.Position(i+1) {
			t.Errorf("position %d has job %v, want %v", events[i].Position, events[i].JobID, job)
		}
	}
	wantSound(t, db.Pool)
}

func TestSequenceRefusals(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	accept(t, newQueue(t, db.Pool), 1)
	for name, options := range map[string]pgx.TxOptions{
		"repeatable read": {IsoLevel: pgx.RepeatableRead},
		"serializable":    {IsoLevel: pgx.Serializable},
		"has written":     {},
	} {
		err := pgx.BeginTxFunc(t.Context(), db.Pool, options, func(tx pgx.Tx) error {
			if name == "has written" {
				if _, err := tx.Exec(t.Context(), `create temporary table t ()`); err != nil {
					return err
				}
			}
			_, err := ledger.Sequence(t.Context(), tx)
			return err
		})
		wantCode(t, name, err, "25000")
	}
	for _, limit := range []any{0, -1, nil} {
		_, err := db.Pool.Exec(t.Context(), `select daybook.sequence($1)`, limit)
		wantCode(t, fmt.Sprint("limit ", limit), err, "22023")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ledger.Sequence(ctx, db.Pool); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if n := sequence(t, db.Pool); n != 1 {
		t.Errorf("%d sequenced after the refusals", n)
	}
	// A transaction of the caller's that has only read is fine.
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		one[int64](t, tx, `select count(*) from daybook.event`)
		_, err := ledger.Sequence(t.Context(), tx)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != code {
		t.Errorf("%s: %v, want SQLSTATE %s", what, err, code)
	}
}

// While one is at it the other returns at once; what the first rolls back is sequenced by whoever comes next.
func TestSequenceContended(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	accept(t, newQueue(t, db.Pool), 3)
	first := begin(t, db.URL)
	if n, _ := round(t, first, 100); *n != 3 {
		t.Fatalf("the first sequenced %d", *n)
	}
	if n, _ := round(t, db.Pool, 100); n != nil {
		t.Errorf("the second sequenced %d", *n)
	}
	if n := sequence(t, db.Pool); n != 0 {
		t.Errorf("ledger.Sequence says %d", n)
	}
	if err := first.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := sequence(t, db.Pool); n != 3 {
		t.Errorf("after the rollback: %d", n)
	}

	// Killed inside: likewise.
	accept(t, newQueue(t, db.Pool), 2)
	second := begin(t, db.URL)
	round(t, second, 100)
	one[bool](t, db.Pool, `select pg_terminate_backend($1, 10000)`, second.conn.PgConn().PID())
	if n := sequence(t, db.Pool); n != 2 {
		t.Errorf("after the kill: %d", n)
	}
	wantSound(t, db.Pool)
}

func TestSequenceNotifies(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	listener, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(context.Background())
	if _, err := listener.Exec(t.Context(), `listen `+pgx.Identifier{ledger.NotifyChannel}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	relay := db.AsRole(t, "daybook_relay")
	accept(t, newQueue(t, db.Pool), 3)
	sequence(t, relay)
	sequence(t, relay) // nothing new, no notification
	accept(t, newQueue(t, db.Pool), 1)
	sequence(t, relay)
	for _, want := range []string{"3", "4"} {
		got, err := listener.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Payload != want {
			t.Errorf("notified of %s, want %s", got.Payload, want)
		}
	}
}

// A transaction with more events than a round takes commits late, into a gap.
func TestSequenceTruncatesGaps(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	late, early, rolledBack := begin(t, db.URL), begin(t, db.URL), begin(t, db.URL)
	var lateIDs, earlyIDs []int64
	for range 50 {
		lateIDs = append(lateIDs, late.append())
		earlyIDs = append(earlyIDs, early.append())
		rolledBack.append()
	}
	early.commit()
	if n := sequence(t, db.Pool); n != 50 {
		t.Fatalf("%d sequenced", n)
	}
	if n := one[int64](t, db.Pool, `select count(*) from daybook.sequencer_gap`); n != 1 {
		t.Errorf("%d rows of gaps", n)
	}
	late.commit()
	// Beside the gap something new appears, also more than one round takes.
	newest := begin(t, db.URL)
	var newIDs []int64
	for range 10 {
		newIDs = append(newIDs, newest.append())
	}
	newest.commit()
	var rounds []int
	for more := true; more; {
		var n *int
		n, more = round(t, db.Pool, 7)
		rounds = append(rounds, *n)
	}
	if want := []int{7, 7, 7, 7, 7, 7, 7, 7, 4}; cmp.Diff(want, rounds) != "" {
		t.Errorf("rounds of %v, want %v", rounds, want)
	}
	if diff := cmp.Diff(slices.Concat(earlyIDs, lateIDs, newIDs), order(t, db.Pool)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if err := rolledBack.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantGapsForgotten(t, db)
	wantSound(t, db.Pool)
}

// wantGapsForgotten polls until nothing is left of the gaps: on a shared server somebody else's transaction may be open.
func wantGapsForgotten(t *testing.T, db *pgtest.DB) {
	t.Helper()
	pgtest.WaitFor(t, patience, func() bool {
		sequence(t, db.Pool)
		return one[int64](t, db.Pool, `select count(*) from daybook.sequencer_gap`) == 0
	}, "the gaps are forgotten")
}

// The sweep is a net below sequencing. Here somebody has lost a gap, and it must find what fell through.
func TestSweep(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	late, early := begin(t, db.URL), begin(t, db.URL)
	lost := late.append()
	found := early.append()
	early.commit()
	sequence(t, db.Pool)
	// What a gap still holds is not lost yet.
	if n := one[int64](t, db.Pool, `select daybook.sweep()`); n != 0 {
		t.Errorf("swept %d before anything was lost", n)
	}
	db.Exec(t, `delete from daybook.sequencer_gap`)
	late.commit()
	if n := sequence(t, db.Pool); n != 0 {
		t.Fatalf("sequenced %d", n)
	}
	if n := one[int64](t, db.AsRole(t, "daybook_relay"), `select daybook.sweep()`); n != 1 {
		t.Errorf("swept %d, want 1", n)
	}
	if diff := cmp.Diff([]int64{found, lost}, order(t, db.Pool)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if n := one[int64](t, db.Pool, `select swept from daybook.sequencer`); n != 1 {
		t.Errorf("counted %d", n)
	}
	accept(t, newQueue(t, db.Pool), 1)
	if n := sequence(t, db.Pool); n != 1 {
		t.Errorf("%d sequenced after the sweep", n)
	}
}

// A dump taken while a gap was open is restored into a cluster whose xids are smaller: stamps and snapshot of
// the sequencer lie in its future.
func TestSequenceInAYoungerCluster(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	late, early := begin(t, db.URL), begin(t, db.URL)
	lateID, earlyID := late.append(), early.append()
	early.commit()
	sequence(t, db.Pool)
	late.commit()
	// As in the other cluster: the gap's transaction was running when the sequencer last looked.
	db.Exec(t, `update daybook.sequencer set seen = '4000000000:4000000010:4000000000'`)
	db.Exec(t, `update daybook.sequencer_gap set stamp = '4000000005'`)

	if n := sequence(t, db.Pool); n != 1 {
		t.Errorf("%d sequenced", n)
	}
	if diff := cmp.Diff([]int64{earlyID, lateID}, order(t, db.Pool)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if n := one[int64](t, db.Pool, `select count(*) from daybook.sequencer_gap where stamp >= '4000000000'`); n != 0 {
		t.Errorf("%d gaps kept that nothing can fill", n)
	}
	wantSound(t, db.Pool)
}

// A new epoch may have put a gap over all ids there are, beside the gaps that were there: each event counts once.
func TestSequenceFromOverlappingGaps(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	late, early := begin(t, db.URL), begin(t, db.URL)
	lateID, earlyID := late.append(), early.append()
	early.commit()
	sequence(t, db.Pool)
	late.commit()
	db.Exec(t, `insert into daybook.sequencer_gap (stamp, ids) select pg_current_xact_id(), int8multirange(int8range(1, $1))`, earlyID+1)
	db.Exec(t, `update daybook.sequencer set seen = null`)
	if n := sequence(t, db.Pool); n != 1 {
		t.Errorf("%d sequenced", n)
	}
	if diff := cmp.Diff([]int64{earlyID, lateID}, order(t, db.Pool)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	wantGapsForgotten(t, db)
	wantSound(t, db.Pool)
}
