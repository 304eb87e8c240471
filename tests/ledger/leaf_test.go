package ledger_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestLeafHash(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	visible := newQueue(t, db.Pool)
	hidden, err := commands.NewQueue(commands.Config{Pool: db.Pool, HidePreviews: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, at := range []time.Time{
		{},
		time.Date(1999, 12, 31, 23, 59, 59, 999999000, time.UTC), time.Date(2000, 1, 1, 0, 0, 0, 1000, time.UTC),
		time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9998, 12, 31, 0, 0, 0, 0, time.UTC),
	} {
		if !at.IsZero() || i > 0 {
			db.FreezeClock(t, at)
		}
		for _, queue := range []*commands.Queue{visible, hidden} {
			key := fmt.Sprintf("schlüssel %d 東京 🙂 %p", i, queue)
			if _, err := queue.Enqueue(t.Context(), work(key, 0)); err != nil {
				t.Fatal(err)
			}
			if _, err := queue.Decide(t.Context(), work(key, 1)); err != nil {
				t.Fatal(err)
			}
			options := commands.EnqueueOptions{Type: `"quoted" \ ü`, Queue: "q'", Tags: []string{"é", "e\u0301"}}
			if _, err := queue.Enqueue(t.Context(), options); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What no function of today's appends: no job, white space in the body, a body of another type.
	for _, body := range []string{`{"v" : 1,  "a":"\u00e9"}`, `null`, "[1.0,\n1e0]"} {
		db.Exec(t, `insert into daybook.event (recorded_at, kind, body) values ('4713-01-01 00:00:00 BC', 'job.purged', '`+body+`'::json)`)
	}
	sequence(t, db.Pool)
	wantLeaves(t, db.Pool, 33)
}

// Sessions differ in how they read and write literals; the stored hash must not.
func TestLeafHashWhateverTheSession(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	accept(t, newQueue(t, db.Pool), 1)
	for i, setting := range []string{
		`standard_conforming_strings = off`, `bytea_output = escape`, `datestyle = 'German, DMY'`, `timezone = 'Asia/Tokyo'`,
		`intervalstyle = iso_8601`, `search_path = pg_temp`, `client_encoding = latin1`, `extra_float_digits = -15`,
	} {
		err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `set local `+setting); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), `select daybook.sequence(100)`, pgx.QueryExecModeSimpleProtocol)
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", setting, err)
		}
		wantLeaves(t, db.Pool, i+1)
		accept(t, newQueue(t, db.Pool), 1)
	}
}

// wantLeaves computes each leaf again from what a reader has.
func wantLeaves(t *testing.T, db ledger.Querier, want int) {
	t.Helper()
	rows, err := db.Query(t.Context(), `select o.leaf_hash from daybook.ledger_order as o order by o.position`)
	if err != nil {
		t.Fatal(err)
	}
	leaves, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatal(err)
	}
	events, _, err := ledger.Read(t.Context(), db, 0, ledger.MaxPage)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != want || len(leaves) != want {
		t.Fatalf("%d events and %d leaves, want %d", len(events), len(leaves), want)
	}
	for i, event := range events {
		if got := ledger.LeafHash(event); string(got[:]) != string(leaves[i]) {
			t.Errorf("leaf of %+v is %x, computed %x", event, leaves[i], got)
		}
		// Whatever is altered, the hash is another.
		hash := ledger.KeyHash{1}
		for what, alter := range map[string]func(*ledger.Event){
			"id": func(e *ledger.Event) { e.ID++ }, "kind": func(e *ledger.Event) { e.Kind += "x" },
			"job": func(e *ledger.Event) { e.JobID[3]++ }, "scope": func(e *ledger.Event) { e.Scope += "x" },
			"key": func(e *ledger.Event) { e.KeyHash = &hash }, "preview": func(e *ledger.Event) { e.KeyPreview += "x" },
			"time": func(e *ledger.Event) { e.RecordedAt = e.RecordedAt.Add(time.Microsecond) },
			"body": func(e *ledger.Event) { e.Body = json.RawMessage(string(e.Body) + " ") },
		} {
			altered := event
			alter(&altered)
			if ledger.LeafHash(altered) == ledger.LeafHash(event) {
				t.Errorf("another %s has the same leaf hash", what)
			}
		}
	}
}
