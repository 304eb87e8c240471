package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// serverFolder is a folder for a server's data, which must be open to the server's own user.
func serverFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "daybook-cli-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// answers reports whether there is a migrated ledger at a URL.
func answers(t *testing.T, url string) bool {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var position int64
	if err := conn.QueryRow(t.Context(), `select s.position from daybook.sequencer as s`).Scan(&position); err != nil {
		t.Errorf("no ledger: %v", err)
	}
	return true
}

func testDev(t *testing.T, d daybook) {
	folder := serverFolder(t)
	f := d.follow(t, call{args: []string{"dev", "--data-dir", folder}})
	url := f.next(t)
	if !answers(t, url) {
		t.Fatalf("nobody answers at %s\n%s", url, f.stderr)
	}
	// A second one in the same folder finds the first, and leaves it alone.
	second := d.run(t, call{args: []string{"dev", "--data-dir", folder}})
	if second.code != 0 || second.stdout != url+"\n" || !strings.Contains(second.stderr, "running already") {
		t.Errorf("exit code %d\n%s%s", second.code, second.stdout, second.stderr)
	}
	d.ok(t, call{args: []string{"enqueue", "--type", "t"}, url: url})
	f.end(t, os.Interrupt)
	if answers(t, url) {
		t.Error("it still runs")
	}

	// What was in it is there the next time.
	f = d.follow(t, call{args: []string{"dev", "--data-dir", folder}})
	if got := d.ok(t, call{args: []string{"events", "--json"}, url: f.next(t)}); strings.Count(got, "\n") != 1 {
		t.Errorf("got %s, want one event", got)
	}
	f.end(t, os.Interrupt)
}

func testDevDetached(t *testing.T, d daybook) {
	folder := serverFolder(t)
	stop := call{args: []string{"dev", "--stop", "--data-dir", folder}}
	t.Cleanup(func() { d.run(t, stop) })
	var server struct {
		DatabaseURL string `json:"database_url"`
		DataDir     string `json:"data_dir"`
		Pid         int    `json:"pid"`
	}
	out := d.ok(t, call{args: []string{"dev", "--detach", "--json", "--data-dir", folder}})
	if err := json.Unmarshal([]byte(out), &server); err != nil {
		t.Fatal(err)
	}
	if !answers(t, server.DatabaseURL) || server.Pid == 0 || filepath.Base(server.DataDir) != filepath.Base(folder) {
		t.Errorf("got %s", out)
	}
	d.ok(t, stop)
	if answers(t, server.DatabaseURL) {
		t.Error("it still runs")
	}
	if r := d.run(t, stop); r.code != 0 || !strings.Contains(r.stderr, "nothing was running") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	// A folder of something else is refused and not touched.
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := d.run(t, call{args: []string{"dev", "--data-dir", other}}); r.code != 1 || !strings.Contains(r.stderr, "is not empty") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
}
