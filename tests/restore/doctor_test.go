package restore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func diagnose(t testing.TB, pool *pgxpool.Pool) ledger.Diagnosis {
	t.Helper()
	d, err := ledger.Diagnose(t.Context(), pool, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func kindsOf(d ledger.Diagnosis) []ledger.FindingKind {
	kinds := []ledger.FindingKind{}
	for _, f := range d.Findings {
		if !slices.Contains(kinds, f.Kind) {
			kinds = append(kinds, f.Kind)
		}
	}
	return kinds
}

// wantFindings checks what a diagnosis finds, each explained.
func wantFindings(t testing.TB, pool *pgxpool.Pool, want ...ledger.FindingKind) {
	t.Helper()
	d := diagnose(t, pool)
	if diff := cmp.Diff(append([]ledger.FindingKind{}, want...), kindsOf(d)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	for _, f := range d.Findings {
		if f.Detail == "" || f.Advice == "" {
			t.Errorf("%+v is not explained", f)
		}
	}
}

// afterRestore is what daybook doctor --after-restore --carry-cursors does.
func afterRestore(t testing.TB, pool *pgxpool.Pool) (ledger.Epoch, []ledger.CarriedCursor) {
	t.Helper()
	epoch, err := ledger.BeginEpoch(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	carried, err := ledger.CarryCursors(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return epoch, carried
}

// Whatever a restore may leave behind is found; a new epoch puts it right: readers go on, nothing is left out and nothing is
// drawn twice.
func TestDoctor(t *testing.T) {
	t.Parallel()
	const cluster = `update daybook.meta set system_identifier = system_identifier + 1`
	for name, test := range map[string]struct {
		// Ten events are sequenced, four of them delivered; then this happens.
		happens []string
		want    []ledger.FindingKind
		// What is delivered then, of the old ones.
		delivered []ledger.Position
	}{
		"another cluster":             {[]string{cluster}, []ledger.FindingKind{ledger.FindingOtherCluster}, series(5, 10)},
		"another timeline":            {[]string{`update daybook.meta set timeline = timeline + 1`}, []ledger.FindingKind{ledger.FindingOtherTimeline}, series(5, 10)},
		"another database":            {[]string{`update daybook.meta set database_oid = 1`}, []ledger.FindingKind{ledger.FindingOtherDatabase}, series(5, 10)},
		"a server that tells nothing": {[]string{`update daybook.meta set timeline = null, system_identifier = null`}, nil, series(5, 10)},
		"transactions of another cluster": {
			[]string{cluster, `update daybook.sequencer set seen = '99999999999:99999999999:'`},
			[]ledger.FindingKind{ledger.FindingOtherCluster, ledger.FindingForeignXIDs},
			series(5, 10),
		},
		"gaps of another cluster": {
			[]string{cluster, `insert into daybook.sequencer_gap (stamp, ids) values ('99999999999', '{[3,5)}'), ('3', '{[6,7)}')`},
			[]ledger.FindingKind{ledger.FindingOtherCluster},
			series(5, 10),
		},
		"ids again from one": {
			[]string{`select setval('daybook.event_event_id_seq', 1, false)`},
			[]ledger.FindingKind{ledger.FindingEventIDs},
			series(5, 10),
		},
		"last id again": {
			[]string{`select setval('daybook.event_event_id_seq', 10, false)`},
			[]ledger.FindingKind{ledger.FindingEventIDs},
			series(5, 10),
		},
		"the sequencer of an older dump": {
			[]string{`update daybook.sequencer set position = 6, head = 6`},
			[]ledger.FindingKind{ledger.FindingSequencer},
			series(5, 10),
		},
		"the sequencer of a younger dump": {
			[]string{`update daybook.sequencer set position = 12`},
			[]ledger.FindingKind{ledger.FindingSequencer},
			series(5, 10),
		},
		"the end of both tables lost": {
			[]string{
				`alter table daybook.event disable trigger all`, `alter table daybook.ledger_order disable trigger all`,
				`delete from daybook.event where event_id > 7`, `delete from daybook.ledger_order where position > 7`,
				`select setval('daybook.event_event_id_seq', 7)`, `update daybook.sequencer set position = 7, head = 7`,
				`update daybook.cursor set position = 9`,
			},
			[]ledger.FindingKind{ledger.FindingCursorBeyond},
			nil,
		},
		"a cursor beyond the end": {
			[]string{`update daybook.cursor set position = 500`},
			[]ledger.FindingKind{ledger.FindingCursorBeyond},
			nil,
		},
		"an epoch begun by hand": {
			[]string{`update daybook.meta set epoch = 7`},
			[]ledger.FindingKind{ledger.FindingCursorOldEpoch},
			series(5, 10),
		},
		"a sweep has found something": {
			[]string{`update daybook.sequencer set swept = 1`},
			[]ledger.FindingKind{ledger.FindingSwept},
			series(5, 10),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			enqueue(t, db.Pool, 10)
			subscriber := newSubscriber(t, db.Pool)
			taken := subscribe(t, subscriber)
			receive(t, taken, 4)
			// The next message is there when the acknowledgement of the one before has been taken.
			<-taken
			if err := subscriber.Close(); err != nil {
				t.Fatal(err)
			}
			if at := cursorAt(t, db.Pool); at != 4 {
				t.Fatalf("the cursor is at %d, want 4", at)
			}
			wantFindings(t, db.Pool)
			for _, sql := range test.happens {
				db.Exec(t, sql)
			}
			wantFindings(t, db.AsRole(t, "daybook_operator"), test.want...)
			before := one[int64](t, db.Pool, `select epoch from daybook.meta`)
			epoch, carried := afterRestore(t, db.AsRole(t, "daybook_operator"))
			if epoch.Epoch != before+1 || epoch.Swept != 0 || len(carried) != 1 {
				t.Errorf("%+v, %+v", epoch, carried)
			}
			wantFindings(t, db.Pool)
			enqueue(t, db.Pool, 3)
			messages := subscribe(t, newSubscriber(t, db.Pool))
			old := positions(receive(t, messages, len(test.delivered)))
			if diff := cmp.Diff(test.delivered, old); diff != "" {
				t.Errorf("delivered (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(series(epoch.Position+1, epoch.Position+3), positions(receive(t, messages, 3))); diff != "" {
				t.Errorf("the new ones (-want +got):\n%s", diff)
			}
			if report, err := ledger.Verify(t.Context(), db.Pool, nil); err != nil || !report.OK {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}

// Two kinds of loss that no epoch puts right are told, too.
func TestDoctorOfLoss(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		happens string
		want    []ledger.FindingKind
	}{
		"schema alone": {`delete from daybook.meta`, []ledger.FindingKind{ledger.FindingNoData}},
		"events lost":  {`delete from daybook.event where event_id > 2`, []ledger.FindingKind{ledger.FindingEventsLost}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			enqueue(t, db.Pool, 5)
			catchUp(t, db.Pool)
			db.Exec(t, `alter table daybook.event disable trigger all`)
			db.Exec(t, test.happens)
			wantFindings(t, db.Pool, test.want...)
		})
	}
	db := pgtest.New(t)
	enqueue(t, db.Pool, 5)
	catchUp(t, db.Pool)
	for seen, want := range map[ledger.Position][]ledger.FindingKind{5: {}, 6: {ledger.FindingSeenBeyond}} {
		d, err := ledger.Diagnose(t.Context(), db.Pool, seen)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, kindsOf(d)); diff != "" {
			t.Errorf("seen %d (-want +got):\n%s", seen, diff)
		}
	}
}

// Event ids are drawn again below the head, where the sequencer does not look any more: what has committed by then is swept, and what is
// about to commit is not missed either.
func TestEventIDsDrawnAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const appendEvent = `with xid as materialized (select pg_current_xact_id())
		insert into daybook.event (recorded_at, kind, body) select clock_timestamp(), 'job.started', '{}' from xid`
	db.Exec(t, appendEvent)
	// A hole of ids that were rolled back.
	db.Exec(t, `select setval('daybook.event_event_id_seq', 100)`)
	db.Exec(t, appendEvent)
	pgtest.WaitFor(t, patience, func() bool {
		_, err := ledger.Sequence(t.Context(), db.Pool)
		return err == nil && one[int64](t, db.Pool, `select count(*) from daybook.sequencer_gap`) == 0
	}, "the hole is forgotten")
	db.Exec(t, `select setval('daybook.event_event_id_seq', 10)`)
	db.Exec(t, appendEvent)
	late, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := late.Exec(t.Context(), appendEvent); err != nil {
		t.Fatal(err)
	}
	wantFindings(t, db.Pool, ledger.FindingEventIDs)
	epoch, _ := afterRestore(t, db.Pool)
	if !epoch.Raised {
		t.Errorf("%+v", epoch)
	}
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, appendEvent)
	pgtest.WaitFor(t, patience, func() bool {
		_, err := ledger.Sequence(t.Context(), db.Pool)
		return err == nil && one[int64](t, db.Pool, `select count(*) from daybook.ledger_order`) == 5
	}, "all five are sequenced")
	pgtest.WaitFor(t, patience, func() bool {
		_, err := ledger.Sequence(t.Context(), db.Pool)
		return err == nil && one[int64](t, db.Pool, `select count(*) from daybook.sequencer_gap`) == 0
	}, "nothing is looked for any more")
	if report, err := ledger.Verify(t.Context(), db.Pool, nil); err != nil || !report.OK {
		t.Errorf("%+v, %v", report, err)
	}
	if ids := one[int64](t, db.Pool, `select max(event_id) from daybook.event`); ids <= 101 {
		t.Errorf("the last id is %d", ids)
	}
}

// Epochs are begun while writers and sequencers are at work: nothing is missed, nothing is swept, and a running reader of the epoch
// before stops.
func TestBeginEpochUnderWriters(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(16))
	const writers, each, epochs = 6, 60, 5
	running := newSubscriber(t, db.Pool)
	messages := subscribe(t, running)
	ctx, stop := context.WithCancel(t.Context())
	var writing, sequencing sync.WaitGroup
	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool})
	if err != nil {
		t.Fatal(err)
	}
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				tx, err := db.Pool.Begin(ctx)
				if err == nil {
					_, err = queue.EnqueueTx(ctx, tx, commands.EnqueueOptions{Type: fmt.Sprint(w)})
				}
				if err == nil && i%7 == 0 {
					err = tx.Rollback(ctx)
				} else if err == nil {
					err = tx.Commit(ctx)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2 {
		sequencing.Go(func() {
			for ctx.Err() == nil {
				if _, err := ledger.Sequence(ctx, db.Pool); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for range epochs {
		if epoch, _ := afterRestore(t, db.Pool); epoch.Swept != 0 || epoch.Raised {
			t.Errorf("%+v", epoch)
		}
	}
	writing.Wait()
	stop()
	sequencing.Wait()
	if _, err := ledger.Sequence(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	report, err := ledger.Verify(t.Context(), db.Pool, nil)
	if err != nil || !report.OK || int64(report.Position) != report.Events {
		t.Errorf("%+v, %v", report, err)
	}
	// It has gone on through every epoch that its cursor was carried into; now one comes without it.
	if _, err := ledger.BeginEpoch(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	for msg := range messages {
		msg.Ack()
	}
	wantEpochError(t, running.Err())
	if _, err := newSubscriber(t, db.Pool).Subscribe(t.Context(), outbox.TopicAll); err == nil {
		t.Error("a reader of an old epoch may subscribe")
	}
}

// Who is not the one and own transaction at READ COMMITTED is refused: stamps would be too old.
func TestBeginEpochInATransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `select pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.BeginEpoch(t.Context(), tx); err == nil {
		t.Error("an epoch was begun in a transaction that had written")
	}
}
