package cli_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// PostgreSQL stops without a checkpoint under upkeep and projections. The check is red while it is away; both go on by
// themselves, upkeep removes what expires afterwards, and the check is green again.
func testServerRestart(t *testing.T, d daybook) {
	cluster := pgtest.NewCluster(t, nil)
	db := cluster.New(t)
	enqueue := func(key string) {
		t.Helper()
		d.ok(t, call{args: []string{"enqueue", "--type", "t", "--ttl", "1h", "--key-stdin"}, stdin: key, url: db.URL})
	}
	check := call{args: []string{"status", "--check", "--expect", "view_key"}, url: db.URL}
	green := func() {
		t.Helper()
		var last result
		defer func() {
			if t.Failed() {
				t.Logf("the last check:\n%s%s", last.stdout, last.stderr)
			}
		}()
		pgtest.WaitFor(t, patience, func() bool { last = d.run(t, check); return last.code == 0 }, "status --check finds nothing wrong")
	}
	expired := func(n int) {
		t.Helper()
		wait(t, db, fmt.Sprintf(`
			select (select count(*) from daybook.binding) = 0
				and (select count(*) from daybook.event where kind = 'binding.expired') = %d`, n))
	}

	enqueue(orderKey)
	maintaining := d.follow(t, call{args: []string{"maintain", "--every", "100ms"}, url: db.URL})
	projecting := d.follow(t, call{args: []string{"project"}, url: db.URL})
	db.AdvanceClock(t, 2*time.Hour)
	expired(1)
	db.ResetClock(t)
	green()

	if err := cluster.Stop(t.Context(), localpg.Immediate); err != nil {
		t.Fatal(err)
	}
	if r := d.run(t, check); r.code != 1 || r.stdout != "" {
		t.Errorf("without a server: exit code %d, want 1\n%s%s", r.code, r.stdout, r.stderr)
	}
	if err := cluster.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	enqueue(invoiceKey)
	db.AdvanceClock(t, 2*time.Hour)
	expired(2)
	db.ResetClock(t)
	wait(t, db, `
		select count(*) = 4 from daybook.cursor
		where name like 'projection:%' and position = (select count(*) from daybook.event)`)
	green()
	maintaining.end(t, os.Interrupt)
	projecting.end(t, os.Interrupt)
}
