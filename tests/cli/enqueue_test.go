package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testEnqueue(t *testing.T, d daybook) {
	db := newDB(t)
	enqueue := call{
		args: []string{"enqueue", "--type", "order.fulfil", "--key-env", "K", "--payload-stdin"},
		env:  []string{"K=" + orderKey}, stdin: `{"amount": 4990}`, url: db.URL,
	}
	golden(t, "enqueue-accepted", d.ok(t, enqueue))
	enqueue.stdin = `{"amount":4990.0}`
	golden(t, "enqueue-replayed", d.ok(t, enqueue))
	enqueue.stdin = `{"amount":4991}`
	r := d.run(t, enqueue)
	if r.code != 3 {
		t.Errorf("exit code %d, want 3", r.code)
	}
	golden(t, "enqueue-conflict", r.stdout)
	golden(t, "enqueue-conflict-stderr", r.stderr)
	golden(t, "enqueue-without-key", d.ok(t, call{args: []string{"enqueue", "--type", "report.build"}, url: db.URL}))
}

func testEveryOption(t *testing.T, d daybook) {
	db := newDB(t)
	payload := filepath.Join(t.TempDir(), "payload.json")
	if err := os.WriteFile(payload, []byte(`["é", 1]`), 0o600); err != nil {
		t.Fatal(err)
	}
	d.ok(t, call{args: []string{
		"enqueue", "--type", "t", "--queue", "q", "--priority", "7", "--concurrency-key", "c", "--tag", "b", "--tag", "a",
		"--attempt-budget", "3", "--retry-kind", "exponential", "--retry-initial", "1s", "--retry-max", "1m",
		"--run-at", "2030-03-14T13:00:00.123456789+00:00", "--deadline", "2030-03-15T00:00:00+09:00", "--execution-timeout", "90s",
		"--payload-file", payload, "--key-stdin", "--scope", "s", "--ttl", "2h", "--max-payload-bytes", "100", "--hide-preview",
	}, stdin: orderKey, url: db.URL})
	var got string
	err := db.Pool.QueryRow(t.Context(), `
		select json_build_object('run_at', j.run_at at time zone 'UTC', 'deadline', j.deadline at time zone 'UTC', 'timeout', j.execution_timeout_ms,
			'retry', array[j.retry_kind, j.retry_initial_ms::text, j.retry_max_ms::text], 'priority', j.priority,
			'budget', j.attempt_budget, 'queue', j.queue, 'type', j.type, 'concurrency_key', j.concurrency_key, 'tags', j.tags,
			'payload', j.payload, 'scope', b.scope, 'preview', b.key_preview, 'window_ms', b.window_ms)::text
		from daybook.job j join daybook.binding b using (job_id)`).Scan(&got)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"run_at" : "2030-03-14T13:00:00.123456", "deadline" : "2030-03-14T15:00:00", "timeout" : 90000, ` +
		`"retry" : ["exponential","1000","60000"], "priority" : 7, "budget" : 3, "queue" : "q", "type" : "t", ` +
		`"concurrency_key" : "c", "tags" : ["a","b"], "payload" : ["é", 1], "scope" : "s", "preview" : "", "window_ms" : 7200000}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// outcome runs an enqueue and returns what was decided.
func outcome(t *testing.T, d daybook, c call) string {
	t.Helper()
	var decision struct {
		Outcome string `json:"outcome"`
	}
	if err := json.Unmarshal([]byte(d.ok(t, c)), &decision); err != nil {
		t.Fatal(err)
	}
	return decision.Outcome
}

func testKeySources(t *testing.T, d daybook) {
	db := newDB(t)
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(orderKey+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := []string{"enqueue", "--type", "t"}
	got := []string{
		outcome(t, d, call{args: append(base, "--key-stdin"), stdin: orderKey + "\n", url: db.URL}),
		outcome(t, d, call{args: append(base, "--key-file", file), url: db.URL}),
		outcome(t, d, call{args: append(base, "--key-env", "K"), env: []string{"K=" + orderKey}, url: db.URL}),
		// One line break is the shell's, a second one the key's.
		outcome(t, d, call{args: append(base, "--key-stdin"), stdin: orderKey + "\n\n", url: db.URL}),
		outcome(t, d, call{args: append(base, "--key-env", "K"), env: []string{"K=" + orderKey + "\n"}, url: db.URL}),
		outcome(t, d, call{args: append(base, "--key-stdin"), stdin: strings.Repeat("k", 512) + "\n", url: db.URL}),
	}
	want := []string{"accepted", "replayed", "replayed", "accepted", "replayed", "accepted"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func testSecrets(t *testing.T, d daybook) {
	db := newDB(t)
	dir := t.TempDir()
	for name, secret := range map[string]string{"old": "0123456789abcdef-old", "new": "0123456789abcdef-new"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	oldFile, newFile := filepath.Join(dir, "old"), filepath.Join(dir, "new")
	with := func(env string, flags ...string) call {
		c := call{args: append([]string{"enqueue", "--type", "t", "--key-stdin"}, flags...), stdin: orderKey, url: db.URL}
		if env != "" {
			c.env = []string{env}
		}
		return c
	}
	got := []string{
		outcome(t, d, with("")),
		outcome(t, d, with("", "--secret-file", oldFile, "--also-sha256")),
		outcome(t, d, with("", "--secret-file", newFile)),
		outcome(t, d, with("DAYBOOK_SECRET=0123456789abcdef-new")),
		outcome(t, d, with("S=0123456789abcdef-new", "--secret-env", "S")),
		outcome(t, d, with("DAYBOOK_SECRET=0123456789abcdef-new", "--secret-file", oldFile)),
		outcome(t, d, with("", "--secret-file", newFile, "--secret-file", oldFile)),
	}
	want := []string{"accepted", "replayed", "accepted", "replayed", "replayed", "accepted", "replayed"}
	// The second call finds the key under plain SHA-256 and binds nothing under the old secret, hence the sixth.
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r := d.run(t, with("DAYBOOK_SECRET=short-secret"))
	if r.code != 2 || strings.Contains(r.stderr, "short-secret") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
}

func testInvalid(t *testing.T, d daybook) {
	db := newDB(t)
	for name, c := range map[string]call{
		"type is empty":                    {args: []string{"enqueue"}},
		"priority is 101":                  {args: []string{"enqueue", "--type", "t", "--priority", "101"}},
		"payload is not valid JSON":        {args: []string{"enqueue", "--type", "t", "--payload-stdin"}, stdin: `{"secret`},
		"payload is not valid JSON: it en": {args: []string{"enqueue", "--type", "t", "--payload-stdin"}},
		"the key is empty":                 {args: []string{"enqueue", "--type", "t", "--key-stdin"}},
		"the key has":                      {args: []string{"enqueue", "--type", "t", "--key-stdin"}, stdin: strings.Repeat("k", 600)},
		"deadline has passed already":      {args: []string{"enqueue", "--type", "t", "--deadline", "2029-01-01T00:00:00Z"}},
	} {
		c.url = db.URL
		r := d.run(t, c)
		if r.code != 2 || !strings.Contains(r.stderr, name) || r.stdout != "" || strings.Contains(r.stderr, "secret") {
			t.Errorf("%s: exit code %d\n%s%s", name, r.code, r.stdout, r.stderr)
		}
	}
	var events int
	if err := db.Pool.QueryRow(t.Context(), `select count(*) from daybook.event`).Scan(&events); err != nil || events != 0 {
		t.Errorf("%d events, want none (%v)", events, err)
	}
}
