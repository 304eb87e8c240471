package jobs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// ring is a queue of a process with these secrets, the current one first.
func ring(t *testing.T, db *pgtest.DB, secrets ...string) *commands.Queue {
	t.Helper()
	var all [][]byte
	for _, secret := range secrets {
		all = append(all, []byte(strings.Repeat(secret, 32)))
	}
	keys, err := ledger.NewHMACKeys(all[0], all[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return queue
}

// During a rotation of secrets processes whose rings overlap debounce and throttle one key together, and all of its
// rows go with its binding.
func TestRotationInEachMode(t *testing.T) {
	t.Parallel()
	for _, order := range [][2][]string{
		{{"1"}, {"1", "2"}}, {{"1", "2"}, {"2", "1"}}, {{"2", "1"}, {"1", "2"}}, {{"2", "1"}, {"1"}},
	} {
		db, _ := newFrozen(t)
		first, second := ring(t, db, order[0]...), ring(t, db, order[1]...)
		rows := func(want int64) {
			t.Helper()
			diff(t, "rows of all keys", want, footprintOf(t, db.Pool).Bindings)
		}
		both := func(o commands.EnqueueOptions, want commands.EnqueueOutcome) uuid.UUID {
			t.Helper()
			id := accept(t, first, o).JobID
			for _, w := range ways() {
				result, err := w.ask(db, second, o)
				if err != nil {
					t.Fatal(err)
				}
				wantOutcome(t, result, want)
				diff(t, "the job", id, result.JobID)
			}
			return id
		}
		each := int64(len(order[0]))

		both(throttled("t", `1`, time.Hour), commands.OutcomeCoalesced)
		rows(each)
		d := debounced("d", `1`, commands.Debounce{Window: time.Minute, FollowUp: true})
		old := both(d, commands.OutcomeReplaced)
		rows(2 * each)
		// The window that replacements have put off is judged, not that of the other rows.
		db.AdvanceClock(t, 50*time.Second)
		wantOutcome(t, decide(t, second, d), commands.OutcomeReplaced)
		db.AdvanceClock(t, 50*time.Second)
		wantOutcome(t, decide(t, first, d), commands.OutcomeReplaced)
		if err := second.RunJobNow(t.Context(), old, operator); err != nil {
			t.Fatal(err)
		}
		rows(each)
		both(d, commands.OutcomeReplaced)
		db.AdvanceClock(t, 2*time.Minute)
		claim(t, first, 3)
		follow := accept(t, second, d).JobID
		diff(t, "the follow-up", follow, decide(t, first, d).JobID)
		if n, err := first.Purge(t.Context(), "default", operator, "r"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		rows(each)
		db.AdvanceClock(t, time.Hour)
		maintain(t, second, commands.MaintainOptions{})
		rows(0)
	}
}
