package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/ledger"
)

// An operator discards what a relay has parked, twice, and somebody else does for another reason.
func testParkedDiscard(t *testing.T, d daybook) {
	db := newDB(t)
	db.FreezeClock(t, time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC))
	db.Exec(t, `
		insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
		select daybook.clock(), '01890000-0000-7000-8000-000000000001', sha256('k'), 'enqueue.accepted', 'default', '…', '{"v":1}'
		from generate_series(1, 3)`)
	if _, err := ledger.Sequence(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `
		insert into daybook.parked (relay, position, event_id, attempts, parked_at, order_key, reason)
		select 'nats', o.position, o.event_id, case o.position when 1 then 5 else 0 end, daybook.clock(), sha256('k'),
			case o.position when 1 then 'too large' else 'waits behind an earlier event of its key' end
		from daybook.ledger_order as o`)
	relay := db.RoleURL("daybook_relay")
	discard := call{args: []string{"parked", "discard", "nats", "1", "--actor", "ann", "--reason", "no consumer takes it"}, url: relay}
	golden(t, "parked-discard", d.ok(t, discard))
	golden(t, "parked-discard-again", d.ok(t, discard))
	discard.args = append(discard.args, "--json")
	golden(t, "parked-discard-json", d.ok(t, discard))
	golden(t, "parked", d.ok(t, call{args: []string{"parked"}, url: relay}))
	golden(t, "parked-all", d.ok(t, call{args: []string{"parked", "--all"}, url: relay}))
	golden(t, "parked-all-json", d.ok(t, call{args: []string{"parked", "--all", "--json"}, url: db.RoleURL("daybook_operator")}))
	golden(t, "help-parked-discard", d.ok(t, call{args: []string{"help", "parked", "discard"}}))

	db.Exec(t, `update daybook.parked set redriven_at = daybook.clock() where position = 2`)
	for _, wrong := range []struct {
		args, problem string
		code          int
	}{
		{"nats 1 --actor bob --reason because", "was discarded before with another actor and reason\nhint: see daybook parked --all", 1},
		{"nats 2 --actor ann --reason because", "was redriven already\nhint: see daybook parked --all", 1},
		{"nats 9 --actor ann --reason because", "no event of this relay is parked at that position\nhint: ", 1},
		{"other 1 --actor ann --reason because", "no event of this relay is parked at that position\nhint: ", 1},
		{"nats", "name the relay and the position", 2},
		{"nats x --actor ann --reason because", "the position must be a number", 2},
		{"nats 0 --actor ann --reason because", "the position must be a number", 2},
		{"nats 3 --actor ann", "--actor and --reason are required", 2},
		{"nats 3 --actor ann --reason " + strings.Repeat("r", 1001), "Reason must be 1 to 1000 bytes", 2},
	} {
		r := d.run(t, call{args: append([]string{"parked", "discard"}, strings.Fields(wrong.args)...), url: relay})
		if r.code != wrong.code || r.stdout != "" || !strings.Contains(r.stderr, wrong.problem) {
			t.Errorf("%s: exit code %d, want %d\n%s%s", wrong.args, r.code, wrong.code, r.stdout, r.stderr)
		}
	}
	app := discard
	app.url = db.RoleURL("daybook_app")
	if r := d.run(t, app); r.code != 1 || !strings.Contains(r.stderr, "42501") && !strings.Contains(r.stderr, "permission denied") {
		t.Errorf("daybook_app: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}
