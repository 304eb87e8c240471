package cli_test

import (
	"regexp"
	"strings"
	"testing"
)

// oids is what PostgreSQL has numbered a test's database.
var oids = regexp.MustCompile(`oid 1, this is \d+`)

// testVerifyLedgerAndState: the ledger, and bindings and jobs, alone and damaged.
func testVerifyLedgerAndState(t *testing.T, d daybook) {
	db := newDB(t)
	enqueueSome(t, d, db.URL)
	d.ok(t, call{args: []string{"project", "--once"}, url: db.URL})
	relay := db.RoleURL("daybook_relay")
	if got := d.ok(t, call{args: []string{"verify", "ledger"}, url: relay}); got != "ledger: sound up to position 4, 4 events\n" {
		t.Errorf("got %q", got)
	}
	golden(t, "verify-json", d.ok(t, call{args: []string{"verify", "ledger", "state", "--json"}, url: relay}))
	if r := d.run(t, call{args: []string{"verify", "--all", "ledger"}, url: db.URL}); r.code != 2 {
		t.Errorf("exit code %d of --all with a name, want 2\n%s", r.code, r.stderr)
	}

	db.Exec(t, `alter table daybook.event disable trigger all`)
	db.Exec(t, `update daybook.event set body = (body::text || ' ')::json where event_id = 2`)
	db.Exec(t, `update daybook.job set attempt = 7 where type = 'invoice.send'`)
	db.Exec(t, `delete from daybook.binding where scope = 'checkout'`)
	r := d.run(t, call{args: []string{"verify", "ledger", "state"}, url: relay})
	if r.code != 4 {
		t.Errorf("exit code %d of a damaged ledger, want 4", r.code)
	}
	golden(t, "verify-damaged", r.stdout)
	golden(t, "verify-damaged-stderr", r.stderr)
	r = d.run(t, call{args: []string{"verify", "state", "--json"}, url: relay})
	if r.code != 4 {
		t.Errorf("exit code %d of damaged state, want 4", r.code)
	}
	golden(t, "verify-damaged-json", r.stdout)
}

// testDoctor: it says nothing where nothing is, explains what is, and puts it right.
func testDoctor(t *testing.T, d daybook) {
	db := newDB(t)
	enqueueSome(t, d, db.URL)
	d.ok(t, call{args: []string{"project", "--once", "view_key"}, url: db.URL})
	operator := db.RoleURL("daybook_operator")
	golden(t, "doctor-well", d.ok(t, call{args: []string{"doctor"}, url: operator}))

	db.Exec(t, `update daybook.meta set database_oid = 1, system_identifier = null, timeline = null`)
	db.Exec(t, `update daybook.cursor set position = 9`)
	finding := func(name string, args ...string) {
		t.Helper()
		r := d.run(t, call{args: append([]string{"doctor"}, args...), url: operator})
		if r.code != 4 {
			t.Errorf("exit code %d, want 4\n%s%s", r.code, r.stdout, r.stderr)
		}
		golden(t, name, oids.ReplaceAllString(r.stdout, "oid 1, this is OID"))
		golden(t, name+"-stderr", r.stderr)
	}
	finding("doctor-restored", "--seen-position", "12")
	r := d.run(t, call{args: []string{"project", "--once", "view_key"}, url: db.URL})
	if r.code != 1 || !strings.Contains(r.stderr, "run daybook doctor") {
		t.Errorf("exit code %d of a reader after a restore\n%s", r.code, r.stderr)
	}
	finding("doctor-after-restore", "--after-restore")
	golden(t, "doctor-carried", d.ok(t, call{args: []string{"doctor", "--carry-cursor", "projection:view_key"}, url: operator}))
	if got := d.ok(t, call{args: []string{"doctor", "--follow-timelines", "--json"}, url: operator}); !strings.Contains(got, `"follow_timelines": true`) {
		t.Errorf("got %s", got)
	}
	for _, args := range [][]string{{"--carry-cursors", "--carry-cursor", "x"}, {"--seen-position", "-1"}, {"now"}} {
		if r := d.run(t, call{args: append([]string{"doctor"}, args...), url: operator}); r.code != 2 {
			t.Errorf("daybook doctor %v: exit code %d, want 2\n%s", args, r.code, r.stderr)
		}
	}
}
