package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/tests/pgtest"
)

// noon is where daybook.clock() stands still in the tests with golden files.
var noon = time.Date(2030, 3, 14, 12, 0, 0, 0, time.UTC)

// The keys of these tests. None may ever be seen in an output; see testNoKeys.
const (
	orderKey   = "order-2026-000481-placed-by-jona"
	invoiceKey = "invoice-7731-sent-to-noor"
)

// TestTool has one subtest for each thing that the tool promises, so that the binary is built once.
func TestTool(t *testing.T) {
	d := build(t)
	for name, test := range map[string]func(*testing.T, daybook){
		"usage":                     testUsage,
		"help":                      testHelp,
		"no database":               testNoDatabase,
		"migrate":                   testMigrate,
		"enqueue":                   testEnqueue,
		"enqueue with every option": testEveryOption,
		"where keys come from":      testKeySources,
		"secrets":                   testSecrets,
		"invalid requests":          testInvalid,
		"lost answer":               testLostAnswer,
		"events":                    testEvents,
		"events since":              testEventsSince,
		"follow":                    testFollow,
		"keys explain":              testExplain,
		"control characters":        testControlCharacters,
		"status":                    testStatus,
		"status check":              testStatusCheck,
		"without projections":       testStatusWithoutProjections,
		"parked discard":            testParkedDiscard,
		"operator":                  testOperator,
		"views":                     testViews,
		"rebuild and verify":        testRebuildAndVerify,
		"verify ledger and state":   testVerifyLedgerAndState,
		"status of gaps":            testStatusOfGaps,
		"doctor":                    testDoctor,
		"rebuild":                   testRebuildCommand,
		"jobs":                      testJobs,
		"maintain":                  testMaintain,
		"server restarts":           testServerRestart,
		"project":                   testProject,
		"no key is ever written":    testNoKeys,
		"dev":                       testDev,
		"dev detached":              testDevDetached,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

// newDB is a database whose clock stands at noon.
func newDB(t *testing.T) *pgtest.DB {
	t.Helper()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	return db
}

// enqueueSome fills a ledger: two keys, a request without one, a replay, and a conflict that is met twice.
func enqueueSome(t *testing.T, d daybook, url string) {
	t.Helper()
	order := []string{"enqueue", "--type", "order.fulfil", "--queue", "orders", "--scope", "checkout", "--key-stdin"}
	d.ok(t, call{args: order, stdin: orderKey + "\n", url: url})
	d.ok(t, call{args: []string{"enqueue", "--type", "report.build", "--payload-stdin"}, stdin: `{"month":"2030-02"}`, url: url})
	d.ok(t, call{args: []string{"enqueue", "--type", "invoice.send", "--key-env", "K"}, env: []string{"K=" + invoiceKey}, url: url})
	d.ok(t, call{args: order, stdin: orderKey + "\n", url: url})
	for range 2 {
		r := d.run(t, call{args: append(order, "--priority", "9"), stdin: orderKey + "\n", url: url})
		if r.code != 3 {
			t.Fatalf("exit code %d of a conflict, want 3\n%s", r.code, r.stderr)
		}
	}
}

func testUsage(t *testing.T, d daybook) {
	for _, args := range []string{
		"nonsense", "events --nonsense", "events extra", "events --after -1", "events --since yesterday",
		"events --since 2030-01-31T12:00:00Z --after 0", "enqueue --priority many",
		"enqueue --type a --ttl 1h", "enqueue --type a --scope s", "enqueue --type a --ttl 0s --key-env PATH",
		"enqueue --type a --key-stdin --payload-stdin", "enqueue --type a --key-stdin --key-env PATH",
		"enqueue --type a --retry-kind linear", "enqueue --type a --retry-initial 1s", "enqueue --type a --run-at tomorrow",
		"enqueue --type a --key-env DAYBOOK_NO_SUCH_VARIABLE", "enqueue --key some-key", "keys explain some-key",
		"dev --stop --detach",
	} {
		r := d.run(t, call{args: strings.Fields(args), url: "postgres://127.0.0.1:1/never"})
		lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
		if r.code != 2 || r.stdout != "" || !strings.HasPrefix(lines[0], "error: ") {
			t.Errorf("daybook %s: exit code %d, want 2\n%s%s", args, r.code, r.stdout, r.stderr)
		}
		if len(lines) > 2 || len(lines) == 2 && !strings.HasPrefix(lines[1], "hint: ") {
			t.Errorf("daybook %s: not one line and a hint:\n%s", args, r.stderr)
		}
	}
}

func testHelp(t *testing.T, d daybook) {
	golden(t, "help", d.ok(t, call{}))
	golden(t, "help-exit-codes", d.ok(t, call{args: []string{"help", "exit-codes"}}))
	golden(t, "help-enqueue", d.ok(t, call{args: []string{"help", "enqueue"}}))
}

func testNoDatabase(t *testing.T, d daybook) {
	r := d.run(t, call{args: []string{"status"}})
	if r.code != 2 || !strings.Contains(r.stderr, "hint: daybook dev") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	r = d.run(t, call{args: []string{"status"}, url: "postgres://nobody:pass-word@127.0.0.1:1/none"})
	if r.code != 1 || !strings.Contains(r.stderr, "hint: is PostgreSQL running there?") || strings.Contains(r.stderr, "pass-word") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	if lines := strings.Count(r.stderr, "\n"); lines != 2 {
		t.Errorf("%d lines, want an error and a hint:\n%s", lines, r.stderr)
	}
	empty := pgtest.New(t, pgtest.Empty())
	r = d.run(t, call{args: []string{"status"}, url: empty.URL})
	if r.code != 1 || !strings.Contains(r.stderr, "run daybook migrate") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	// A flag wins over the variable.
	d.ok(t, call{args: []string{"status", "--database-url", newDB(t).URL}, url: "postgres://127.0.0.1:1/never"})
}

func testMigrate(t *testing.T, d daybook) {
	db := pgtest.New(t, pgtest.Empty())
	script := d.ok(t, call{args: []string{"migrate", "--print"}})
	if !strings.Contains(script, "create table daybook.event") || !strings.Contains(script, "insert into daybook.migration") {
		t.Errorf("the script does not make the schema:\n%.300s", script)
	}
	first := d.ok(t, call{args: []string{"migrate"}, url: db.URL})
	if !strings.HasPrefix(first, "applied 0001 roles\n") {
		t.Errorf("got %q", first)
	}
	second := d.ok(t, call{args: []string{"migrate"}, url: db.URL})
	if !strings.HasSuffix(second, ", 0 migrations applied\n") {
		t.Errorf("got %q", second)
	}
	if doc := d.ok(t, call{args: []string{"migrate", "--json"}, url: db.URL}); !strings.Contains(doc, `"applied": []`) {
		t.Errorf("got %s", doc)
	}
	db.Exec(t, `update daybook.migration set checksum = 'other' where version = 7`)
	r := d.run(t, call{args: []string{"migrate"}, url: db.URL})
	if r.code != 1 || !strings.Contains(r.stderr, "migration 7 was applied with checksum other") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
}
