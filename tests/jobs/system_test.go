package jobs_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// system is a database and the model of it, side by side. Each call does one thing to both and compares what they
// answer; check compares what there is afterwards.
type system struct {
	db    *pgtest.DB
	queue *commands.Queue
	model *model
	// tx is the caller's transaction, nil outside of one; saved is what a rollback goes back to.
	tx    pgx.Tx
	saved *system
	// jobs are the model's numbers of the real jobs.
	jobs map[uuid.UUID]int
	keys map[string]int // by hash
	// held are the claims handed out, stale or not.
	held  []commands.Claim
	event int64 // the newest that was compared
	asked []asked
	// purges are counted, for the request IDs.
	purges int
}

const modelKeys = 3

func newSystem(t fataler) *system {
	t.Helper()
	db, err := pgtest.Open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	steerClock(t, db, noon)
	s := &system{db: db, queue: newQueue(t, db.Pool), model: newModel(), jobs: map[uuid.UUID]int{}, keys: map[string]int{}}
	for key := 1; key <= modelKeys; key++ {
		hash, _ := ledger.Keys{}.Hash(commands.DefaultScope, keyOf(key))
		s.keys[hex.EncodeToString(hash[:])] = key
	}
	return s
}

func (s *system) close(t fataler) {
	t.Helper()
	ctx := context.Background()
	if s.tx != nil {
		_ = s.tx.Rollback(ctx)
	}
	if err := s.db.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func keyOf(key int) ledger.Key { return ledger.NewKey(fmt.Sprint("key ", key)) }

func (a asked) options(spelling string) commands.EnqueueOptions {
	o := commands.EnqueueOptions{
		Type: "t", Payload: json.RawMessage(spelling), Queue: a.Queue, Priority: a.Priority, AttemptBudget: a.Budget,
		RetryPolicy: commands.FixedRetry{Delay: a.Retry},
	}
	if a.RunAt != nil {
		o.RunAt = noon.Add(*a.RunAt)
	}
	if a.Deadline != nil {
		o.Deadline = noon.Add(*a.Deadline)
	}
	switch a.Mode {
	case commands.ModeIdempotency:
		o.Idempotency = &commands.Idempotency{Key: keyOf(a.Key), TTL: a.Window}
	case commands.ModeThrottle:
		o.Throttle = &commands.Throttle{Key: keyOf(a.Key), Window: a.Window}
	case commands.ModeDebounce:
		o.Debounce = &commands.Debounce{Key: keyOf(a.Key), Window: a.Window, MaxWait: a.MaxWait, FollowUp: a.FollowUp}
		if a.Preserve {
			o.Debounce.Schedule = commands.SchedulePreserve
		}
	}
	return o
}

// spelling is one of the texts of an equal payload.
func (a asked) spelling(i int) string {
	return []string{a.Payload, a.Payload + ".0", a.Payload + "0e-1"}[i%3]
}

func (s *system) enqueue(t fataler, a asked) {
	t.Helper()
	ctx := context.Background()
	s.asked = append(s.asked, a)
	o := a.options(a.spelling(len(s.asked)))
	var got commands.EnqueueResult
	var err error
	if s.tx != nil {
		got, err = s.queue.DecideTx(ctx, s.tx, o)
	} else {
		got, err = s.queue.Decide(ctx, o)
	}
	want := s.model.decide(a)
	if want.Outcome == "" {
		wantInvalid(t, err, "deadline")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	s.compare(t, 0, want, got)
}

func (s *system) enqueueMany(t fataler, batch []asked, allOrNothing bool) {
	t.Helper()
	ctx := context.Background()
	options := make([]commands.EnqueueOptions, len(batch))
	for i, a := range batch {
		s.asked = append(s.asked, a)
		options[i] = a.options(a.spelling(i))
	}
	var got []commands.EnqueueResult
	var err error
	switch {
	case s.tx != nil && allOrNothing:
		got, err = s.queue.EnqueueManyTx(ctx, s.tx, options)
	case s.tx != nil:
		got, err = s.queue.DecideManyTx(ctx, s.tx, options)
	case allOrNothing:
		got, err = s.queue.EnqueueMany(ctx, options)
	default:
		got, err = s.queue.DecideMany(ctx, options)
	}
	before := s.model.next
	want, invalid := s.model.decideMany(batch, allOrNothing)
	if invalid >= 0 {
		wantInvalid(t, err, "deadline")
		var refused *commands.InvalidRequestError
		if errors.As(err, &refused) && refused.Ordinal != invalid {
			t.Fatalf("ordinal %d is invalid, want %d", refused.Ordinal, invalid)
		}
		return
	}
	var many *commands.EnqueueManyConflictError
	if allOrNothing && slices.ContainsFunc(want, func(d decision) bool { return d.Fields != nil }) {
		if !errors.As(err, &many) {
			t.Fatalf("error %v, want an *EnqueueManyConflictError", err)
		}
		s.compareConflicts(t, want, many.Conflicts, before)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "number of answers", len(want), len(got))
	for i := range want {
		s.compare(t, i, want[i], got[i])
	}
}

func (s *system) compareConflicts(t fataler, want []decision, got []*commands.EnqueueIdempotencyConflictError, before int) {
	t.Helper()
	type conflict struct {
		Ordinal, Job, Twin int
		Fields             []string
	}
	var wanted, told []conflict
	for i, d := range want {
		if d.Fields == nil {
			continue
		}
		c := conflict{i, d.Job, -1, d.Fields}
		if d.Job > before {
			c.Job = 0
			c.Twin = slices.IndexFunc(want, func(other decision) bool { return other.Job == d.Job })
		}
		wanted = append(wanted, c)
	}
	for _, c := range got {
		told = append(told, conflict{c.Ordinal, s.jobs[c.JobID], c.TwinOrdinal, c.Fields})
	}
	diff(t, "conflicts", wanted, told)
}

func (s *system) compare(t fataler, ordinal int, want decision, got commands.EnqueueResult) {
	t.Helper()
	if want.Outcome == commands.OutcomeAccepted && got.Outcome == want.Outcome {
		s.name(t, want.Job, got.JobID)
	}
	told := decision{Outcome: got.Outcome, Reason: got.Reason, Job: s.jobs[got.JobID], Bound: since(got.BoundAt)}
	if !got.ExpiresAt.IsZero() {
		told.Expires = since(got.ExpiresAt)
	}
	if got.Conflict != nil {
		told.Fields = got.Conflict.Fields
		diff(t, "the conflict", []any{ordinal, -1, got.JobID}, []any{got.Conflict.Ordinal, got.Conflict.TwinOrdinal, got.Conflict.JobID})
	}
	diff(t, "the answer", want, told)
}

// name tells the model which job its new one is.
func (s *system) name(t fataler, number int, id uuid.UUID) {
	t.Helper()
	if old, ok := s.jobs[id]; ok {
		t.Fatalf("the new job has the ID of job %d", old)
	}
	s.jobs[id] = number
	s.model.uuids[number] = id
}

func since(at time.Time) time.Duration { return at.Sub(noon) }

func (s *system) begin(t fataler) {
	t.Helper()
	tx, err := s.db.Pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	saved := *s
	saved.model, saved.jobs = s.model.clone(), maps.Clone(s.jobs)
	s.saved, s.tx = &saved, tx
}

func (s *system) commit(t fataler) {
	t.Helper()
	commit(t, s.tx)
	s.tx = nil
}

func (s *system) rollback(t fataler) {
	t.Helper()
	rollback(t, s.tx)
	now := s.model.now
	s.model, s.jobs, s.event, s.tx = s.saved.model, s.saved.jobs, s.saved.event, nil
	s.model.now = now
}

func (s *system) advance(t fataler, by time.Duration) {
	t.Helper()
	s.model.now += by
	steerTo(t, s.db, noon.Add(s.model.now))
}

// seen is what there is, in the model's terms.
type seen struct {
	Jobs     map[int]seenJob
	Bindings map[int]seenBinding
	Events   []eventModel
}

type seenJob struct {
	State                     commands.JobState
	Queue, Payload            string
	Key, After                int
	Priority, Budget, Attempt int
	Fence                     int64
	Retry, RunAt, Accepted    time.Duration
	Deadline, Lease, Finished string
}

type seenBinding struct {
	Job                    int
	Mode                   commands.Mode
	Window, Bound, Expires time.Duration
	Replaced               int
	RunAt                  string
}

// check compares what there is, and the events since the last time.
func (s *system) check(t fataler) {
	t.Helper()
	diff(t, "what there is", s.wanted(), s.read(t))
	s.model.events = nil
}

func (s *system) wanted() seen {
	w := seen{Jobs: map[int]seenJob{}, Bindings: map[int]seenBinding{}, Events: inOrder(s.model.events)}
	for n, j := range s.model.jobs {
		w.Jobs[n] = seenJob{
			j.State, j.Asked.Queue, j.Asked.Payload, j.Asked.Key, j.After, j.Asked.Priority, j.Asked.Budget, j.Attempt, j.Fence,
			j.Asked.Retry, j.RunAt, j.Accepted, show(j.Asked.Deadline), show(j.Lease), show(j.Finished),
		}
	}
	for key, b := range s.model.bindings {
		w.Bindings[key] = seenBinding{b.Job, b.Asked.Mode, b.Asked.Window, b.Bound, b.Expires, b.Replaced, show(b.Asked.RunAt)}
	}
	return w
}

// inOrder leaves the order that is promised: of what was decided about a key, and of what happened to a job.
func inOrder(events []eventModel) []eventModel {
	sorted := append([]eventModel{}, events...)
	about := func(e eventModel) int {
		if e.Key == 0 || strings.HasPrefix(string(e.Kind), "job.") {
			return modelKeys + e.Job
		}
		return e.Key
	}
	slices.SortStableFunc(sorted, func(a, b eventModel) int { return about(a) - about(b) })
	return sorted
}

func (s *system) reader() querier {
	if s.tx != nil {
		return s.tx
	}
	return s.db.Pool
}

func (s *system) read(t fataler) seen {
	t.Helper()
	got := seen{Jobs: map[int]seenJob{}, Bindings: map[int]seenBinding{}}
	var (
		id                        uuid.UUID
		after                     *uuid.UUID
		key                       []byte
		j                         seenJob
		b                         seenBinding
		ms                        int64
		first, second             time.Time
		optional, optional2, last *time.Time
		text                      string
		kind                      ledger.Kind
		event                     int64
	)
	each(t, s.reader(), `
		select job_id, after_job_id, key_hash, state, queue, trim_scale(payload::numeric)::text, priority, attempt_budget, attempt,
			fence, retry_initial_ms, run_at, accepted_at, deadline, lease_expires_at, finished_at
		from daybook.job`, []any{
		&id, &after, &key, &j.State, &j.Queue, &j.Payload, &j.Priority, &j.Budget, &j.Attempt, &j.Fence, &ms, &first, &second,
		&optional, &optional2, &last,
	}, func() {
		j.Key, j.After = s.keys[hex.EncodeToString(key)], s.number(after)
		j.Retry, j.RunAt, j.Accepted = time.Duration(ms)*time.Millisecond, since(first), since(second)
		j.Deadline, j.Lease, j.Finished = instant(optional), instant(optional2), instant(last)
		got.Jobs[s.jobs[id]] = j
	})
	each(t, s.reader(), "select key_hash, job_id, mode, window_ms, bound_at, expires_at, replaced, run_at from daybook.binding", []any{
		&key, &id, &b.Mode, &ms, &first, &second, &b.Replaced, &optional,
	}, func() {
		b.Job, b.Window = s.jobs[id], time.Duration(ms)*time.Millisecond
		b.Bound, b.Expires, b.RunAt = since(first), since(second), instant(optional)
		got.Bindings[s.keys[hex.EncodeToString(key)]] = b
	})
	each(t, s.reader(), "select event_id, kind, job_id, key_hash, body::text from daybook.event where event_id > $1 order by event_id",
		[]any{&event, &kind, &id, &key, &text}, func() {
			got.Events = append(got.Events, eventModel{kind, s.jobs[id], s.keys[hex.EncodeToString(key)], s.detail(t, kind, text)})
			s.event = event
		}, s.event)
	got.Events = inOrder(got.Events)
	return got
}

func (s *system) number(id *uuid.UUID) int {
	if id == nil {
		return 0
	}
	return s.jobs[*id]
}

func instant(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return since(*at).String()
}
