package commands_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// A session that has settled on its plans while the tables were empty, and known to be, reads no table as a whole: not for
// any outcome, single or batch. To read all of nothing is the cheapest plan there is, and it is kept until somebody
// analyses the table.
func TestPlansOfEmptyTables(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(1))
	queue := newQueue(t, db.Pool)
	db.Exec(t, `vacuum analyze daybook.binding, daybook.job, daybook.event, daybook.rejection`)
	seen := map[commands.EnqueueOutcome]int{}
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		for i := range 20 {
			request := func(key, payload string) commands.EnqueueOptions { return order(fmt.Sprint(key, i), payload) }
			other := func(o commands.EnqueueOptions) commands.EnqueueOptions {
				key := o.Idempotency.Key
				o.Idempotency = nil
				if i%2 == 0 {
					o.Throttle = &commands.Throttle{Key: key, Window: time.Hour}
				} else {
					o.Debounce = &commands.Debounce{Key: key, Window: time.Hour}
				}
				return o
			}
			brief := request("brief", "1")
			brief.Idempotency.TTL = time.Millisecond
			all := []commands.EnqueueOptions{
				request("a", "1"), request("a", "1.0"), request("a", " 1"), request("a", "2"), request("a", "2"),
				other(request("b", "1")), other(request("b", "1")), other(request("b", "2")), other(request("a", "1")),
				{Type: "no key"},
				brief, brief,
			}
			for _, o := range all {
				result, err := queue.DecideTx(t.Context(), tx, o)
				if err != nil {
					return err
				}
				seen[result.Outcome]++
			}
			for j := range all {
				if k := all[j].Idempotency; k != nil {
					all[j].Idempotency = &commands.Idempotency{Key: ledger.NewKey(fmt.Sprint("batch ", j%4, i)), TTL: k.TTL}
				}
			}
			if _, err := queue.DecideManyTx(t.Context(), tx, all); err != nil {
				return err
			}
		}
		rows, err := tx.Query(t.Context(), `
			select s.relname || ' ' || s.seq_scan || ' times'
			from pg_stat_xact_all_tables as s
			where s.schemaname = 'daybook' and s.seq_scan > 0`)
		if err != nil {
			return err
		}
		scanned, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if len(scanned) > 0 {
			t.Errorf("read as a whole: %q", scanned)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != 6 {
		t.Errorf("outcomes %v, want all six", seen)
	}
}
