package jobs_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// Each check makes a database, and each step reads all of it: rapid's own hundred checks would take a minute. More with
// DAYBOOK_SOAK, or with -rapid.checks, which comes after this. Failures are shrunk and printed; no file is left.
var _ = setFlags(map[string]string{"rapid.checks": "20", "rapid.steps": "40", "rapid.nofailfile": "true", "rapid.shrinktime": "20s"})

func setFlags(values map[string]string) error {
	for name, value := range values {
		if err := flag.Set(name, value); err != nil {
			return err
		}
	}
	return nil
}

// check runs a property, and for as long as DAYBOOK_SOAK says again.
func check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	end := time.Now().Add(soak(t))
	for again := true; again && !t.Failed(); again = soak(t) >= 10*time.Second && time.Now().Before(end) {
		rapid.Check(t, property)
	}
}

// anyRequest is a request with everything that matters for a decision in it. Every third one was made before.
func (s *system) anyRequest(t *rapid.T) asked {
	if len(s.asked) > 0 && rapid.IntRange(0, 2).Draw(t, "again") == 0 {
		return rapid.SampledFrom(s.asked[max(0, len(s.asked)-6):]).Draw(t, "request")
	}
	mostly := func(label string) bool { return rapid.IntRange(0, 3).Draw(t, label) > 0 }
	second := func(label string, from, to int) time.Duration {
		return time.Duration(rapid.IntRange(from, to).Draw(t, label)) * time.Second
	}
	a := asked{
		Key:     rapid.SampledFrom([]int{1, 1, 1, 1, 2, modelKeys, 0}).Draw(t, "key"),
		Payload: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "payload"),
		Queue:   "a",
		Budget:  rapid.IntRange(1, 2).Draw(t, "budget"),
		Retry:   second("retry", 0, 1),
	}
	if !mostly("queue") {
		a.Queue = "b"
	}
	if !mostly("priority") {
		a.Priority = 1
	}
	now := s.model.now.Truncate(time.Second)
	if !mostly("run at") {
		runAt := now + second("run at", -1, 2)
		a.RunAt = &runAt
	}
	if !mostly("deadline") {
		// One that is not after the run time is refused before any SQL.
		deadline := now + second("deadline", 0, 4)
		if a.RunAt == nil || deadline > *a.RunAt {
			a.Deadline = &deadline
		}
	}
	if a.Key == 0 {
		return a
	}
	// Each key has a mode that it is mostly used in.
	modes := []commands.Mode{commands.ModeDebounce, commands.ModeIdempotency, commands.ModeThrottle}
	a.Mode = modes[a.Key-1]
	if rapid.IntRange(0, 5).Draw(t, "other mode") == 0 {
		a.Mode = rapid.SampledFrom(modes).Draw(t, "mode")
	}
	a.Window = second("window", 1, 2)
	if a.Mode == commands.ModeDebounce {
		a.MaxWait = second("max wait", 0, 3)
		a.Preserve = !mostly("preserve")
		a.FollowUp = rapid.Bool().Draw(t, "follow-up")
	}
	return a
}

// anyJob is a job that was accepted some time, whatever became of it, or one that never was.
func (s *system) anyJob(t *rapid.T) uuid.UUID {
	n := rapid.IntRange(max(0, s.model.next-5), s.model.next).Draw(t, "job")
	if id, ok := s.model.uuids[n]; ok {
		return id
	}
	return uuid.Nil
}

func (s *system) anyClaim(t *rapid.T) commands.Claim {
	if len(s.held) == 0 {
		t.Skip("nothing was claimed")
	}
	return rapid.SampledFrom(s.held[max(0, len(s.held)-5):]).Draw(t, "claim")
}

func digestOf(key int) ledger.KeyDigest {
	hash, _ := ledger.Keys{}.Hash(commands.DefaultScope, keyOf(key))
	return hash.Digest()
}

// Random requests of all modes, alone and in batches, transitions, clock moves and rollbacks: after each step the
// database is what the model says, state, outcomes, reasons and events.
func TestModel(t *testing.T) {
	t.Parallel()
	check(t, func(t *rapid.T) {
		s := newSystem(t)
		defer s.close(t)
		enqueue := func(t *rapid.T) { s.enqueue(t, s.anyRequest(t)) }
		work := func(t *rapid.T) { s.work(t) }
		t.Repeat(map[string]func(*rapid.T){
			"":                func(t *rapid.T) { s.check(t) },
			"enqueue":         enqueue,
			"enqueue more":    enqueue,
			"enqueue more, 2": enqueue,
			"enqueue many": func(t *rapid.T) {
				batch := make([]asked, rapid.IntRange(1, 6).Draw(t, "size"))
				for i := range batch {
					batch[i] = s.anyRequest(t)
				}
				s.enqueueMany(t, batch, rapid.Bool().Draw(t, "all or nothing"))
			},
			"work":      work,
			"work more": work,
			"operate":   func(t *rapid.T) { s.operateAny(t) },
			"clock": func(t *rapid.T) {
				s.advance(t, rapid.SampledFrom([]time.Duration{
					time.Microsecond, 500 * time.Millisecond, time.Second - time.Microsecond, time.Second, 2 * time.Second,
				}).Draw(t, "by"))
			},
			"transaction": func(t *rapid.T) {
				switch {
				case s.tx == nil:
					s.begin(t)
				case rapid.Bool().Draw(t, "commit"):
					s.commit(t)
				default:
					s.rollback(t)
				}
			},
		})
	})
}

// work is what a worker does.
func (s *system) work(t *rapid.T) {
	what := rapid.SampledFrom([]string{"claim", "claim", "claim", "complete", "complete many", "fail", "fail", "heartbeat"}).Draw(t, "work")
	// What has no twin in a caller's transaction would wait for the one that is open.
	switch {
	case what == "claim" && s.tx == nil:
		s.claim(t, rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "queue"), rapid.IntRange(1, 3).Draw(t, "limit"))
	case what == "heartbeat" && s.tx == nil:
		s.heartbeat(t, s.anyClaim(t), s.anyClaim(t))
	case what == "complete":
		s.complete(t, s.anyClaim(t))
	case what == "complete many":
		s.completeMany(t, s.anyClaim(t), s.anyClaim(t))
	default:
		s.fail(t, s.anyClaim(t))
	}
}

// operateAny is what an operator does, and upkeep.
func (s *system) operateAny(t *rapid.T) {
	do := []string{"cancel", "run now", "run now", "release key", "redrive", "redrive"}
	if s.tx == nil {
		do = append(do, "purge", "maintain", "maintain", "maintain")
	}
	switch rapid.SampledFrom(do).Draw(t, "operate") {
	case "cancel":
		s.cancel(t, s.anyJob(t))
	case "run now":
		s.runNow(t, s.anyJob(t))
	case "release key":
		s.release(t, rapid.IntRange(1, modelKeys).Draw(t, "key"))
	case "redrive":
		s.redrive(t, s.anyJob(t), rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "request"))
	case "purge":
		s.purges++
		s.purge(t, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue"), fmt.Sprint("purge ", s.purges))
	case "maintain":
		retention := rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "retention")
		s.maintain(t, retention, rapid.IntRange(1, 3).Draw(t, "batch"))
	}
}

// completeMany leaves out a claim that is there twice: of two equal ones both are told that they did it.
func (s *system) completeMany(t fataler, claims ...commands.Claim) {
	slices.SortFunc(claims, func(a, b commands.Claim) int { return int(a.Fence - b.Fence) })
	s.complete(t, slices.Compact(claims)...)
}

// Single calls, batches of one, and batches cut anywhere give the same answers and leave the same behind: each is
// compared with the model, and so with the others.
func TestSplitting(t *testing.T) {
	t.Parallel()
	check(t, func(t *rapid.T) {
		systems := []*system{newSystem(t), newSystem(t), newSystem(t)}
		for _, s := range systems {
			defer s.close(t)
		}
		for range rapid.IntRange(1, 2).Draw(t, "rounds") {
			requests := make([]asked, rapid.IntRange(1, 10).Draw(t, "size"))
			for i := range requests {
				requests[i] = systems[0].anyRequest(t)
				// An invalid request takes its whole batch with it.
				requests[i].Deadline = nil
				systems[0].enqueue(t, requests[i])
				systems[1].enqueueMany(t, requests[i:i+1], false)
			}
			for rest := requests; len(rest) > 0; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
				systems[2].enqueueMany(t, rest[:n], false)
				rest = rest[n:]
			}
			by := time.Duration(rapid.IntRange(0, 2).Draw(t, "seconds")) * time.Second
			for i, s := range systems {
				s.check(t)
				diff(t, fmt.Sprint("what is there, way ", i), systems[0].wanted(), s.wanted())
			}
			for _, s := range systems {
				s.advance(t, by)
				// Jobs that have begun make for other answers.
				s.claim(t, "a", 100)
			}
		}
	})
}
