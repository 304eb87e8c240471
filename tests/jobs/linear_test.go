package jobs_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// operation is what a caller asks in the linearizability check, and told what she got.
type operation struct {
	what  string
	asked asked
	job   uuid.UUID
	claim commands.Claim
	by    time.Duration
}

type told struct {
	done   bool
	result commands.EnqueueResult
	claim  commands.Claim
}

// All answers about one hot key, while its jobs run and its clock moves, are those of some order of the calls, one after
// another, that does not contradict when they were made. The model says what is right in an order.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(soak(t))
	for i := range 1000 {
		if i >= 8 && !time.Now().Before(end) {
			break
		}
		history := hotKey(t, uint64(i))
		result, info := porcupine.CheckOperationsVerbose(sequential(), history, 20*time.Second)
		if result != porcupine.Ok {
			t.Fatalf("round %d: no order of the calls explains the answers (%s)\n%s", i, result, explain(history, info))
		}
	}
}

// explain shows how far the answers can be explained, and what is left.
func explain(history []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, part := range info.PartialLinearizationsOperations() {
		for _, order := range part {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	var b strings.Builder
	in := map[string]bool{}
	line := func(op porcupine.Operation) string {
		return fmt.Sprintf("%9.3f–%9.3f ms, client %d: %s → %s\n", float64(op.Call)/1e6, float64(op.Return)/1e6, op.ClientId, op.Input, op.Output)
	}
	b.WriteString("in an order that explains them:\n")
	for _, op := range longest {
		in[line(op)] = true
		b.WriteString(line(op))
	}
	b.WriteString("not explained:\n")
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, op := range history {
		if !in[line(op)] {
			b.WriteString(line(op))
		}
	}
	return b.String()
}

func (op operation) String() string {
	switch op.what {
	case "enqueue":
		return fmt.Sprintf("%s %s, follow-up %t", op.asked.Mode, op.asked.Payload, op.asked.FollowUp)
	case "complete":
		return fmt.Sprintf("complete %s fence %d", short(op.claim.JobID), op.claim.Fence)
	}
	return fmt.Sprintf("%s %s %s", op.what, short(op.job), op.by)
}

func (got told) String() string {
	if got.result.Outcome == "" {
		return fmt.Sprintf("%t %s", got.done, short(cmp.Or(got.claim.JobID, got.result.JobID)))
	}
	return fmt.Sprintf("%s %s %s, bound %s to %s", got.result.Outcome, got.result.Reason, short(got.result.JobID),
		since(got.result.BoundAt), since(got.result.ExpiresAt))
}

// short is enough of a job's ID to tell it from the others.
func short(id uuid.UUID) string { return id.String()[24:] }

// hotKey lets several callers work on one key at once, and returns who asked what when, and was told what.
//
// The clock moves while nobody asks: a call is dated before it commits, so a move in between would come before it by the
// call's date, and after it by what others can see.
func hotKey(t *testing.T, seed uint64) []porcupine.Operation {
	t.Helper()
	const clients, calls, moves = 5, 4, 4
	db, err := pgtest.Open(context.Background(), pgtest.MaxConns(clients))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	steerClock(t, db, noon)
	h := &hot{t: t, db: db, queue: newQueue(t, db.Pool), start: time.Now(), jobs: []uuid.UUID{uuid.New()}, held: []commands.Claim{{}}}
	for move := range moves {
		var group sync.WaitGroup
		for client := range clients {
			group.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(clients*move+client)))
				for range calls {
					h.call(client, h.any(random))
				}
			})
		}
		group.Wait()
		h.call(0, operation{what: "clock", by: time.Duration(move) * time.Second / 2})
	}
	return h.history
}

// hot is a key under fire.
type hot struct {
	t     *testing.T
	db    *pgtest.DB
	queue *commands.Queue
	start time.Time

	mu      sync.Mutex
	history []porcupine.Operation
	jobs    []uuid.UUID
	held    []commands.Claim
}

func (h *hot) call(client int, op operation) {
	call := time.Since(h.start).Nanoseconds()
	got, err := op.do(h.db, h.queue)
	returned := time.Since(h.start).Nanoseconds()
	if err != nil {
		h.t.Errorf("%s: %v", op, err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.history = append(h.history, porcupine.Operation{ClientId: client, Input: op, Output: got, Call: call, Return: returned})
	if got.result.JobID != uuid.Nil {
		h.jobs = append(h.jobs, got.result.JobID)
	}
	if got.claim.JobID != uuid.Nil {
		h.held = append(h.held, got.claim)
	}
}

// any is an operation, mostly a request.
func (h *hot) any(random *rand.Rand) operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch random.IntN(12) {
	case 0:
		return operation{what: "run now", job: h.jobs[len(h.jobs)-1]}
	case 1:
		return operation{what: "release"}
	case 2, 3:
		return operation{what: "claim"}
	case 4:
		return operation{what: "complete", claim: h.held[len(h.held)-1]}
	}
	a := asked{Key: 1, Payload: fmt.Sprint(1 + random.IntN(2)), Queue: "a", Budget: 1, Window: time.Second}
	a.Mode = []commands.Mode{commands.ModeDebounce, commands.ModeDebounce, commands.ModeIdempotency, commands.ModeThrottle}[random.IntN(4)]
	a.FollowUp = a.Mode == commands.ModeDebounce && random.IntN(2) == 0
	return operation{what: "enqueue", asked: a}
}

func (op operation) do(db *pgtest.DB, queue *commands.Queue) (told, error) {
	ctx := context.Background()
	switch op.what {
	case "clock":
		_, err := db.Pool.Exec(ctx, "update public.steered set at = at + $1", op.by)
		return told{}, err
	case "run now":
		err := queue.RunJobNow(ctx, op.job, operator)
		return told{done: err == nil}, unlessExpected(err)
	case "release":
		id, err := queue.ReleaseKey(ctx, "", digestOf(1), operator)
		return told{done: err == nil, result: commands.EnqueueResult{JobID: id}}, unlessExpected(err)
	case "claim":
		jobs, err := queue.ClaimJobs(ctx, commands.ClaimOptions{Queue: "a", Worker: "w", Lease: time.Hour})
		if err != nil || len(jobs) == 0 {
			return told{}, err
		}
		return told{done: true, claim: jobs[0].Claim}, nil
	case "complete":
		done, err := queue.CompleteJobs(ctx, op.claim)
		return told{done: err == nil && done[0]}, err
	}
	result, err := queue.Decide(ctx, op.asked.options(op.asked.Payload))
	return told{result: result}, err
}

func unlessExpected(err error) error {
	if err != nil && expected(err) {
		return nil
	}
	return err
}

// sequential is the model, one call after another.
func sequential() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return newModel() },
		Step: func(state, input, output any) (bool, any) {
			m := state.(*model).clone()
			ok := m.explains(input.(operation), output.(told))
			return ok, m
		},
		Equal: func(a, b any) bool { return a.(*model).String() == b.(*model).String() },
	}
}

// String is all that later answers depend on.
func (m *model) String() string { return fmt.Sprint(m.now, m.next, m.jobs, m.bindings, m.uuids) }

// explains takes a step and reports whether it may have been told that.
func (m *model) explains(op operation, got told) bool {
	switch op.what {
	case "clock":
		m.now += op.by
		return true
	case "run now":
		return m.runNow(m.numberOf(op.job)) == got.done
	case "release":
		n, ok := m.release(1)
		return ok == got.done && (!ok || m.uuids[n] == got.result.JobID)
	case "complete":
		return m.complete(m.numberOf(op.claim.JobID), op.claim.Fence) == got.done
	case "claim":
		if !got.done {
			return true // whatever there is may be held by others just now
		}
		// The one it got must have been there to be had.
		n := m.numberOf(got.claim.JobID)
		return slices.Contains(m.claimOnly(n), n) && m.jobs[n].Fence == got.claim.Fence
	}
	d := m.decide(op.asked)
	if d.Outcome == commands.OutcomeAccepted && got.result.Outcome == d.Outcome {
		m.uuids[d.Job] = got.result.JobID
	}
	var fields []string
	if got.result.Conflict != nil {
		fields = got.result.Conflict.Fields
	}
	return d.Outcome == got.result.Outcome && d.Reason == got.result.Reason && m.uuids[d.Job] == got.result.JobID &&
		d.Bound == since(got.result.BoundAt) && d.Expires == since(got.result.ExpiresAt) && slices.Equal(d.Fields, fields)
}

// claimOnly claims a job as if all others were held by somebody.
func (m *model) claimOnly(n int) []int {
	others := m.jobs
	j, known := m.jobs[n]
	if !known {
		return nil
	}
	predecessor, there := m.jobs[j.After]
	if unfinished(predecessor, there) {
		return nil
	}
	m.jobs = map[int]jobModel{n: j}
	claimed := m.claim(j.Asked.Queue, 1, time.Hour)
	others[n] = m.jobs[n]
	m.jobs = others
	return claimed
}

func (m *model) numberOf(id uuid.UUID) int {
	for n, other := range m.uuids {
		if other == id {
			return n
		}
	}
	return 0
}
