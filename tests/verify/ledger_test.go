package verify_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// fill enqueues n jobs under a key each, and sequences them: position, event id and number are the same.
func fill(t testing.TB, db *pgtest.DB, n int) {
	t.Helper()
	queue := newQueue(t, db.Pool, ledger.Keys{})
	var batch []commands.EnqueueOptions
	for i := range n {
		batch = append(batch, commands.EnqueueOptions{
			Type: "work", Payload: i, Idempotency: &commands.Idempotency{Key: ledger.NewKey(fmt.Sprintf("a-key-that-is-long-enough-%d", i))},
		})
	}
	if _, err := queue.EnqueueMany(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	sequence(t, db.Pool)
}

// Each kind of damage to the ledger is found, and told from the others; and where it begins.
func TestVerifyFindsDamageOfTheLedger(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		damage []string
		want   []ledger.Damage
	}{
		"position deleted": {
			[]string{`delete from daybook.ledger_order where position in (7, 8, 30)`},
			[]ledger.Damage{
				{Kind: ledger.DamageMissingPosition, Count: 3, FirstPosition: 7},
				{Kind: ledger.DamageUnsequenced, Count: 3, FirstEventID: 7},
			},
		},
		"last positions deleted": {
			[]string{`delete from daybook.ledger_order where position > 38`},
			[]ledger.Damage{
				{Kind: ledger.DamageUnsequenced, Count: 2, FirstEventID: 39},
				{Kind: ledger.DamageSequencer, Count: 1, FirstPosition: 38, FirstEventID: 40},
			},
		},
		"first position moved": {
			[]string{`update daybook.ledger_order set position = 41 where position = 1`, `update daybook.sequencer set position = 41`},
			[]ledger.Damage{{Kind: ledger.DamageMissingPosition, Count: 1, FirstPosition: 1}},
		},
		"event deleted": {
			[]string{`delete from daybook.event where event_id in (12, 13)`},
			[]ledger.Damage{{Kind: ledger.DamageMissingEvent, Count: 2, FirstPosition: 12, FirstEventID: 12}},
		},
		"body altered by a byte of white space": {
			[]string{`update daybook.event set body = (body::text || ' ')::json where event_id = 20`},
			[]ledger.Damage{{Kind: ledger.DamageLeafHash, Count: 1, FirstPosition: 20, FirstEventID: 20}},
		},
		"key hash altered": {
			[]string{`update daybook.event set key_hash = sha256(key_hash) where event_id = 21`},
			[]ledger.Damage{{Kind: ledger.DamageLeafHash, Count: 1, FirstPosition: 21, FirstEventID: 21}},
		},
		"key hash cut": {
			[]string{`update daybook.event set key_hash = '\x01' where event_id = 21`},
			[]ledger.Damage{{Kind: ledger.DamageLeafHash, Count: 1, FirstPosition: 21, FirstEventID: 21}},
		},
		"time, kind, job, scope and preview altered": {
			[]string{
				`update daybook.event set recorded_at = recorded_at + interval '1 microsecond' where event_id = 1`,
				`update daybook.event set kind = 'enqueue.replaced' where event_id = 2`,
				`update daybook.event set job_id = gen_random_uuid() where event_id = 3`,
				`update daybook.event set scope = 'other' where event_id = 4`,
				`update daybook.event set key_preview = '' where event_id = 5`,
			},
			[]ledger.Damage{{Kind: ledger.DamageLeafHash, Count: 5, FirstPosition: 1, FirstEventID: 1}},
		},
		"hash altered": {
			[]string{`update daybook.ledger_order set leaf_hash = '\x00' where position = 40`},
			[]ledger.Damage{{Kind: ledger.DamageLeafHash, Count: 1, FirstPosition: 40, FirstEventID: 40}},
		},
		"two events changed places": {
			[]string{
				`alter table daybook.ledger_order drop constraint ledger_order_event`,
				`update daybook.ledger_order set event_id = 9 - event_id where position in (4, 5)`,
			},
			[]ledger.Damage{{Kind: ledger.DamageLeafHash, Count: 2, FirstPosition: 4, FirstEventID: 5}},
		},
		"event sequenced twice": {
			[]string{
				`alter table daybook.ledger_order drop constraint ledger_order_event`,
				`insert into daybook.ledger_order (position, event_id, sequenced_at, leaf_hash)
					select 41, event_id, sequenced_at, leaf_hash from daybook.ledger_order where position = 17`,
				`update daybook.sequencer set position = 41`,
			},
			[]ledger.Damage{{Kind: ledger.DamageRepeated, Count: 1, FirstPosition: 17, FirstEventID: 17}},
		},
		"event below the head and in no gap": {
			[]string{
				`update daybook.sequencer set head = 45`,
				`insert into daybook.event (recorded_at, kind, body) select clock_timestamp(), 'enqueue.accepted', '{}' from generate_series(1, 7)`,
			},
			[]ledger.Damage{{Kind: ledger.DamageUnsequenced, Count: 5, FirstEventID: 41}},
		},
		"sequencer set back": {
			[]string{`update daybook.sequencer set position = 30`},
			[]ledger.Damage{{Kind: ledger.DamageSequencer, Count: 1, FirstPosition: 30, FirstEventID: 40}},
		},
		"sweep counter": {
			[]string{`update daybook.sequencer set swept = 3`},
			[]ledger.Damage{{Kind: ledger.DamageSwept, Count: 3}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			fill(t, db, 40)
			if diff := cmp.Diff(ledger.Report{OK: true, Position: 40, Events: 40}, verifyLedger(t, db.Pool)); diff != "" {
				t.Fatalf("before the damage (-want +got):\n%s", diff)
			}
			for _, sql := range test.damage {
				damage(t, db, sql)
			}
			report := verifyLedger(t, db.Pool)
			if diff := cmp.Diff(test.want, report.Damages, cmpopts.IgnoreFields(ledger.Damage{}, "Detail")); diff != "" || report.OK {
				t.Errorf("OK %v, damages (-want +got):\n%s", report.OK, diff)
			}
			for _, d := range report.Damages {
				if d.Detail == "" {
					t.Errorf("%s is not explained", d.Kind)
				}
			}
		})
	}
}

// What is in a gap, above the head, or was rolled back is no damage, and pages end wherever they do.
func TestVerifyOfAnUnfinishedLedger(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if report := verifyLedger(t, db.Pool); !report.OK || report.Position != 0 {
		t.Errorf("an empty ledger: %+v", report)
	}
	const page = 5000
	add := func(n int) {
		db.Exec(t, `insert into daybook.event (recorded_at, kind, body)
			select clock_timestamp(), 'job.started', '{"v":1}' from generate_series(1, $1)`, n)
	}
	add(page - 1)
	sequence(t, db.Pool)
	for _, more := range []int{0, 1, 1, page} {
		add(more)
		// A hole as of transactions that were rolled back, larger than a page.
		db.Exec(t, `select setval('daybook.event_event_id_seq', nextval('daybook.event_event_id_seq') + 12345)`)
		if report := verifyLedger(t, db.Pool); !report.OK {
			t.Errorf("%d beyond the head: %+v", more, report)
		}
		sequence(t, db.Pool)
		if report := verifyLedger(t, db.Pool); !report.OK || int64(report.Position) != report.Events {
			t.Errorf("%d sequenced: %+v", more, report)
		}
	}
	// In a gap: its transaction commits after the head has passed it.
	late, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Exec(t.Context(), `
		with xid as materialized (select pg_current_xact_id())
		insert into daybook.event (recorded_at, kind, body) select clock_timestamp(), 'job.started', '{}' from xid`); err != nil {
		t.Fatal(err)
	}
	add(1)
	sequence(t, db.Pool)
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if report := verifyLedger(t, db.Pool); !report.OK || int64(report.Position) != report.Events-1 {
		t.Errorf("one in a gap: %+v", report)
	}
	// The progress ends where the ledger does.
	var last, of ledger.Position
	if _, err := ledger.Verify(t.Context(), db.Pool, func(done, total ledger.Position) { last, of = done, total }); err != nil {
		t.Fatal(err)
	}
	if last != of || of != 2*page+2 {
		t.Errorf("progress ended at %d of %d", last, of)
	}
}
