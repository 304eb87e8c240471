package relay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// tool is the built binary.
type tool struct{ path string }

func build(t *testing.T) tool {
	t.Helper()
	path := filepath.Join(t.TempDir(), "daybook")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/daybook-go/daybook/cmd/daybook").CombinedOutput(); err != nil {
		t.Fatalf("build daybook: %v\n%s", err, out)
	}
	return tool{path}
}

func (d tool) command(ctx context.Context, url string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "DATABASE_URL=" + url}
	return cmd
}

func (d tool) run(t *testing.T, url string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := d.command(ctx, url, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// An operator's afternoon: relay to NATS, look at what was parked, put it right, redrive.
func TestTool(t *testing.T) {
	t.Parallel()
	d := build(t)
	db := pgtest.New(t)
	n := startNATS(t)
	js := n.stream()
	if _, err := js.AddStream(&nats.StreamConfig{Name: "DAYBOOK", Subjects: []string{"daybook.events.>"}, MaxMsgSize: 2000}); err != nil {
		t.Fatal(err)
	}
	appendEvents(t, db, 5, 0)
	db.Exec(t, `
		insert into daybook.event (recorded_at, job_id, kind, body)
		values (daybook.clock(), gen_random_uuid(), 'job.failed', json_build_object('v', 1, 'n', repeat('x', 3000)))`)

	cmd := d.command(t.Context(), db.URL, "relay", "--to", strings.Replace(n.url(), "nats://", "nats://user:pass-word@", 1), "--create-stream", "DAYBOOK", "--format", "structured")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitCursor(t, db, "nats", 6)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted: %v\n%s", err, stderr.String())
	}
	if got := stderr.String(); !strings.HasPrefix(got, "relaying to 127.0.0.1:") || strings.Contains(got, "pass-word") {
		t.Errorf("on standard error: %s", got)
	}
	if got := n.read(js, 5); got[0].msg.Metadata[outbox.MetadataContentType] != "application/cloudevents+json" {
		t.Errorf("metadata %v", got[0].msg.Metadata)
	}

	out, errs, code := d.run(t, db.URL, "parked")
	if code != 0 || !strings.Contains(out, "message size exceeds maximum allowed") || !strings.Contains(out, "job.failed") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	out, errs, code = d.run(t, db.URL, "parked", "redrive", "--to", n.url())
	if code != 1 || out != "0 events published\n" || !strings.Contains(errs, "refused again: the events at position 6\nhint: ") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if _, err := js.UpdateStream(&nats.StreamConfig{Name: "DAYBOOK", Subjects: []string{"daybook.events.>"}}); err != nil {
		t.Fatal(err)
	}
	out, errs, code = d.run(t, db.URL, "parked", "redrive", "--to", n.url(), "--position", "6", "--json")
	if code != 0 || out != "{\n  \"published\": 1,\n  \"failed\": []\n}\n" {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if got := stored(t, js); got != 6 {
		t.Errorf("%d messages are stored, want 6", got)
	}
	if out, errs, code = d.run(t, db.URL, "parked"); code != 0 || out != "nothing is parked\n" {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	out, errs, code = d.run(t, db.URL, "parked", "--all", "--json")
	var listed struct{ Parked []outbox.Parked }
	if err := json.Unmarshal([]byte(out), &listed); err != nil || code != 0 || len(listed.Parked) != 1 || listed.Parked[0].RedrivenAt.IsZero() {
		t.Errorf("exit code %d, %v\n%s%s", code, err, out, errs)
	}

	want, err := outbox.AsyncAPI()
	if err != nil {
		t.Fatal(err)
	}
	if out, errs, code = d.run(t, db.URL, "asyncapi"); code != 0 || out != string(want) {
		t.Errorf("asyncapi: exit code %d\n%s", code, errs)
	}
	for _, wrong := range []struct {
		args string
		code int
		hint string
	}{
		{"relay", 2, "--to is required"},
		{"relay --to nats://127.0.0.1:1 --format gob", 2, "it is binary or structured"},
		{"relay --to nats://user:pass-word@127.0.0.1:1", 1, "is NATS with JetStream running there?"},
		{"relay --to http://user:pass-word@127.0.0.1:1", 1, "is like nats://host:4222"},
		{"relay --to " + n.url() + " --lanes -1", 2, "Lanes is -1"},
		{"relay --to " + n.url() + " --kind job.done", 2, "there is no kind"},
		{"parked --limit 0", 2, "--limit must be"},
		{"parked redrive", 2, "--to is required"},
		{"parked redrive --to " + n.url() + " --position 6", 1, "see daybook parked"},
		{"asyncapi extra", 2, "takes no arguments"},
	} {
		out, errs, code := d.run(t, db.URL, strings.Fields(wrong.args)...)
		if code != wrong.code || out != "" || !strings.Contains(errs, wrong.hint) || strings.Contains(errs, "pass-word") {
			t.Errorf("daybook %s: exit code %d, want %d\n%s%s", wrong.args, code, wrong.code, out, errs)
		}
	}
}
