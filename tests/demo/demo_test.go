package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDemo runs the whole story. That every number is right is what run itself demands; here it is shown that it has
// counted at all, that it can fail, and that no key is seen.
func TestDemo(t *testing.T) {
	temporary := t.TempDir()
	// The server's own user has to get to its folder.
	for _, folder := range []string{temporary, filepath.Dir(temporary)} {
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", temporary)

	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text := out.String()

	var got []string
	for _, line := range regexp.MustCompile(`(?m)^     (\S.*\S|\S) +(\d+)  ✓$`).FindAllStringSubmatch(text, -1) {
		got = append(got, strings.TrimSpace(line[1])+": "+line[2])
	}
	want := []string{
		"requests sent to the shop: 14", "answers lost on the way: 1", "connections cut: 1",
		"accepted, one of them rolled back: 6", "replayed: 5", "conflict_rejected: 3", "anything else: 0",
		"jobs: 5", "bindings: 5", "events: 6", "last position: 6",
		"orders: 2", "articles taken from stock: 2", "payments: 3",
		"acceptance events that the subscriber got: 5", "keys in view_key: 5", "conflicts in view_conflict: 1",
		"accepted in view_decision_rate: 5", "conflict_rejected in view_decision_rate: 1",
		"positions read by the rebuild: 6", "rows that differ from the ledger: 0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, text)
	}
	if n := strings.Count(text, "subscriber   position "); n != 5 {
		t.Errorf("the subscriber printed %d events, want 5", n)
	}
	for _, key := range append(eventIDs(t), "place-order:2026-000481", "place-order:2026-000482", "place-order:2026-000483") {
		if strings.Contains(text, key) {
			t.Errorf("the key %q was printed", key)
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("%d files were left behind, such as %v (%v)", len(left), left, err)
	}
}

// eventIDs are the keys of the webhooks.
func eventIDs(t *testing.T) (ids []string) {
	t.Helper()
	files, err := fs.Glob(webhooks, "webhooks/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		body, err := webhooks.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var event webhook
		if err := json.Unmarshal(body, &event); err != nil || !strings.HasPrefix(event.ID, "evt_") {
			t.Fatalf("%s: %v", name, err)
		}
		ids = append(ids, event.ID)
	}
	return ids
}

// TestJudge: a number that differs is told and counted, so that the demo exits with 1.
func TestJudge(t *testing.T) {
	var out bytes.Buffer
	wrong := (&page{out: &out}).judge("asked", []number{{"right", 2, 2}, {"wrong", 2, 3}})
	if wrong != 1 || !strings.Contains(out.String(), "✗ should be 2") {
		t.Errorf("%d wrong\n%s", wrong, out.String())
	}
	// A story in which nothing happened fulfils hardly any demand.
	if wrong := (&page{out: &out}).judgeAll(&tally{}); wrong < 15 {
		t.Errorf("%d wrong numbers in an empty tally", wrong)
	}
}

// TestSearchKeys: a key in a file is found.
func TestSearchKeys(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "wal"), []byte("\x00\x01evt_key\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, _, found, err := searchKeys(folder, []string{"other", "evt_key"})
	if err != nil || files != 1 || !cmp.Equal(found, []string{"wal"}) {
		t.Errorf("%d files, found in %v (%v)", files, found, err)
	}
}
