package cli_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// One pass removes what has expired, says so, and the next finds nothing.
func testMaintain(t *testing.T, d daybook) {
	db := newDB(t)
	enqueueSome(t, d, db.URL)
	db.FreezeClock(t, noon.Add(48*time.Hour))
	for _, want := range []string{
		"leases taken back: 0, bindings removed: 2, jobs pruned: 0, requests forgotten: 0\n",
		"leases taken back: 0, bindings removed: 0, jobs pruned: 0, requests forgotten: 0\n",
	} {
		if diff := cmp.Diff(want, d.ok(t, call{args: []string{"maintain"}, url: db.URL})); diff != "" {
			t.Errorf("maintain (-want +got):\n%s", diff)
		}
	}
	golden(t, "maintain-json", d.ok(t, call{args: []string{"maintain", "--json", "--batch-size", "1"}, url: db.URL}))
	if r := d.run(t, call{args: []string{"maintain", "--batch-size", "-1"}, url: db.URL}); r.code != 2 {
		t.Errorf("exit code %d of a batch size below its bound, want 2\n%s", r.code, r.stderr)
	}
}
