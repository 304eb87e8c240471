package jobs_test

import (
	"cmp"
	"fmt"
	"time"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// What the model knows of the life of a job. See model_test.go.

func bestFirst(a, b jobModel) int {
	return cmp.Or(cmp.Compare(b.Asked.Priority, a.Asked.Priority), cmp.Compare(a.RunAt, b.RunAt))
}

func byFinished(a, b jobModel) int { return cmp.Compare(*a.Finished, *b.Finished) }

func anyOrder(jobModel, jobModel) int { return 0 }

func (m *model) claim(queue string, limit int, lease time.Duration) []int {
	for _, n := range m.numbers(func(j jobModel) bool {
		return j.Asked.Queue == queue && j.State == commands.JobScheduled && j.RunAt <= m.now
	}, anyOrder) {
		j := m.jobs[n]
		j.State = commands.JobReady
		m.jobs[n] = j
	}
	best := func(of func(j jobModel) bool) []int {
		all := m.numbers(func(j jobModel) bool {
			return j.Asked.Queue == queue && j.State == commands.JobReady && of(j)
		}, bestFirst)
		return all
	}
	late := func(j jobModel) bool { return j.Asked.Deadline != nil && *j.Asked.Deadline <= m.now }
	// It looks at the best hundred at a time, and here there are never as many.
	for _, n := range best(late) {
		m.finish(n, commands.JobCancelled, 0)
		m.append(ledger.KindJobCancelled, n, m.jobs[n].Asked.Key, "deadline")
	}
	claimed := best(func(j jobModel) bool {
		predecessor, known := m.jobs[j.After]
		return !late(j) && !unfinished(predecessor, known)
	})
	claimed = claimed[:min(limit, len(claimed))]
	for _, n := range claimed {
		j := m.jobs[n]
		until := m.now + lease
		j.State, j.Attempt, j.Fence, j.Lease = commands.JobActive, j.Attempt+1, j.Fence+1, &until
		m.jobs[n] = j
		m.append(ledger.KindJobStarted, n, j.Asked.Key, "")
	}
	return claimed
}

func (m *model) finish(n int, state commands.JobState, fence int64) {
	j := m.jobs[n]
	now := m.now
	j.State, j.Finished, j.Lease = state, &now, nil
	j.Fence += fence
	m.jobs[n] = j
}

func (m *model) holds(n int, fence int64) bool {
	j, known := m.jobs[n]
	return known && j.State == commands.JobActive && j.Fence == fence
}

func (m *model) heartbeat(n int, fence int64, lease time.Duration) bool {
	if !m.holds(n, fence) {
		return false
	}
	j := m.jobs[n]
	until := m.now + lease
	j.Lease = &until
	m.jobs[n] = j
	return true
}

func (m *model) complete(n int, fence int64) bool {
	if !m.holds(n, fence) {
		return false
	}
	m.finish(n, commands.JobSucceeded, 0)
	m.append(ledger.KindJobSucceeded, n, m.jobs[n].Asked.Key, "")
	return true
}

func (m *model) fail(n int, fence int64) bool {
	if !m.holds(n, fence) {
		return false
	}
	j := m.jobs[n]
	if j.Attempt == j.Asked.Budget {
		m.finish(n, commands.JobFailed, 0)
		m.append(ledger.KindJobFailed, n, j.Asked.Key, "attempt_budget")
		return true
	}
	j.RunAt, j.Lease = m.now+j.Asked.Retry, nil
	j.State = m.dueState(j.RunAt)
	m.jobs[n] = j
	m.append(ledger.KindJobAttemptFailed, n, j.Asked.Key, fmt.Sprint("run ", j.RunAt))
	return true
}

func (m *model) cancel(n int) bool {
	j, known := m.jobs[n]
	if !unfinished(j, known) {
		return false
	}
	m.finish(n, commands.JobCancelled, 1)
	m.append(ledger.KindJobCancelled, n, j.Asked.Key, operator.Reason)
	return true
}

func (m *model) runNow(n int) bool {
	j, known := m.jobs[n]
	if !known || !waits(j) {
		return false
	}
	if b, ok := m.bindings[j.Asked.Key]; ok && b.Job == n && b.Asked.Mode == commands.ModeDebounce {
		m.unbind(j.Asked.Key, ledger.KindBindingReleased, operator.Reason)
	}
	j.State, j.RunAt, j.After = commands.JobReady, m.now, 0
	m.jobs[n] = j
	m.append(ledger.KindJobReleased, n, j.Asked.Key, operator.Reason)
	return true
}

func (m *model) release(key int) (int, bool) {
	b, ok := m.bindings[key]
	if ok {
		m.unbind(key, ledger.KindBindingReleased, operator.Reason)
	}
	return b.Job, ok
}

func (m *model) purge(queue string) int {
	all := m.numbers(func(j jobModel) bool { return j.Asked.Queue == queue && waits(j) }, anyOrder)
	for _, n := range all {
		key := m.jobs[n].Asked.Key
		if b, ok := m.bindings[key]; ok && b.Job == n {
			m.unbind(key, ledger.KindBindingReleased, operator.Reason)
		}
		delete(m.jobs, n)
		m.append(ledger.KindJobPurged, n, key, operator.Reason)
	}
	return len(all)
}

// redrive returns the new job, or the one of the first time, or 0 and who is in the way.
func (m *model) redrive(n int, request string) (target int, outcome commands.RedriveOutcome, owner int) {
	id := fmt.Sprint(n, request)
	if target, ok := m.redriven[id]; ok {
		return target, commands.RedriveReplayed, 0
	}
	j, known := m.jobs[n]
	if !known || j.State != commands.JobFailed {
		return 0, "", 0
	}
	key := j.Asked.Key
	if b, ok := m.bindings[key]; ok && b.Job != n && m.now < b.Expires {
		return 0, "", b.Job
	}
	m.next++
	m.redriven[id] = m.next
	j.Asked.Key, j.Asked.Mode, j.Asked.Deadline = 0, "", nil
	m.jobs[m.next] = jobModel{Asked: j.Asked, State: commands.JobReady, RunAt: m.now, Accepted: m.now}
	m.append(ledger.KindJobRedriven, m.next, key, operator.Reason)
	return m.next, commands.RedriveMade, 0
}

func (m *model) maintain(retention time.Duration) (done commands.Maintained) {
	for _, n := range m.numbers(func(j jobModel) bool { return j.State == commands.JobActive && *j.Lease <= m.now },
		func(a, b jobModel) int { return cmp.Compare(*a.Lease, *b.Lease) }) {
		j := m.jobs[n]
		m.append(ledger.KindJobLeaseExpired, n, j.Asked.Key, "")
		if j.Attempt < j.Asked.Budget {
			j.State, j.RunAt, j.Lease = commands.JobReady, m.now, nil
			j.Fence++
			m.jobs[n] = j
		} else {
			m.finish(n, commands.JobFailed, 1)
			m.append(ledger.KindJobFailed, n, j.Asked.Key, "lease_expired")
		}
		done.ExpiredLeases++
	}
	for key, b := range m.bindings {
		j, known := m.jobs[b.Job]
		turn := b.Asked.Mode == commands.ModeDebounce && known && waits(j) && j.Attempt == 0
		if b.Expires <= m.now && !turn {
			m.unbind(key, ledger.KindBindingExpired, "")
			done.ExpiredBindings++
		}
	}
	for _, n := range m.numbers(func(j jobModel) bool { return j.Finished != nil && *j.Finished <= m.now-retention }, byFinished) {
		if b, ok := m.bindings[m.jobs[n].Asked.Key]; !ok || b.Job != n {
			delete(m.jobs, n)
			done.PrunedJobs++
		}
	}
	return done
}
