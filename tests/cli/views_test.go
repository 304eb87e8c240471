package cli_test

import (
	"os"
	"strings"
	"testing"
)

func testViews(t *testing.T, d daybook) {
	db := newDB(t)
	enqueueSome(t, d, db.URL)
	// Before any projection has run an empty view is not an empty ledger.
	r := d.run(t, call{args: []string{"keys"}, url: db.URL})
	if r.code != 0 || r.stdout != "no keys\n" || !strings.Contains(r.stderr, "view_key is 4 events behind the ledger") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	golden(t, "project-once", d.ok(t, call{args: []string{"project", "--once"}, url: db.URL}))
	golden(t, "project-once-json", d.ok(t, call{args: []string{"project", "--once", "--json"}, url: db.URL}))
	for _, view := range []string{"keys", "conflicts", "rates"} {
		r := d.run(t, call{args: []string{view}, url: db.URL})
		if r.code != 0 || r.stderr != "" {
			t.Errorf("daybook %s: exit code %d\n%s", view, r.code, r.stderr)
		}
		golden(t, view, r.stdout)
		golden(t, view+"-json", d.ok(t, call{args: []string{view, "--json"}, url: db.URL}))
	}
	golden(t, "keys-prefix", d.ok(t, call{args: []string{"keys", "EB53"}, url: db.URL}))
	golden(t, "keys-scope", d.ok(t, call{args: []string{"keys", "--scope", "checkout"}, url: db.URL}))
	golden(t, "rates-outcome", d.ok(t, call{args: []string{"rates", "--outcome", "conflict_rejected", "--to", "2031-01-01T00:00:00Z"}, url: db.URL}))
	golden(t, "rates-no-key", d.ok(t, call{args: []string{"rates", "--scope", ""}, url: db.URL}))
	golden(t, "conflicts-none", d.ok(t, call{args: []string{"conflicts", "--key-digest", "000"}, url: db.URL}))
	for _, args := range [][]string{{"keys", orderKey}, {"conflicts", "--key-digest", orderKey}, {"keys", "--limit", "0"}} {
		r := d.run(t, call{args: args, url: db.URL})
		if r.code != 2 || strings.Contains(r.stderr, orderKey) {
			t.Errorf("daybook %q: exit code %d\n%s", args, r.code, r.stderr)
		}
	}
}

func testRebuildAndVerify(t *testing.T, d daybook) {
	db := newDB(t)
	enqueueSome(t, d, db.URL)
	d.ok(t, call{args: []string{"project", "--once"}, url: db.URL})
	golden(t, "verify-equal", d.ok(t, call{args: []string{"verify"}, url: db.URL}))

	db.Exec(t, `update daybook.view_key set accepted = accepted + 1 where scope = 'checkout'`)
	db.Exec(t, `delete from daybook.view_conflict`)
	r := d.run(t, call{args: []string{"verify"}, url: db.URL})
	if r.code != 4 {
		t.Errorf("exit code %d of unequal projections, want 4\n%s", r.code, r.stderr)
	}
	golden(t, "verify-unequal", r.stdout)
	golden(t, "verify-unequal-stderr", r.stderr)
	r = d.run(t, call{args: []string{"verify", "view_key", "--json"}, url: db.URL})
	if r.code != 4 {
		t.Errorf("exit code %d of an unequal projection, want 4\n%s", r.code, r.stderr)
	}
	golden(t, "verify-unequal-json", r.stdout)

	r = d.run(t, call{args: []string{"rebuild", "view_key"}, url: db.URL})
	if r.code != 0 || !strings.Contains(r.stderr, "rebuilding view_key: 4 of 4 (100 %)") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	golden(t, "rebuild", withoutAges(r.stdout))
	golden(t, "rebuild-json", d.ok(t, call{args: []string{"rebuild", "view_conflict", "--drop-old", "--json"}, url: db.URL}))
	d.ok(t, call{args: []string{"verify"}, url: db.URL})

	for _, command := range []string{"rebuild", "verify", "project"} {
		r := d.run(t, call{args: []string{command, "view_nothing"}, url: db.URL})
		if r.code != 2 || !strings.Contains(r.stderr, "hint: they are view_conflict, ") {
			t.Errorf("daybook %s: exit code %d\n%s", command, r.code, r.stderr)
		}
	}
}

// testProject: the views follow until it is interrupted.
func testProject(t *testing.T, d daybook) {
	db := newDB(t)
	f := d.follow(t, call{args: []string{"project", "view_key"}, url: db.URL})
	enqueueSome(t, d, db.URL)
	wait(t, db, `select count(*) = 2 from daybook.view_key`)
	wait(t, db, `select c.position = 4 from daybook.cursor as c where c.name = 'projection:view_key'`)
	f.end(t, os.Interrupt)
	if got := f.stderr.String(); got != "projecting view_key until interrupted\n" {
		t.Errorf("on standard error: %s", got)
	}
	// Without a database it ends at once.
	if r := d.run(t, call{args: []string{"project"}, url: "postgres://127.0.0.1:1/none"}); r.code != 1 {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
}

// testNoKeys: every command, as text and as JSON, with errors provoked, and neither keys nor payloads in what it writes,
// nor in what other users of the machine see of it.
func testNoKeys(t *testing.T, d daybook) {
	db := newDB(t)
	const payload = "payload-which-nobody-may-see"
	secret := "a-secret-of-more-than-16-bytes"
	env := []string{"K=" + orderKey, "DAYBOOK_SECRET=" + secret}
	calls := []call{{args: []string{"enqueue", "--type", "t", "--key-env", "K", "--payload-stdin"}, stdin: `"` + payload + `"`}}
	for _, more := range []string{"", "--priority 7", "--priority 700", "--ttl 9999999h", "--deadline 2020-01-01T00:00:00Z"} {
		args := append([]string{"enqueue", "--type", "t", "--key-stdin"}, strings.Fields(more)...)
		calls = append(calls, call{args: args, stdin: orderKey})
	}
	calls = append(calls, call{args: []string{"enqueue", "--type", "t", "--payload-stdin"}, stdin: `{"` + payload + `": nonsense`})
	for _, command := range []string{
		"project --once", "events", "keys", "conflicts", "rates", "status", "verify", "rebuild view_key", "keys explain", "migrate",
	} {
		calls = append(calls,
			call{args: strings.Fields(command), stdin: orderKey},
			call{args: append(strings.Fields(command), "--json"), stdin: orderKey})
	}
	codes := map[int]int{}
	for _, c := range calls {
		c.url, c.env = db.URL, env
		r := d.run(t, c)
		codes[r.code]++
		if r.code == 1 {
			t.Errorf("daybook %q failed: %s", c.args, r.stderr)
		}
		for _, hidden := range []string{orderKey, payload, secret} {
			if strings.Contains(r.stdout+r.stderr, hidden) {
				t.Errorf("daybook %q wrote %q:\n%s%s", c.args, hidden, r.stdout, r.stderr)
			}
		}
	}
	// Had they all failed, nothing would be shown.
	if codes[0] != 21 || codes[3] != 3 || codes[2] != 3 {
		t.Errorf("exit codes %v, want 21 of 0, 3 of 2 and of 3", codes)
	}
}
