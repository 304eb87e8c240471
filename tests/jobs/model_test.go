package jobs_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// The model of DESIGN §4: who asks for what, and what must be bound, accepted, done and appended then. Jobs are numbered
// from 1 in the order of their acceptance, keys from 1, 0 is no key; instants are durations since noon.

// asked is a request.
type asked struct {
	Key             int
	Mode            commands.Mode
	Payload         string // of equal values the same text
	Queue           string
	Priority        int
	Budget          int
	Retry           time.Duration // a fixed delay
	RunAt, Deadline *time.Duration
	Window, MaxWait time.Duration
	Preserve        bool
	FollowUp        bool
}

// material is what two requests under one key are compared by.
func (a asked) material() string {
	return fmt.Sprint(a.Mode, a.Payload, a.Queue, a.Priority, a.Budget, a.Retry, show(a.RunAt), show(a.Deadline), a.Window)
}

func show(d *time.Duration) string {
	if d == nil {
		return "-"
	}
	return d.String()
}

// differing are the names of the fields in which two requests differ.
func differing(a, b asked) []string {
	var fields []string
	for _, f := range []struct {
		name    string
		differs bool
	}{
		{"attempt_budget", a.Budget != b.Budget},
		{"deadline", show(a.Deadline) != show(b.Deadline)},
		{"mode", a.Mode != b.Mode},
		{"payload", a.Payload != b.Payload},
		{"priority", a.Priority != b.Priority},
		{"queue", a.Queue != b.Queue},
		{"retry_policy", a.Retry != b.Retry},
		{"run_at", show(a.RunAt) != show(b.RunAt)},
		{"ttl", only(a, true) != only(b, true)},
		{"window", only(a, false) != only(b, false)},
	} {
		if f.differs {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// only is the window where it is a TTL, or where it is not.
func only(a asked, ttl bool) time.Duration {
	if (a.Mode == commands.ModeIdempotency) != ttl {
		return 0
	}
	return a.Window
}

type jobModel struct {
	Asked    asked
	State    commands.JobState
	Attempt  int
	Fence    int64
	After    int
	RunAt    time.Duration
	Accepted time.Duration
	Lease    *time.Duration
	Finished *time.Duration
}

type bindingModel struct {
	Job            int
	Asked          asked
	Bound, Expires time.Duration
	Replaced       int
}

type eventModel struct {
	Kind   ledger.Kind
	Job    int
	Key    int
	Detail string
}

type decision struct {
	Outcome        commands.EnqueueOutcome // "" where the deadline is invalid
	Reason         string
	Job            int
	Bound, Expires time.Duration
	Fields         []string
}

type model struct {
	now      time.Duration
	next     int
	jobs     map[int]jobModel
	bindings map[int]bindingModel
	refused  map[string]bool // key, reason and request
	redriven map[string]int  // source and request ID
	events   []eventModel    // of the step under way
	// uuids are the real jobs' names: they decide between jobs that are equally good.
	uuids map[int]uuid.UUID
}

func newModel() *model {
	return &model{
		jobs: map[int]jobModel{}, bindings: map[int]bindingModel{}, refused: map[string]bool{}, redriven: map[string]int{},
		uuids: map[int]uuid.UUID{},
	}
}

// clone is the model to go on with where a transaction is rolled back.
func (m *model) clone() *model {
	c := *m
	c.jobs, c.bindings, c.refused = maps.Clone(m.jobs), maps.Clone(m.bindings), maps.Clone(m.refused)
	c.redriven, c.uuids, c.events = maps.Clone(m.redriven), maps.Clone(m.uuids), slices.Clone(m.events)
	return &c
}

func (m *model) append(kind ledger.Kind, job, key int, detail string) {
	m.events = append(m.events, eventModel{kind, job, key, detail})
}

func unfinished(j jobModel, known bool) bool {
	return known && slices.Contains([]commands.JobState{commands.JobScheduled, commands.JobReady, commands.JobActive}, j.State)
}

func waits(j jobModel) bool { return j.State == commands.JobScheduled || j.State == commands.JobReady }

func (m *model) dueState(runAt time.Duration) commands.JobState {
	if runAt > m.now {
		return commands.JobScheduled
	}
	return commands.JobReady
}

// atMost is the lesser of the two, where there is a second one.
func atMost(d, bound time.Duration) time.Duration {
	if bound == 0 {
		return d
	}
	return min(d, bound)
}

// decide is the outcome table.
func (m *model) decide(a asked) decision {
	b, bound := m.bindings[a.Key]
	switch {
	case a.Key == 0 || !bound:
		return m.accept(a, 0)
	case a.Mode == commands.ModeDebounce:
		return m.debounce(a, b)
	case m.now < b.Expires:
		if fields := differing(b.Asked, a); len(fields) > 0 {
			m.refuse(a, b, "conflict", ledger.KindConflictRejected, fmt.Sprint(fields))
			return decision{commands.OutcomeConflictRejected, "", b.Job, b.Bound, b.Expires, fields}
		}
		outcome := map[commands.Mode]commands.EnqueueOutcome{
			commands.ModeIdempotency: commands.OutcomeReplayed, commands.ModeThrottle: commands.OutcomeCoalesced,
		}[a.Mode]
		return decision{outcome, "", b.Job, b.Bound, b.Expires, nil}
	}
	if m.tooLate(a, m.firstRun(a)) {
		return decision{}
	}
	m.unbind(a.Key, ledger.KindBindingExpired, "")
	return m.accept(a, 0)
}

func (m *model) firstRun(a asked) time.Duration {
	switch {
	case a.RunAt != nil:
		return *a.RunAt
	case a.Mode == commands.ModeDebounce:
		return m.now + atMost(a.Window, a.MaxWait)
	}
	return m.now
}

func (m *model) tooLate(a asked, runAt time.Duration) bool {
	return a.Deadline != nil && *a.Deadline <= max(m.now, runAt)
}

// accept is new work, under a key that is free.
func (m *model) accept(a asked, after int) decision {
	runAt := m.firstRun(a)
	if m.tooLate(a, runAt) {
		return decision{}
	}
	m.next++
	m.jobs[m.next] = jobModel{Asked: a, State: m.dueState(runAt), After: after, RunAt: runAt, Accepted: m.now}
	d := decision{Outcome: commands.OutcomeAccepted, Job: m.next, Bound: m.now}
	detail := fmt.Sprint("run ", runAt, " after ", after)
	if a.Key != 0 {
		d.Expires = m.now + atMost(a.Window, a.MaxWait)
		m.bindings[a.Key] = bindingModel{Job: m.next, Asked: a, Bound: m.now, Expires: d.Expires}
	}
	m.append(ledger.KindAccepted, m.next, a.Key, detail)
	return d
}

func (m *model) debounce(a asked, b bindingModel) decision {
	j, known := m.jobs[b.Job]
	live := m.now < b.Expires
	pending := known && waits(j) && j.Attempt == 0
	predecessor, there := m.jobs[j.After]
	held := pending && unfinished(predecessor, there)
	own := b.Asked.Mode == commands.ModeDebounce
	reason := ""
	switch {
	case !own && live:
		reason = commands.ReasonIncompatibleKeyMode
	case !own:
	case pending && (live || held):
		return m.replace(a, b, j)
	case live:
		reason = commands.ReasonNotPending
	case pending:
		reason = commands.ReasonWindowElapsedPending
	}
	if reason != "" && !(a.FollowUp && own) {
		m.refuse(a, b, reason, ledger.KindNonReplaceable, reason)
		return decision{commands.OutcomeNonReplaceable, reason, b.Job, b.Bound, b.Expires, nil}
	}
	if m.tooLate(a, m.firstRun(a)) {
		return decision{}
	}
	after := 0
	if a.FollowUp && own && unfinished(j, known) {
		after = b.Job
	}
	if live {
		m.unbind(a.Key, ledger.KindBindingReleased, "follow_up")
	} else {
		m.unbind(a.Key, ledger.KindBindingExpired, "")
	}
	return m.accept(a, after)
}

func (m *model) replace(a asked, b bindingModel, j jobModel) decision {
	expires, runAt := m.now+a.Window, m.now+a.Window
	if a.MaxWait != 0 {
		expires, runAt = min(expires, b.Bound+a.MaxWait), min(runAt, b.Bound+a.MaxWait)
	}
	if a.RunAt != nil {
		runAt = *a.RunAt
	}
	if a.Preserve {
		expires, runAt = b.Expires, j.RunAt
	}
	if m.tooLate(a, runAt) {
		return decision{}
	}
	j.Asked, j.RunAt, j.State = a, runAt, m.dueState(runAt)
	m.jobs[b.Job] = j
	m.bindings[a.Key] = bindingModel{b.Job, a, b.Bound, expires, b.Replaced + 1}
	m.append(ledger.KindReplaced, b.Job, a.Key, fmt.Sprint("run ", runAt, " times ", b.Replaced+1))
	return decision{commands.OutcomeReplaced, "", b.Job, b.Bound, expires, nil}
}

// refuse records a refusal once for each request, reason and binding.
func (m *model) refuse(a asked, b bindingModel, reason string, kind ledger.Kind, detail string) {
	id := refusal(a.Key, reason, a)
	if !m.refused[id] {
		m.refused[id] = true
		m.append(kind, b.Job, a.Key, detail)
	}
}

func refusal(key int, reason string, a asked) string {
	return fmt.Sprintf("%d|%s|%s", key, reason, a.material())
}

func (m *model) unbind(key int, kind ledger.Kind, reason string) {
	m.append(kind, m.bindings[key].Job, key, reason)
	delete(m.bindings, key)
	maps.DeleteFunc(m.refused, func(id string, _ bool) bool { return id[:2] == fmt.Sprint(key, "|") })
}

// decideMany is a batch. Where it is withdrawn only the conflicts with owners from before it are recorded. The place of
// the first request whose deadline is invalid, or -1.
func (m *model) decideMany(batch []asked, allOrNothing bool) (decisions []decision, invalid int) {
	before := m.clone()
	conflicts := false
	for i, a := range batch {
		d := m.decide(a)
		if d.Outcome == "" {
			*m = *before
			return nil, i
		}
		conflicts = conflicts || d.Outcome == commands.OutcomeConflictRejected
		decisions = append(decisions, d)
	}
	if !conflicts || !allOrNothing {
		return decisions, -1
	}
	*m = *before
	for i, d := range decisions {
		if d.Outcome == commands.OutcomeConflictRejected && d.Job <= m.next {
			m.refuse(batch[i], bindingModel{Job: d.Job}, "conflict", ledger.KindConflictRejected, fmt.Sprint(d.Fields))
		}
	}
	return decisions, -1
}

// numbers are the jobs that keep to a condition, in an order, and where that leaves it open in that of their names.
func (m *model) numbers(keep func(jobModel) bool, order func(a, b jobModel) int) []int {
	var all []int
	for n, j := range m.jobs {
		if keep(j) {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b int) int {
		if c := order(m.jobs[a], m.jobs[b]); c != 0 {
			return c
		}
		return slices.Compare(name(m.uuids[a]), name(m.uuids[b]))
	})
	return all
}

func name(id uuid.UUID) []byte { return id[:] }
