package cli_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/daybook-go/daybook/tests/pgtest"
)

func testJobs(t *testing.T, d daybook) {
	db := newDB(t)
	enqueueSome(t, d, db.URL)
	d.ok(t, call{args: []string{"enqueue", "--type", "report.build", "--run-at", "2030-03-15T06:00:00Z"}, url: db.URL})
	d.ok(t, call{args: []string{"project", "--once"}, url: db.URL})
	golden(t, "jobs", d.ok(t, call{args: []string{"jobs"}, url: db.URL}))
	golden(t, "jobs-json", d.ok(t, call{args: []string{"jobs", "--queue", "orders", "--json"}, url: db.URL}))
	golden(t, "jobs-scheduled", d.ok(t, call{args: []string{"jobs", "--state", "scheduled", "--type", "report.build"}, url: db.URL}))
	golden(t, "jobs-none", d.ok(t, call{args: []string{"jobs", "--state", "failed"}, url: db.URL}))
	var id string
	if err := db.Pool.QueryRow(t.Context(), `select job_id::text from daybook.view_job where queue = 'orders'`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	one := d.ok(t, call{args: []string{"jobs", id}, url: db.URL})
	if !strings.Contains(one, id) || strings.Count(one, "\n") != 3 {
		t.Errorf("one job:\n%s", one)
	}
	for _, args := range [][]string{{"jobs", orderKey}, {"jobs", "--state", "waiting"}, {"jobs", "--limit", "0"}, {"jobs", "--key-digest", orderKey}} {
		r := d.run(t, call{args: args, url: db.URL})
		if r.code != 2 || strings.Contains(r.stderr, orderKey) {
			t.Errorf("daybook %q: exit code %d\n%s", args, r.code, r.stderr)
		}
	}
}

func testRebuildCommand(t *testing.T, d daybook) {
	db := newDB(t)
	enqueueSome(t, d, db.URL)
	d.ok(t, call{args: []string{"project", "--once"}, url: db.URL})
	left := func() (n int) {
		t.Helper()
		err := db.Pool.QueryRow(t.Context(), `
			select count(*) from pg_class where relkind = 'r' and relnamespace in ('daybook_old'::regnamespace, 'daybook_rebuild'::regnamespace)`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}

	rates := regexp.MustCompile(`\d[\d,]*  (\d+  AGE  AGE)`)
	plan := withoutAges(d.ok(t, call{args: []string{"rebuild", "--all", "--dry-run", "--slices", "3"}, url: db.URL}))
	golden(t, "rebuild-dry-run", rates.ReplaceAllString(plan, "RATE  $1"))
	var plans struct {
		Plans []map[string]any
	}
	text := d.ok(t, call{args: []string{"rebuild", "view_job", "--dry-run", "--slices", "3", "--json"}, url: db.URL})
	if err := json.Unmarshal([]byte(text), &plans); err != nil || len(plans.Plans) != 1 || plans.Plans[0]["events"] != 3.0 {
		t.Errorf("%v\n%s", err, text)
	} else if p := plans.Plans[0]; p["slices"] != 3.0 || p["index_seconds"] == 0.0 || p["shortest_seconds"].(float64) >= p["longest_seconds"].(float64) {
		t.Errorf("%s", text)
	}
	if n := left(); n != 0 {
		t.Errorf("a dry run left %d tables", n)
	}

	db.Exec(t, `update daybook.view_key set accepted = 99; delete from daybook.view_conflict`)
	r := d.run(t, call{args: []string{"rebuild", "--all"}, url: db.URL})
	if r.code != 0 || !strings.Contains(r.stderr, "rebuilding: 4 of 4 (100 %)") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	golden(t, "rebuild-all", withoutAges(r.stdout))
	d.ok(t, call{args: []string{"verify"}, url: db.URL})
	if n := left(); n != 4 {
		t.Errorf("%d old tables are kept, want 4", n)
	}
	golden(t, "rebuild-only-drop-old-json", d.ok(t, call{args: []string{"rebuild", "view_key", "--only-drop-old", "--json"}, url: db.URL}))
	golden(t, "rebuild-only-drop-old", d.ok(t, call{args: []string{"rebuild", "--all", "--only-drop-old"}, url: db.URL}))
	if n := left(); n != 0 {
		t.Errorf("%d old tables are left", n)
	}
	golden(t, "rebuild-only-drop-old-none-json", d.ok(t, call{args: []string{"rebuild", "view_key", "--only-drop-old", "--json"}, url: db.URL}))
	golden(t, "rebuild-all-json", d.ok(t, call{args: []string{"rebuild", "--all", "--drop-old", "--json"}, url: db.URL}))

	for _, args := range []string{"", "--all view_key", "view_key --dry-run --drop-old", "view_key --only-drop-old --drop-old", "--all --batch 0", "--all --slices 99"} {
		if r := d.run(t, call{args: append([]string{"rebuild"}, strings.Fields(args)...), url: db.URL}); r.code != 2 {
			t.Errorf("daybook rebuild %s: exit code %d, want 2\n%s", args, r.code, r.stderr)
		}
	}
	testRebuildBadEvent(t, d, db)
}

// testRebuildBadEvent: an event that cannot be folded ends it, with its position and the reason, and leaves the live view.
func testRebuildBadEvent(t *testing.T, d daybook, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, `insert into daybook.event (recorded_at, job_id, kind, body)
		values (daybook.clock(), gen_random_uuid(), 'job.started', '{"v":1,"type":"t","queue":"q","attempt":"many"}')`)
	db.Exec(t, `update daybook.view_job set queue = 'as it was'`)
	const reason = "before the event 5 (job.started) at position 5: read the body, /attempt: it is string, not a number"
	for _, args := range [][]string{{"view_job"}, {"view_job", "--json"}, {"--all"}, {"--all", "--json"}, {"view_job", "--dry-run"}} {
		r := d.run(t, call{args: append([]string{"rebuild"}, args...), url: db.URL})
		if r.code != 1 || !strings.Contains(r.stderr, "error: projection view_job stopped "+reason) {
			t.Errorf("daybook rebuild %q: exit code %d\n%s", args, r.code, r.stderr)
		}
		if args[0] == "--all" && !strings.Contains(r.stdout, "view_key") {
			t.Errorf("daybook rebuild %q does not tell of the others:\n%s", args, r.stdout)
		}
	}
	var untouched bool
	if err := db.Pool.QueryRow(t.Context(), `select bool_and(queue = 'as it was') from daybook.view_job`).Scan(&untouched); err != nil || !untouched {
		t.Errorf("the live view was touched (%v)", err)
	}
}
