package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden compares a text, made comparable, with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	got = comparable(got)
	if os.Getenv("DAYBOOK_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v\n(DAYBOOK_UPDATE_GOLDEN=1 writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

var (
	uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	// What the server's clock said, to the second or finer; daybook.clock() stands still at an instant of 2030.
	instants = regexp.MustCompile(`20[^3]\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	ages     = regexp.MustCompile(`\d+(\.\d)? (ms|s|min|h|d)\b( \d+ (s|min|h)\b)?`)
	spaces   = regexp.MustCompile(`  +|──+`)
	seconds  = regexp.MustCompile(`("[a-z_]*seconds"): \d[\d.e-]*`)
)

// comparable replaces what is different in each run, ids by their order of appearance.
func comparable(text string) string {
	seen := map[string]string{}
	text = uuids.ReplaceAllStringFunc(text, func(id string) string {
		if seen[id] == "" {
			seen[id] = fmt.Sprintf("00000000-0000-7000-8000-%012d", len(seen)+1)
		}
		return seen[id]
	})
	text = instants.ReplaceAllString(text, "2026-01-01T00:00:00Z")
	return seconds.ReplaceAllString(text, "$1: 0")
}

// withoutAges replaces ages, and what their length does to the columns of a table.
func withoutAges(text string) string {
	return spaces.ReplaceAllString(ages.ReplaceAllString(text, "AGE"), "  ")
}
