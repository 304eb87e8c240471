package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/tests/pgtest"
)

func testEvents(t *testing.T, d daybook) {
	db := newDB(t)
	enqueueSome(t, d, db.URL)
	golden(t, "events", d.ok(t, call{args: []string{"events"}, url: db.URL}))
	golden(t, "events-json", d.ok(t, call{args: []string{"events", "--json"}, url: db.URL}))
	golden(t, "events-kind", d.ok(t, call{args: []string{"events", "--kind", "enqueue.conflict_rejected", "--kind", "job.failed"}, url: db.URL}))
	golden(t, "events-after-limit", d.ok(t, call{args: []string{"events", "--after", "1", "--limit", "1"}, url: db.URL}))
	if got := d.ok(t, call{args: []string{"events", "--json", "--after", "99"}, url: db.URL}); got != "" {
		t.Errorf("beyond the head: %s", got)
	}
}

func testEventsSince(t *testing.T, d daybook) {
	db := pgtest.New(t)
	job := call{args: []string{"enqueue", "--type", "t"}, url: db.URL}
	d.ok(t, job)
	between := db.Clock(t).Format(time.RFC3339Nano)
	d.ok(t, job)
	d.ok(t, job)
	for since, want := range map[string]string{
		"2000-01-01T00:00:00Z": "1 2 3", between: "2 3", "2999-12-31T23:59:59+02:00": "",
	} {
		for _, url := range []string{db.URL, db.RoleURL("daybook_operator")} {
			var got []string
			for line := range strings.Lines(d.ok(t, call{args: []string{"events", "--json", "--since", since}, url: url})) {
				var event struct{ Position json.Number }
				if err := json.Unmarshal([]byte(line), &event); err != nil {
					t.Fatal(err)
				}
				got = append(got, event.Position.String())
			}
			if strings.Join(got, " ") != want {
				t.Errorf("since %s: positions %v, want %s", since, got, want)
			}
		}
	}
}

// follower is a command that runs until it is interrupted.
type follower struct {
	lines   *bufio.Scanner
	signal  func(os.Signal) error
	wait    func() error
	stderr  *bytes.Buffer
	process *os.Process
}

func (d daybook) follow(t *testing.T, c call) *follower {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := d.command(ctx, c)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{stderr: &bytes.Buffer{}}
	cmd.Stderr = f.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.lines, f.wait, f.signal, f.process = bufio.NewScanner(stdout), cmd.Wait, cmd.Process.Signal, cmd.Process
	return f
}

// next returns the next line.
func (f *follower) next(t *testing.T) string {
	t.Helper()
	if !f.lines.Scan() {
		t.Fatalf("no more lines: %v %s", f.wait(), f.stderr)
	}
	return f.lines.Text()
}

// end interrupts it and returns the lines that were left. It must end well.
func (f *follower) end(t *testing.T, sig os.Signal) (rest []string) {
	t.Helper()
	if err := f.signal(sig); err != nil {
		t.Fatal(err)
	}
	for f.lines.Scan() {
		rest = append(rest, f.lines.Text())
	}
	if err := f.wait(); err != nil {
		t.Fatalf("after %v: %v\n%s", sig, err, f.stderr)
	}
	return rest
}

func testFollow(t *testing.T, d daybook) {
	db := newDB(t)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		f := d.follow(t, call{args: []string{"events", "--follow", "--json", "--kind", "enqueue.accepted"}, url: db.URL})
		var got []string
		for _, typ := range []string{"first", "second", "third"} {
			if sig == os.Interrupt {
				d.ok(t, call{args: []string{"enqueue", "--type", typ}, url: db.URL})
			}
			var e struct {
				Body struct {
					Type string `json:"type"`
				} `json:"body"`
			}
			// Each is there before the next is asked for.
			if err := json.Unmarshal([]byte(f.next(t)), &e); err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Body.Type)
		}
		if diff := cmp.Diff([]string{"first", "second", "third"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if rest := f.end(t, sig); len(rest) > 0 {
			t.Errorf("more lines: %q", rest)
		}
		if f.stderr.Len() > 0 {
			t.Errorf("on standard error: %s", f.stderr)
		}
	}
}

func testExplain(t *testing.T, d daybook) {
	db := newDB(t)
	enqueueSome(t, d, db.URL)
	explain := call{args: []string{"keys", "explain", "--scope", "checkout"}, stdin: orderKey + "\n", url: db.URL}
	golden(t, "explain", d.ok(t, explain))
	explain.args = append(explain.args, "--json")
	golden(t, "explain-json", d.ok(t, explain))
	// Another scope is another key.
	golden(t, "explain-nothing", d.ok(t, call{args: []string{"keys", "explain"}, stdin: orderKey, url: db.URL}))
	// So is another secret; the ring finds the old binding.
	secret := []string{"DAYBOOK_SECRET=0123456789abcdef"}
	golden(t, "explain-ring", d.ok(t, call{
		args: []string{"keys", "explain", "--scope", "checkout", "--also-sha256"}, stdin: orderKey, env: secret, url: db.URL,
	}))
	db.AdvanceClock(t, 24*60*60*1e9)
	if got := d.ok(t, call{args: []string{"keys", "explain", "--scope", "checkout"}, stdin: orderKey, url: db.URL}); !strings.Contains(got, "expired") {
		t.Errorf("at its end the binding is not expired:\n%s", got)
	}
}

func testControlCharacters(t *testing.T, d daybook) {
	db := newDB(t)
	// A title for the terminal, a colour, a C1 control, a reversal of writing, a line break.
	evil := "a\x1b]0;owned\x07\x1b[31mred\u009b2J\u202egnp\nb"
	d.ok(t, call{
		args:  []string{"enqueue", "--type", evil, "--queue", evil, "--scope", evil, "--key-stdin"},
		stdin: "\u202e\u009bk-0123456789-0123456789", url: db.URL,
	})
	for _, args := range [][]string{
		{"events"},
		{"events", "--json"},
		{"keys", "explain", "--scope", evil},
		{"keys", "explain", "--scope", evil, "--json"},
		{"keys"},
		{"keys", "--json"},
		{"rates"},
		{"rates", "--json"},
		{"conflicts"},
		{"status"},
		{"project", "--once"},
	} {
		r := d.run(t, call{args: args, stdin: "\u202e\u009bk-0123456789-0123456789", url: db.URL})
		if i := strings.IndexAny(r.stdout+r.stderr, "\x1b\x07\u009b\u202e\r"); i >= 0 || r.code != 0 {
			t.Errorf("daybook %q (exit code %d) obeys:\n%q", args, r.code, r.stdout+r.stderr)
		}
	}
}
