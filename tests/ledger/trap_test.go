package ledger_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/tests/pgtest"
)

const patience = time.Minute

// quietCluster is a server on which nothing happens but what the test does: no other database, no autovacuum, no
// background writer that logs. xids and WAL positions are the whole cluster's, so only here can they be asserted on.
func quietCluster(t *testing.T) *pgtest.Cluster {
	t.Helper()
	return pgtest.NewCluster(t, map[string]string{
		"autovacuum": "off", "wal_level": "minimal", "max_wal_senders": "0", "checkpoint_timeout": "1h", "fsync": "off",
	})
}

// trap is the schedule that a stamp of the snapshot's xmax does not survive. The first transaction takes its xid early; the
// second takes a younger xid, draws the older event id and stays open; the first draws the younger id and commits.
// Then xmax, which is the last completed xid plus one, is the second's xid: it is not beyond it.
func trap(t *testing.T, db *pgtest.DB) (late, early int64) {
	t.Helper()
	t1, t2 := begin(t, db.URL), begin(t, db.URL)
	t1.takeXID()
	late = t2.append()
	early = t1.append()
	t1.commit()
	if n, _ := round(t, db.Pool, 100); *n != 1 {
		t.Fatalf("the first round sequenced %d", *n)
	}
	// However many rounds go by while it is open.
	for range 3 {
		sequence(t, db.Pool)
	}
	t2.commit()
	for range 3 {
		sequence(t, db.Pool)
	}
	return late, early
}

func TestSequenceXIDTakenEarlyIDDrawnLate(t *testing.T) {
	t.Parallel()
	cluster := quietCluster(t)

	t.Run("the stamp is an xid taken after the snapshot", func(t *testing.T) {
		db := cluster.New(t)
		late, early := trap(t, db)
		if diff := cmp.Diff([]int64{early, late}, order(t, db.Pool)); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		wantSound(t, db.Pool)
		if n := one[int64](t, db.Pool, `select count(*) from daybook.sequencer_gap`); n != 0 {
			t.Errorf("%d gaps left", n)
		}
	})

	t.Run("the stamp is the snapshot's xmax", func(t *testing.T) {
		db := cluster.New(t)
		function := one[string](t, db.Pool, `select pg_get_functiondef('daybook.sequence'::regproc)`)
		const stamp, naive = "v_stamp := pg_current_xact_id();", "v_stamp := pg_snapshot_xmax(v_snapshot);"
		if strings.Count(function, stamp) != 1 {
			t.Fatalf("the function does not take its stamp with %q", stamp)
		}
		db.Exec(t, strings.Replace(function, stamp, naive, 1))
		late, early := trap(t, db)
		got := order(t, db.Pool)
		if slices.Contains(got, late) || !slices.Contains(got, early) {
			t.Fatalf("order %v of events %d and %d: the naive stamp survives, so this test shows nothing", got, late, early)
		}
		// Lost for sequencing, and the sweep says so.
		if n := one[int64](t, db.Pool, `select daybook.sweep()`); n != 1 {
			t.Errorf("the sweep found %d events", n)
		}
	})

	t.Run("idle polls leave no trace", func(t *testing.T) {
		db := cluster.New(t)
		trace := func() string {
			return one[string](t, db.Pool, `
				select format('next xid %s, WAL %s, beat %s', pg_snapshot_xmax(pg_current_snapshot()),
					pg_current_wal_insert_lsn(), (select beat_at from daybook.sequencer))`)
		}
		wantIdle := func(when string) {
			t.Helper()
			// The first polls may tidy up pages, and forget gaps.
			for range 3 {
				sequence(t, db.Pool)
			}
			before := trace()
			for range 200 {
				if n := sequence(t, db.Pool); n != 0 {
					t.Fatalf("%s: %d sequenced", when, n)
				}
			}
			if after := trace(); after != before {
				t.Errorf("%s: 200 idle polls moved %s to %s", when, before, after)
			}
		}
		wantIdle("an empty ledger")
		queue := newQueue(t, db.Pool)
		accept(t, queue, 20)
		before := trace()
		sequence(t, db.Pool)
		if after := trace(); after == before {
			t.Errorf("a round that did something left no trace either: %s", after)
		}
		wantIdle("a ledger that is read to its end")
		// Also while a gap waits for a transaction that stays open.
		open := begin(t, db.URL)
		open.append()
		accept(t, queue, 20)
		sequence(t, db.Pool)
		wantIdle("an open gap")
		open.commit()
		if n := sequence(t, db.Pool); n != 1 {
			t.Errorf("%d sequenced from the gap", n)
		}
		wantIdle("a gap that was filled")
		wantSound(t, db.Pool)
	})
}
