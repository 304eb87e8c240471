package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// What a system does to jobs, and compares. See system_test.go.

const modelLease = 2 * time.Second

func (s *system) claim(t fataler, queue string, limit int) {
	t.Helper()
	jobs, err := s.queue.ClaimJobs(context.Background(), commands.ClaimOptions{Queue: queue, Worker: "w", Limit: limit, Lease: modelLease})
	if err != nil {
		t.Fatal(err)
	}
	got := []int{}
	for _, job := range jobs {
		s.held = append(s.held, job.Claim)
		got = append(got, s.jobs[job.JobID])
	}
	diff(t, "claimed", append([]int{}, s.model.claim(queue, limit, modelLease)...), got)
}

func (s *system) heartbeat(t fataler, claims ...commands.Claim) {
	t.Helper()
	held, _, err := s.queue.HeartbeatJobs(context.Background(), modelLease, claims...)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]bool, len(claims))
	for i, c := range claims {
		want[i] = s.model.heartbeat(s.jobs[c.JobID], c.Fence, modelLease)
	}
	diff(t, "held", want, held)
}

func (s *system) complete(t fataler, claims ...commands.Claim) {
	t.Helper()
	var done []bool
	var err error
	if s.tx != nil {
		done, err = s.queue.CompleteJobsTx(context.Background(), s.tx, claims...)
	} else {
		done, err = s.queue.CompleteJobs(context.Background(), claims...)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := make([]bool, len(claims))
	for i, c := range claims {
		want[i] = s.model.complete(s.jobs[c.JobID], c.Fence)
	}
	diff(t, "done", want, done)
}

func (s *system) fail(t fataler, c commands.Claim) {
	t.Helper()
	var got commands.Failure
	var err error
	if s.tx != nil {
		got, err = s.queue.FailJobTx(context.Background(), s.tx, c, "x")
	} else {
		got, err = s.queue.FailJob(context.Background(), c, "x")
	}
	n := s.jobs[c.JobID]
	if !s.model.fail(n, c.Fence) {
		if !errors.Is(err, commands.ErrStaleClaim) {
			t.Fatalf("error %v, want ErrStaleClaim", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	j := s.model.jobs[n]
	want := commands.Failure{State: j.State}
	if j.State != commands.JobFailed {
		want.RunAt = noon.Add(j.RunAt)
	}
	diff(t, "the failure", want, got)
}

// operate is an operator's command on one job, of which the model says whether it is done.
func (s *system) operate(t fataler, id uuid.UUID, own, inTx func() error, model func(int) bool) {
	t.Helper()
	do := own
	if s.tx != nil {
		do = inTx
	}
	err := do()
	n := s.jobs[id]
	j, known := s.model.jobs[n]
	done := model(n)
	var state *commands.JobStateError
	switch {
	case done && err != nil:
		t.Fatal(err)
	case !done && !known && !errors.Is(err, commands.ErrJobNotFound):
		t.Fatalf("error %v, want ErrJobNotFound", err)
	case !done && known && (!errors.As(err, &state) || state.State != j.State):
		t.Fatalf("error %v, want a *JobStateError of %s", err, j.State)
	}
}

func (s *system) cancel(t fataler, id uuid.UUID) {
	t.Helper()
	ctx := context.Background()
	s.operate(t, id, func() error { return s.queue.CancelJob(ctx, id, operator) },
		func() error { return s.queue.CancelJobTx(ctx, s.tx, id, operator) }, s.model.cancel)
}

func (s *system) runNow(t fataler, id uuid.UUID) {
	t.Helper()
	ctx := context.Background()
	s.operate(t, id, func() error { return s.queue.RunJobNow(ctx, id, operator) },
		func() error { return s.queue.RunJobNowTx(ctx, s.tx, id, operator) }, s.model.runNow)
}

func (s *system) release(t fataler, key int) {
	t.Helper()
	digest := digestOf(key)
	var got uuid.UUID
	var err error
	if s.tx != nil {
		got, err = s.queue.ReleaseKeyTx(context.Background(), s.tx, "", digest, operator)
	} else {
		got, err = s.queue.ReleaseKey(context.Background(), "", digest, operator)
	}
	n, ok := s.model.release(key)
	if !ok {
		if !errors.Is(err, commands.ErrKeyNotFound) {
			t.Fatalf("error %v, want ErrKeyNotFound", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "released from", n, s.jobs[got])
}

func (s *system) redrive(t fataler, id uuid.UUID, request string) {
	t.Helper()
	var got uuid.UUID
	var outcome commands.RedriveOutcome
	var err error
	if s.tx != nil {
		got, outcome, err = s.queue.RedriveJobTx(context.Background(), s.tx, id, operator, request)
	} else {
		got, outcome, err = s.queue.RedriveJob(context.Background(), id, operator, request)
	}
	n := s.jobs[id]
	j, known := s.model.jobs[n]
	target, want, owner := s.model.redrive(n, request)
	var owned *commands.KeyOwnedError
	var state *commands.JobStateError
	switch {
	case want != "":
		if err != nil {
			t.Fatal(err)
		}
		if want == commands.RedriveMade {
			s.name(t, target, got)
		}
		diff(t, "the redrive", fmt.Sprint(want, " ", target), fmt.Sprint(outcome, " ", s.jobs[got]))
	case owner != 0 && (!errors.As(err, &owned) || s.jobs[owned.OwnerJobID] != owner):
		t.Fatalf("error %v, want a *KeyOwnedError of job %d", err, owner)
	case owner == 0 && !known && !errors.Is(err, commands.ErrJobNotFound):
		t.Fatalf("error %v, want ErrJobNotFound", err)
	case owner == 0 && known && (!errors.As(err, &state) || state.State != j.State):
		t.Fatalf("error %v, want a *JobStateError of %s", err, j.State)
	}
}

func (s *system) purge(t fataler, queue, request string) {
	t.Helper()
	got, err := s.queue.Purge(context.Background(), queue, operator, request)
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "purged", int64(s.model.purge(queue)), got)
}

func (s *system) maintain(t fataler, retention time.Duration, batch int) {
	t.Helper()
	if retention == 0 {
		retention = -1 // at once; zero is the default
	}
	got, err := s.queue.Maintain(context.Background(), commands.MaintainOptions{Retention: retention, BatchSize: batch})
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "maintained", s.model.maintain(max(0, retention)), got)
}

// detail is what is special to an event's kind.
func (s *system) detail(t fataler, kind ledger.Kind, text string) string {
	t.Helper()
	var body struct {
		RunAt    time.Time  `json:"run_at"`
		After    *uuid.UUID `json:"after_job_id"`
		Replaced int        `json:"replaced"`
		Fields   []string   `json:"fields"`
		Reason   string     `json:"reason"`
	}
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		t.Fatal(err)
	}
	switch kind {
	case ledger.KindAccepted:
		return fmt.Sprint("run ", since(body.RunAt), " after ", s.number(body.After))
	case ledger.KindReplaced:
		return fmt.Sprint("run ", since(body.RunAt), " times ", body.Replaced)
	case ledger.KindJobAttemptFailed:
		return fmt.Sprint("run ", since(body.RunAt))
	case ledger.KindConflictRejected:
		return fmt.Sprint(body.Fields)
	}
	return body.Reason
}
