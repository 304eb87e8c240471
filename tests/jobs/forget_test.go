package jobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/daybook-go/daybook/commands"
)

// The request ID of a purge or a redrive is remembered for 90 days from its end, and counts as new after that. A purge that
// has not finished is never forgotten, and what somebody holds is passed over.
func TestForgetRequests(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	start := db.Clock(t)
	source := failed(t, queue, work("1"))
	redrive := func(want commands.RedriveOutcome) {
		t.Helper()
		_, outcome, err := queue.RedriveJob(t.Context(), source, operator, "again")
		if err != nil {
			t.Fatal(err)
		}
		diff(t, "redrive", want, outcome)
	}
	redrive(commands.RedriveMade)
	for n := range 10 {
		if _, err := queue.Purge(t.Context(), "other", operator, fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	db.Exec(t, `
		insert into daybook.purge (request_id, queue, actor, reason, requested_at)
		values ('unfinished', 'q', 'a', 'r', daybook.clock())`)
	const day = 24 * time.Hour
	options := commands.MaintainOptions{Retention: 3650 * day, BatchSize: 3}
	forgotten := func() int { return maintain(t, queue, options).ForgottenRequests }

	db.FreezeClock(t, start.Add(90*day-time.Millisecond))
	diff(t, "too early", 0, forgotten())
	redrive(commands.RedriveReplayed)

	db.FreezeClock(t, start.Add(90*day))
	tx := begin(t, db.Pool)
	if _, err := tx.Exec(t.Context(), `select from daybook.purge where request_id = '4' for update`); err != nil {
		t.Fatal(err)
	}
	diff(t, "but for the one that is held", 10, forgotten())
	rollback(t, tx)
	diff(t, "the one that was held", 1, forgotten())
	diff(t, "left", []string{"unfinished"}, query[string](t, db.Pool, `select request_id from daybook.purge`))
	redrive(commands.RedriveMade)

	options.RequestRetention = -1
	diff(t, "at once", 1, forgotten())
	_, err := queue.Maintain(t.Context(), commands.MaintainOptions{RequestRetention: 3651 * day})
	wantInvalid(t, err, "request_retention")
}
