package jobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// lifeOf fails a job until it has no attempts left, and returns the delay after each.
func lifeOf(t *testing.T, policy commands.RetryPolicy, budget int) []time.Duration {
	t.Helper()
	db, queue := newFrozen(t)
	o := work(`1`)
	o.RetryPolicy = policy
	o.AttemptBudget = budget
	id := accept(t, queue, o).JobID
	var delays []time.Duration
	for attempt := 1; ; attempt++ {
		job := claim(t, queue, 1)[0]
		diff(t, "attempt", attempt, job.Attempt)
		now := db.Clock(t)
		failure := fail(t, queue, job)
		wantState(t, db.Pool, id, failure.State)
		if failure.State == commands.JobFailed {
			diff(t, "the last attempt", budget, attempt)
			diff(t, "the failure", commands.Failure{State: commands.JobFailed}, failure)
			row := jobOf(t, db.Pool, id)
			diff(t, "finished", &now, row.FinishedAt)
			diff(t, "reason", any("attempt_budget"), lastBody(t, db.Pool, ledger.KindJobFailed)["reason"])
			return delays
		}
		body := lastBody(t, db.Pool, ledger.KindJobAttemptFailed)
		diff(t, "next attempt in the event", any(rfc(failure.RunAt)), body["run_at"])
		diff(t, "attempt in the event", any(float64(attempt)), body["attempt"])
		delays = append(delays, failure.RunAt.Sub(now))
		if failure.RunAt.After(now) {
			diff(t, "state", commands.JobScheduled, failure.State)
			db.FreezeClock(t, failure.RunAt.Add(-time.Microsecond))
			claim(t, queue, 0)
		}
		db.FreezeClock(t, failure.RunAt)
	}
}

func TestRetryPolicies(t *testing.T) {
	t.Parallel()
	s, h, day := time.Second, time.Hour, 24*time.Hour
	for _, test := range []struct {
		name   string
		policy commands.RetryPolicy
		budget int
		want   []time.Duration
	}{
		{"budget of one", nil, 1, nil},
		// The fourth power of the attempt in seconds, at most a day.
		{"default", nil, 20, []time.Duration{
			1 * s, 16 * s, 81 * s, 256 * s, 625 * s, 1296 * s, 2401 * s, 4096 * s, 6561 * s, 10_000 * s, 14_641 * s, 20_736 * s,
			28_561 * s, 38_416 * s, 50_625 * s, 65_536 * s, 83_521 * s, day, day,
		}},
		{"fixed", commands.FixedRetry{Delay: 1500 * time.Millisecond}, 4, []time.Duration{1500 * time.Millisecond, 1500 * time.Millisecond, 1500 * time.Millisecond}},
		{"fixed, at once", commands.FixedRetry{}, 3, []time.Duration{0, 0}},
		{"exponential", commands.ExponentialRetry{Initial: s, Max: 10 * s}, 7, []time.Duration{s, 2 * s, 4 * s, 8 * s, 10 * s, 10 * s}},
		{"exponential, flat", commands.ExponentialRetry{Initial: h, Max: h}, 3, []time.Duration{h, h}},
		{"exponential, from nothing", commands.ExponentialRetry{Max: h}, 3, []time.Duration{0, 0}},
		{"jitter, flat", commands.DecorrelatedJitterRetry{Initial: h, Max: h}, 4, []time.Duration{h, h, h}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			diff(t, "delays", test.want, lifeOf(t, test.policy, test.budget))
		})
	}
}

// Decorrelated jitter is between the initial delay and three times the last one, at most max; the same job and attempt
// always get the same delay, and different jobs different ones.
func TestDecorrelatedJitter(t *testing.T) {
	t.Parallel()
	db, _ := newFrozen(t)
	const initial, most = 100, 10_000
	const statement = `
		select (extract(epoch from daybook.retry_delay('decorrelated_jitter', $1, $2, $3, a)) * 1000)::bigint
		from generate_series(1, 12) as a
		order by a`
	seen := map[string]int{}
	first := map[int64]int{}
	for i := range 200 {
		id := uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, i))
		delays := query[int64](t, db.Pool, statement, initial, most, id)
		diff(t, "the same again", delays, query[int64](t, db.Pool, statement, initial, most, id))
		last := int64(initial)
		for attempt, delay := range delays {
			if delay < initial || delay > min(most, 3*last+1) {
				t.Fatalf("delay %d ms after attempt %d, the last one %d ms", delay, attempt+1, last)
			}
			last = delay
		}
		seen[fmt.Sprint(delays)]++
		first[delays[0]/20]++
	}
	diff(t, "different curves", 200, len(seen))
	// 100 to 300 ms in steps of 20: ten of them, and none is left out.
	for step := int64(5); step < 15; step++ {
		if first[step] == 0 {
			t.Errorf("no first delay of %d to %d ms among 200: %v", 20*step, 20*step+19, first)
		}
	}
	// The policy of a request reaches it.
	delays := lifeOf(t, commands.DecorrelatedJitterRetry{Initial: time.Second, Max: time.Minute}, 10)
	for i, last := 0, time.Second; i < len(delays); i++ {
		if delays[i] < time.Second || delays[i] > min(time.Minute, 3*last+time.Millisecond) {
			t.Errorf("delay %d is %v after %v", i+1, delays[i], last)
		}
		last = delays[i]
	}
}

// The end of a lease costs an attempt: the job goes to the next worker at once, and where none is left it has failed.
func TestLeaseExpiry(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	o := work(`1`)
	o.AttemptBudget = 2
	id := accept(t, queue, o).JobID
	first := claim(t, queue, 1)[0]
	db.AdvanceClock(t, time.Minute-time.Microsecond)
	diff(t, "too early", commands.Maintained{}, maintain(t, queue, commands.MaintainOptions{}))
	db.AdvanceClock(t, time.Microsecond)
	diff(t, "on time", commands.Maintained{ExpiredLeases: 1}, maintain(t, queue, commands.MaintainOptions{}))
	row := jobOf(t, db.Pool, id)
	diff(t, "the job", jobRow{
		State: commands.JobReady, Queue: "default", Type: "index.refresh", Payload: `1`, AttemptBudget: 2, Attempt: 1,
		Fence: first.Fence + 1, RunAt: noon.Add(time.Minute),
	}, row)
	diff(t, "whose lease it was", any("worker"), lastBody(t, db.Pool, ledger.KindJobLeaseExpired)["worker"])

	claim(t, queue, 1)
	db.AdvanceClock(t, time.Minute)
	maintain(t, queue, commands.MaintainOptions{})
	wantState(t, db.Pool, id, commands.JobFailed)
	wantKinds(t, db.Pool, []ledger.Kind{
		ledger.KindAccepted, ledger.KindJobStarted, ledger.KindJobLeaseExpired, ledger.KindJobStarted, ledger.KindJobLeaseExpired,
		ledger.KindJobFailed,
	}, id)
	diff(t, "reason", any("lease_expired"), lastBody(t, db.Pool, ledger.KindJobFailed)["reason"])
}
