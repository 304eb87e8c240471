package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// soak is how long each race is run.
func soak(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("DAYBOOK_SOAK")
	if text == "" {
		return 1500 * time.Millisecond
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("DAYBOOK_SOAK: %v", err)
	}
	return d
}

// arena is where a race takes place: everybody works in tight loops on the same few keys, by the real clock.
type arena struct {
	queue *commands.Queue

	mu sync.Mutex
	// outcomes are what callers were told, and accepted which jobs.
	outcomes map[commands.EnqueueOutcome]int
	accepted map[uuid.UUID]bool
	recent   []uuid.UUID
	rounds   map[string]int
}

// racer is one party of a race: it does one thing again and again.
type racer struct {
	name  string
	round func(*arena, *rand.Rand) error
}

// race lets the racers run for as long as DAYBOOK_SOAK says. There must be no error, so no deadlock; afterwards each
// answer must have its event, and the tables must be what the events add up to.
func race(t *testing.T, racers ...racer) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(len(racers)))
	a := &arena{
		queue:    newQueue(t, db.Pool),
		outcomes: map[commands.EnqueueOutcome]int{},
		accepted: map[uuid.UUID]bool{},
		rounds:   map[string]int{},
	}
	// Somebody to begin with, for those who look for a job.
	result, err := a.queue.Decide(context.Background(), idempotent("first", `1`, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	a.tell(result)
	end := time.Now().Add(soak(t))
	var group sync.WaitGroup
	for i, r := range racers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), uint64(end.UnixNano())))
			for time.Now().Before(end) && !t.Failed() {
				if err := r.round(a, random); err != nil && !expected(err) {
					t.Errorf("%s: %v", r.name, err)
					return
				}
				a.mu.Lock()
				a.rounds[r.name]++
				a.mu.Unlock()
			}
		})
	}
	group.Wait()
	t.Logf("rounds %v, outcomes %v", a.rounds, a.outcomes)
	for _, r := range racers {
		if a.rounds[r.name] == 0 {
			t.Errorf("%s did nothing", r.name)
		}
	}

	f := checkLedger(t, db.Pool, "")
	told := map[ledger.Kind]int{ledger.KindAccepted: a.outcomes[commands.OutcomeAccepted], ledger.KindReplaced: a.outcomes[commands.OutcomeReplaced]}
	diff(t, "decisions told and recorded", told, map[ledger.Kind]int{
		ledger.KindAccepted: f.counts[ledger.KindAccepted], ledger.KindReplaced: f.counts[ledger.KindReplaced],
	})
	for _, id := range query[uuid.UUID](t, db.Pool, "select job_id from daybook.event where kind = 'enqueue.accepted'") {
		if !a.accepted[id] {
			t.Errorf("job %s was accepted, and nobody was told", id)
		}
	}
}

// expected are the errors that say that somebody else was faster.
func expected(err error) bool {
	var state *commands.JobStateError
	var owned *commands.KeyOwnedError
	for _, known := range []error{commands.ErrJobNotFound, commands.ErrKeyNotFound, commands.ErrStaleClaim} {
		if errors.Is(err, known) {
			return true
		}
	}
	return errors.As(err, &state) || errors.As(err, &owned)
}

func (a *arena) tell(results ...commands.EnqueueResult) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range results {
		a.outcomes[r.Outcome]++
		if r.Outcome == commands.OutcomeAccepted {
			a.accepted[r.JobID] = true
		}
		a.recent = append(a.recent, r.JobID)
	}
	a.recent = a.recent[max(0, len(a.recent)-20):]
}

// pick is a job that somebody was told of lately.
func (a *arena) pick(random *rand.Rand) uuid.UUID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.recent[random.IntN(len(a.recent))]
}

const arenaKeys = 4

// arenaRequest is any request on one of the arena's keys. Windows are a few milliseconds, so that they end all the time.
func arenaRequest(random *rand.Rand, key int, modes ...commands.Mode) commands.EnqueueOptions {
	name := fmt.Sprint("key ", key)
	payload := fmt.Sprint(random.IntN(2))
	window := time.Duration(1+random.IntN(8)) * time.Millisecond
	var o commands.EnqueueOptions
	switch modes[random.IntN(len(modes))] {
	case commands.ModeIdempotency:
		o = idempotent(name, payload, window)
	case commands.ModeThrottle:
		o = throttled(name, payload, window)
	case commands.ModeDebounce:
		o = debounced(name, payload, commands.Debounce{Window: window, FollowUp: random.IntN(2) == 0})
		if random.IntN(2) == 0 {
			o.Debounce.MaxWait = 10 * time.Millisecond
		}
	default:
		o = work(payload)
	}
	o.AttemptBudget = 1 + random.IntN(3)
	o.RetryPolicy = commands.FixedRetry{Delay: time.Duration(random.IntN(3)) * time.Millisecond}
	return o
}

func asks(modes ...commands.Mode) racer {
	return racer{"enqueue", func(a *arena, random *rand.Rand) error {
		result, err := a.queue.Decide(context.Background(), arenaRequest(random, random.IntN(arenaKeys), modes...))
		if err == nil {
			a.tell(result)
		}
		return err
	}}
}

// asksMany sends batches over all keys, in any order.
func asksMany(modes ...commands.Mode) racer {
	return racer{"enqueue many", func(a *arena, random *rand.Rand) error {
		var batch []commands.EnqueueOptions
		for _, key := range random.Perm(arenaKeys) {
			batch = append(batch, arenaRequest(random, key, modes...))
		}
		results, err := a.queue.DecideMany(context.Background(), batch)
		if err == nil {
			a.tell(results...)
		}
		return err
	}}
}

// works claims jobs, and completes, fails, or forgets them.
func works() racer {
	return racer{"work", func(a *arena, random *rand.Rand) error {
		ctx := context.Background()
		jobs, err := a.queue.ClaimJobs(ctx, commands.ClaimOptions{Worker: "w", Limit: 1 + random.IntN(8), Lease: 5 * time.Millisecond})
		if err != nil || len(jobs) == 0 {
			return err
		}
		all := claims(jobs)
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if _, _, err := a.queue.HeartbeatJobs(ctx, 5*time.Millisecond, all...); err != nil {
			return err
		}
		switch random.IntN(4) {
		case 0:
			_, err := a.queue.FailJob(ctx, all[0], "x")
			return err
		case 1:
			return nil
		}
		_, err = a.queue.CompleteJobs(ctx, all...)
		return err
	}}
}

func runsNow() racer {
	return racer{"run now", func(a *arena, random *rand.Rand) error {
		return a.queue.RunJobNow(context.Background(), a.pick(random), operator)
	}}
}

func cancels() racer {
	return racer{"cancel", func(a *arena, random *rand.Rand) error {
		return a.queue.CancelJob(context.Background(), a.pick(random), operator)
	}}
}

func purges() racer {
	return racer{"purge", func(a *arena, random *rand.Rand) error {
		_, err := a.queue.Purge(context.Background(), "default", operator, fmt.Sprint(random.Uint64()))
		return err
	}}
}

func maintains() racer {
	return racer{"maintain", func(a *arena, random *rand.Rand) error {
		_, err := a.queue.Maintain(context.Background(), commands.MaintainOptions{Retention: -1, BatchSize: 1 + random.IntN(10)})
		return err
	}}
}

func releases() racer {
	return racer{"release key", func(a *arena, random *rand.Rand) error {
		hash, _ := ledger.Keys{}.Hash(commands.DefaultScope, ledger.NewKey(fmt.Sprint("key ", random.IntN(arenaKeys))))
		_, err := a.queue.ReleaseKey(context.Background(), "", hash.Digest(), operator)
		return err
	}}
}

func redrives() racer {
	return racer{"redrive", func(a *arena, random *rand.Rand) error {
		_, _, err := a.queue.RedriveJobs(context.Background(), commands.RedriveOptions{Limit: 1 + random.IntN(5)}, operator, fmt.Sprint(random.IntN(3)))
		return err
	}}
}

var anyMode = []commands.Mode{commands.ModeIdempotency, commands.ModeThrottle, commands.ModeDebounce, ""}

func TestDebounceAgainstRunNow(t *testing.T) {
	d := asks(commands.ModeDebounce)
	race(t, d, d, d, asksMany(commands.ModeDebounce), runsNow(), runsNow(), works())
}

func TestPurgeAgainstEnqueue(t *testing.T) {
	race(t, asks(anyMode...), asks(anyMode...), asksMany(anyMode...), asksMany(commands.ModeDebounce), purges(), purges(), works())
}

func TestMaintenanceAgainstEnqueue(t *testing.T) {
	race(t, asks(anyMode...), asks(anyMode...), asksMany(anyMode...), asksMany(anyMode...), asksMany(anyMode...), maintains(), maintains(), works())
}

func TestCancelAgainstReplacement(t *testing.T) {
	d := asks(commands.ModeDebounce)
	race(t, d, d, d, asksMany(commands.ModeDebounce), cancels(), cancels(), works())
}

// Workers lock several jobs at once, in the order of their ids; batches come to jobs in the order of their keys.
func TestBatchesAgainstWorkers(t *testing.T) {
	race(t, asksMany(commands.ModeDebounce), asksMany(commands.ModeDebounce), asksMany(commands.ModeDebounce), works(), works(), works())
}

func TestEverythingAtOnce(t *testing.T) {
	race(t, slices.Concat(
		[]racer{asks(anyMode...), asks(anyMode...), asksMany(anyMode...), asksMany(anyMode...), works(), works()},
		[]racer{runsNow(), cancels(), purges(), maintains(), releases(), redrives()},
	)...)
}
