package jobs_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// Retry, redrive, schedule and promotion never meet a key constraint: here are two jobs of one key, of which the first
// goes through all of a life while the second owns the key.
func TestTransitionsNeverMeetAKey(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]commands.EnqueueOptions{
		"idempotency": idempotent("k", `1`, time.Minute),
		"throttle":    throttled("k", `1`, time.Minute),
		"debounce":    debounced("k", `1`, commands.Debounce{Window: time.Minute}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, queue := newFrozen(t)
			o.AttemptBudget = 3
			o.RetryPolicy = commands.FixedRetry{Delay: time.Hour}
			if o.Debounce == nil {
				o.RunAt = noon.Add(time.Minute)
			}
			old := accept(t, queue, with(o, func(o *commands.EnqueueOptions) { o.Queue = "old" })).JobID
			db.AdvanceClock(t, time.Minute)
			first := claimFrom(t, queue, "old", 1)[0] // promoted
			if o.Debounce == nil {
				o.RunAt = noon.Add(24 * time.Hour)
			} else {
				o.Debounce.Window = 24 * time.Hour
			}
			owner := accept(t, queue, o).JobID
			before := jobOf(t, db.Pool, owner)
			binding := func() uuid.UUID { return query1[uuid.UUID](t, db.Pool, "select job_id from daybook.binding") }

			fail(t, queue, first) // scheduled anew
			db.AdvanceClock(t, time.Hour)
			claimFrom(t, queue, "old", 1) // promoted
			db.AdvanceClock(t, time.Hour)
			if n, err := queue.ExpireLeases(t.Context(), 10); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if err := queue.RunJobNow(t.Context(), old, operator); err != nil {
				t.Fatal(err)
			}
			last := claimFrom(t, queue, "old", 1)[0]
			diff(t, "the owner", owner, binding())
			if got := fail(t, queue, last); got.State != commands.JobFailed {
				t.Fatal(got)
			}
			diff(t, "the owner", owner, binding())
			digest := query1[ledger.KeyDigest](t, db.Pool, "select daybook.key_digest(key_hash) from daybook.binding")
			diff(t, "the owning job", before, jobOf(t, db.Pool, owner))
			if _, err := queue.ReleaseKey(t.Context(), "", digest, operator); err != nil {
				t.Fatal(err)
			}
			if _, outcome, err := queue.RedriveJob(t.Context(), old, operator, "r"); err != nil || outcome != commands.RedriveMade {
				t.Fatal(outcome, err)
			}
			accept(t, queue, o)
			complete(t, queue, claimFrom(t, queue, "old", 1)...)
			checkLedger(t, db.Pool, "")
		})
	}
}
