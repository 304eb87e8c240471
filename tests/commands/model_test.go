package commands_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// model is §4 in a few dozen lines: what must be bound, accepted and appended. Jobs are numbered from 1 in the order in which
// they were accepted.
type model struct {
	now      time.Time
	jobs     int
	bindings map[string]binding
	// events are those of each key, in their order; "" for requests without one.
	events map[string][]event
}

type binding struct {
	Job            int
	Asked          asked
	Bound, Expires time.Time
	// refused are the requests whose refusal was recorded.
	refused []asked
}

type event struct {
	Kind ledger.Kind
	Job  int
	At   time.Time
}

// decision is what the model says about a request.
type decision struct {
	Outcome        commands.EnqueueOutcome
	Job            int
	Fields         []string
	Bound, Expires time.Time
}

func newModel(now time.Time) *model {
	return &model{now: now, bindings: map[string]binding{}, events: map[string][]event{}}
}

// clone is the model to come back to when a transaction is rolled back.
func (m *model) clone() *model {
	c := &model{now: m.now, jobs: m.jobs, bindings: maps.Clone(m.bindings), events: map[string][]event{}}
	for key, events := range m.events {
		c.events[key] = slices.Clone(events)
	}
	return c
}

func (m *model) append(key string, kind ledger.Kind, job int) {
	m.events[key] = append(m.events[key], event{kind, job, m.now})
}

// decide is the outcome table of §4.3.
func (m *model) decide(a asked) decision {
	owner, bound := m.bindings[a.Key]
	live := bound && m.now.Before(owner.Expires)
	switch {
	case live && owner.Asked.Mode != a.Mode:
		return m.reject(a, owner)
	case live && a.Mode == commands.ModeIdempotency, live && a.Mode == commands.ModeThrottle:
		if len(differing(owner.Asked, a)) > 0 {
			return m.reject(a, owner)
		}
		again := map[commands.Mode]commands.EnqueueOutcome{
			commands.ModeIdempotency: commands.OutcomeReplayed, commands.ModeThrottle: commands.OutcomeCoalesced,
		}
		return decision{Outcome: again[a.Mode], Job: owner.Job, Bound: owner.Bound, Expires: owner.Expires}
	}
	if bound {
		m.append(a.Key, ledger.KindBindingExpired, owner.Job)
	}
	return m.accept(a)
}

func (m *model) accept(a asked) decision {
	m.jobs++
	d := decision{Outcome: commands.OutcomeAccepted, Job: m.jobs, Bound: m.now}
	if a.Key != "" {
		d.Expires = m.now.Add(a.Window)
		m.bindings[a.Key] = binding{Job: d.Job, Asked: a, Bound: d.Bound, Expires: d.Expires}
	}
	m.append(a.Key, ledger.KindAccepted, d.Job)
	return d
}

func (m *model) reject(a asked, owner binding) decision {
	m.record(a, owner.Job)
	return decision{
		Outcome: commands.OutcomeConflictRejected, Job: owner.Job, Fields: differing(owner.Asked, a), Bound: owner.Bound, Expires: owner.Expires,
	}
}

// record appends a refusal once for each request and binding.
func (m *model) record(a asked, job int) {
	owner, bound := m.bindings[a.Key]
	if !bound || owner.Job != job || slices.ContainsFunc(owner.refused, func(b asked) bool { return len(differing(a, b)) == 0 }) {
		return
	}
	owner.refused = append(slices.Clone(owner.refused), a)
	m.bindings[a.Key] = owner
	m.append(a.Key, ledger.KindConflictRejected, job)
}

// decideMany is §4.5. With allOrNothing a conflict undoes the batch, and the refusals by an owner of before are recorded.
func (m *model) decideMany(batch []asked, allOrNothing bool) (decisions []decision, conflicts []int) {
	before := m.clone()
	for i, a := range batch {
		decisions = append(decisions, m.decide(a))
		if decisions[i].Outcome == commands.OutcomeConflictRejected {
			conflicts = append(conflicts, i)
		}
	}
	if allOrNothing && len(conflicts) > 0 {
		*m = *before
		for _, i := range conflicts {
			m.record(batch[i], decisions[i].Job)
		}
	}
	return decisions, conflicts
}

// system is the database beside the model, in a scope of its own.
type system struct {
	db    *pgtest.DB
	queue *commands.Queue
	scope string
	first int64     // the last event before this run
	start time.Time // no earlier run has come so far
	model *model
	tx    pgx.Tx // the open transaction, or nil
	saved *model // the model as it was when that began
	jobs  map[int]uuid.UUID
}

// The database agrees with the model after each step: outcome, job, fields, times, bindings and events.
func TestModel(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	steerClock(t, db, noon)
	queue := newQueue(t, db.Pool)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		now := noon.Add(time.Duration(run) * 1000 * time.Hour)
		s := &system{db: db, queue: queue, scope: fmt.Sprint("run ", run), start: now, model: newModel(now), jobs: map[int]uuid.UUID{}}
		s.first = query1[int64](rt, db.Pool, "select coalesce(max(event_id), 0) from daybook.event")
		steerTo(t, db, now)
		defer func() {
			if s.tx != nil {
				_ = s.tx.Rollback(context.Background())
			}
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"":         s.check,
			"enqueue":  s.enqueue,
			"batch":    s.batch,
			"clock":    func(rt *rapid.T) { s.moveClock(t, rt) },
			"begin":    s.begin,
			"commit":   s.commit,
			"rollback": s.rollback,
		})
	})
}

func (s *system) enqueue(t *rapid.T) {
	a := anyRequest(t)
	want := s.model.decide(a)
	var got commands.EnqueueResult
	if s.tx != nil {
		got = decideTx(t, s.queue, s.tx, a.options(s.scope))
	} else {
		got = decide(t, s.queue, a.options(s.scope))
	}
	s.compare(t, want, got)
}

func (s *system) batch(t *rapid.T) {
	batch := rapid.SliceOfN(rapid.Custom(anyRequest), 1, 6).Draw(t, "batch")
	allOrNothing := rapid.Bool().Draw(t, "all or nothing")
	requests := make([]commands.EnqueueOptions, len(batch))
	for i, a := range batch {
		requests[i] = a.options(s.scope)
	}
	var results []commands.EnqueueResult
	var err error
	ctx := context.Background()
	switch {
	case allOrNothing && s.tx != nil:
		results, err = s.queue.EnqueueManyTx(ctx, s.tx, requests)
	case allOrNothing:
		results, err = s.queue.EnqueueMany(ctx, requests)
	case s.tx != nil:
		results, err = s.queue.DecideManyTx(ctx, s.tx, requests)
	default:
		results, err = s.queue.DecideMany(ctx, requests)
	}
	// The jobs of a batch may be numbered in another order: what counts is who shares one.
	want, conflicts := s.model.decideMany(batch, allOrNothing)
	if !allOrNothing || len(conflicts) == 0 {
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			s.compare(t, want[i], results[i])
		}
		return
	}
	var many *commands.EnqueueManyConflictError
	if !errors.As(err, &many) {
		t.Fatalf("%v, want conflicts at %v", err, conflicts)
	}
	var got []int
	for _, conflict := range many.Conflicts {
		d := want[conflict.Ordinal]
		got = append(got, conflict.Ordinal)
		if diff := cmp.Diff(d.Fields, conflict.Fields); diff != "" {
			t.Fatalf("fields of conflict %d (-want +got):\n%s", conflict.Ordinal, diff)
		}
		if id := s.jobs[d.Job]; conflict.JobID != id || (id == uuid.Nil) != (conflict.TwinOrdinal >= 0) {
			t.Fatalf("conflict %d with job %s and twin %d, want %s", conflict.Ordinal, conflict.JobID, conflict.TwinOrdinal, id)
		}
	}
	if diff := cmp.Diff(conflicts, got); diff != "" {
		t.Fatalf("ordinals (-want +got):\n%s", diff)
	}
}

// compare holds an answer against the model's, and learns the ID of a new job.
func (s *system) compare(t *rapid.T, want decision, got commands.EnqueueResult) {
	t.Helper()
	if want.Outcome == commands.OutcomeAccepted {
		for _, known := range s.jobs {
			if known == got.JobID {
				t.Fatalf("accepted with a job that is known: %s", got.JobID)
			}
		}
		s.jobs[want.Job] = got.JobID
	}
	seen := decision{Outcome: got.Outcome, Job: s.number(got.JobID), Bound: got.BoundAt, Expires: got.ExpiresAt}
	if got.Conflict != nil {
		seen.Fields = got.Conflict.Fields
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Fatalf("decision (-want +got):\n%s", diff)
	}
}

// number is the model's number of a job; 0 for one it does not know.
func (s *system) number(id uuid.UUID) int {
	for number, known := range s.jobs {
		if known == id {
			return number
		}
	}
	return 0
}

func (s *system) moveClock(t *testing.T, rt *rapid.T) {
	if s.tx != nil {
		rt.Skip("in a transaction the clock would be rolled back")
	}
	by := rapid.SampledFrom([]time.Duration{
		time.Microsecond, 30 * time.Minute, time.Hour - time.Microsecond, time.Hour, 2 * time.Hour,
	}).Draw(rt, "by")
	s.model.now = s.model.now.Add(by)
	steerTo(t, s.db, s.model.now)
}

func (s *system) begin(t *rapid.T) {
	if s.tx != nil {
		t.Skip("one is open")
	}
	tx, err := s.db.Pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s.tx, s.saved = tx, s.model.clone()
}

func (s *system) commit(t *rapid.T) {
	if s.tx == nil {
		t.Skip("none is open")
	}
	commit(t, s.tx)
	s.tx, s.saved = nil, nil
}

func (s *system) rollback(t *rapid.T) {
	if s.tx == nil {
		t.Skip("none is open")
	}
	rollback(t, s.tx)
	for number := range s.jobs {
		if number > s.saved.jobs {
			delete(s.jobs, number)
		}
	}
	s.tx, s.model, s.saved = nil, s.saved, nil
}

// check holds the tables against the model.
func (s *system) check(t *rapid.T) {
	var db querier = s.db.Pool
	if s.tx != nil {
		db = s.tx
	}
	digests := map[ledger.KeyDigest]string{"": ""}
	for _, key := range []string{"a", "b", "c"} {
		hash, _ := ledger.Keys{}.Hash(s.scope, ledger.NewKey(key))
		digests[hash.Digest()] = key
	}

	type bound struct {
		Job            int
		Bound, Expires time.Time
		Mode           commands.Mode
	}
	wantBound, gotBound := map[string]bound{}, map[string]bound{}
	for key, b := range s.model.bindings {
		wantBound[key] = bound{b.Job, b.Bound, b.Expires, b.Asked.Mode}
	}
	seen := s.read(t, db)
	for _, row := range seen.Bindings {
		gotBound[digests[row.Digest]] = bound{s.number(row.JobID), row.Bound.UTC(), row.Expires.UTC(), row.Mode}
	}
	if diff := cmp.Diff(wantBound, gotBound); diff != "" {
		t.Fatalf("bindings (-want +got):\n%s", diff)
	}
	got := map[string][]event{}
	for _, row := range seen.Events {
		key := digests[row.Digest]
		got[key] = append(got[key], event{row.Kind, s.number(row.JobID), row.At.UTC()})
	}
	if diff := cmp.Diff(s.model.events, got); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	if seen.Jobs != s.model.jobs {
		t.Fatalf("%d jobs, want %d", seen.Jobs, s.model.jobs)
	}
}

// tables are what is in the database, of this run.
type tables struct {
	Bindings []struct {
		Digest         ledger.KeyDigest
		JobID          uuid.UUID
		Bound, Expires time.Time
		Mode           commands.Mode
	}
	Events []struct {
		Digest ledger.KeyDigest
		Kind   ledger.Kind
		JobID  uuid.UUID
		At     time.Time
	}
	Jobs int
}

// read reads them in one round trip: it is done after each step.
func (s *system) read(t *rapid.T, db querier) tables {
	t.Helper()
	return query1[tables](t, db, `
		select json_build_object(
			'bindings', (
				select json_agg(json_build_object('digest', daybook.key_digest(b.key_hash), 'jobID', b.job_id, 'bound', b.bound_at,
					'expires', b.expires_at, 'mode', b.mode))
				from daybook.binding as b
				where b.scope = $1
			),
			'events', (
				select json_agg(json_build_object('digest', coalesce(daybook.key_digest(e.key_hash), ''), 'kind', e.kind, 'jobID', e.job_id,
					'at', e.recorded_at) order by e.event_id)
				from daybook.event as e
				where e.event_id > $2
			),
			'jobs', (select count(*) from daybook.job as j where j.accepted_at >= $3)
		)`, s.scope, s.first, s.start)
}
