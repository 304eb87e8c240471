package verify_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// shop does everything that can be done to keys and jobs, at random, on a few keys and queues, so that its doings meet.
type shop struct {
	t      testing.TB
	db     *pgtest.DB
	queues []*commands.Queue // of one ring of secrets each, all of which share one

	did   sync.Map // how often what was done, *atomic.Int64 by name
	purge atomic.Int64
}

var act = commands.Act{Actor: "somebody", Reason: "the test asks for it"}

func newShop(t testing.TB, db *pgtest.DB) *shop {
	t.Helper()
	// A rotation under way: some processes bind with the new secret current, some with the old one.
	old, fresh := []byte("0123456789abcdef-old"), []byte("0123456789abcdef-new")
	var queues []*commands.Queue
	for _, ring := range [][2][]byte{{old, fresh}, {fresh, old}} {
		keys, err := ledger.NewHMACKeys(ring[0], ring[1])
		if err != nil {
			t.Fatal(err)
		}
		queues = append(queues, newQueue(t, db.Pool, keys))
	}
	return &shop{t: t, db: db, queues: queues}
}

func (s *shop) count(what string) {
	n, _ := s.did.LoadOrStore(what, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

func (s *shop) counted(what string) int64 {
	n, ok := s.did.Load(what)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

func (s *shop) queue() *commands.Queue { return s.queues[rand.IntN(len(s.queues))] }

func (s *shop) name() string { return fmt.Sprintf("queue-%d", rand.IntN(3)) }

// request is a request for anything.
func (s *shop) request() commands.EnqueueOptions {
	if rand.IntN(3) == 0 {
		// One of a few that are asked for again and again, just so.
		n := rand.IntN(8)
		key := ledger.NewKey(fmt.Sprintf("a-key-that-comes-again-%d", n))
		if n%2 == 0 {
			return commands.EnqueueOptions{Type: "again", Idempotency: &commands.Idempotency{Key: key, TTL: 200 * time.Millisecond}}
		}
		return commands.EnqueueOptions{Type: "again", Throttle: &commands.Throttle{Key: key, Window: 200 * time.Millisecond}}
	}
	o := commands.EnqueueOptions{
		Type: fmt.Sprintf("type-%d", rand.IntN(3)), Queue: s.name(), Priority: rand.IntN(3),
		Payload: map[string]any{"n": rand.IntN(2), "text": "a é \u2028"}, AttemptBudget: 1 + rand.IntN(3),
	}
	if rand.IntN(3) == 0 {
		o.Tags = []string{"one", `t"wo`}
		o.RetryPolicy = commands.FixedRetry{Delay: time.Duration(rand.IntN(2)) * time.Millisecond}
		o.ConcurrencyKey = "a key"
		o.ExecutionTimeout = time.Minute
		o.Deadline = time.Now().Add(time.Hour)
	}
	key := ledger.NewKey(fmt.Sprintf("a-key-that-is-long-enough-%d", rand.IntN(30)))
	window := time.Duration(1+rand.IntN(400)) * time.Millisecond
	switch rand.IntN(6) {
	case 0, 1:
		o.Idempotency = &commands.Idempotency{Key: key, TTL: window}
	case 2:
		o.Throttle = &commands.Throttle{Key: key, Window: window}
	case 3, 4:
		o.Debounce = &commands.Debounce{Key: key, Window: window, FollowUp: rand.IntN(2) == 0}
	}
	if o.Debounce == nil && rand.IntN(4) == 0 {
		o.RunAt = time.Now().Add(time.Duration(rand.IntN(300)) * time.Millisecond)
	}
	return o
}

// do does one thing.
func (s *shop) do(ctx context.Context) error {
	queue := s.queue()
	switch dice := rand.IntN(40); {
	case dice < 16:
		result, err := queue.Decide(ctx, s.request())
		s.count(string(result.Outcome))
		return err
	case dice < 20:
		var batch []commands.EnqueueOptions
		for range 1 + rand.IntN(6) {
			batch = append(batch, s.request())
		}
		_, err := queue.DecideMany(ctx, batch)
		s.count("batch")
		return err
	case dice < 30:
		return s.work(ctx, queue)
	case dice < 32:
		_, err := queue.Maintain(ctx, commands.MaintainOptions{Retention: time.Second})
		s.count("maintained")
		return err
	case dice < 33:
		_, err := queue.Purge(ctx, s.name(), act, fmt.Sprint("purge ", s.purge.Add(1)))
		s.count("purged")
		return err
	}
	return s.operate(ctx, queue)
}

// work claims jobs, and brings them to whatever end, or to none.
func (s *shop) work(ctx context.Context, queue *commands.Queue) error {
	claimed, err := queue.ClaimJobs(ctx, commands.ClaimOptions{
		Queue: s.name(), Worker: "worker", Limit: 1 + rand.IntN(4), Lease: time.Duration(1+rand.IntN(50)) * time.Millisecond,
	})
	if err != nil {
		return err
	}
	for _, job := range claimed {
		s.count("claimed")
		switch rand.IntN(5) {
		case 0: // its lease runs out
			continue
		case 1, 2:
			_, err = queue.FailJob(ctx, job.Claim, "it broke")
		default:
			_, err = queue.CompleteJobs(ctx, job.Claim)
		}
		if err != nil && !errors.Is(err, commands.ErrStaleClaim) {
			return err
		}
	}
	return nil
}

// operate does to a job or a key what an operator may.
func (s *shop) operate(ctx context.Context, queue *commands.Queue) error {
	var job [16]byte
	err := s.db.Pool.QueryRow(ctx, `
		select j.job_id
		from daybook.job as j
		where j.state = any ($1)
		order by random()
		limit 1`, [][]string{{"failed"}, {"scheduled", "ready"}, {"active", "ready"}}[rand.IntN(3)]).Scan(&job)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	switch rand.IntN(4) {
	case 0:
		err = queue.CancelJob(ctx, job, act)
		s.count("cancelled")
	case 1:
		err = queue.RunJobNow(ctx, job, act)
		s.count("run now")
	case 2:
		_, _, err = queue.RedriveJob(ctx, job, act, fmt.Sprint("redrive ", rand.IntN(2)))
		s.count("redriven")
	default:
		var digest, scope string
		err = s.db.Pool.QueryRow(ctx, `
			select left(encode(b.key_hash, 'hex'), 12), b.scope
			from daybook.binding as b
			order by random()
			limit 1`).Scan(&digest, &scope)
		if err == nil {
			_, err = queue.ReleaseKey(ctx, scope, ledger.KeyDigest(digest), act)
			s.count("released")
		}
	}
	var state *commands.JobStateError
	var owned *commands.KeyOwnedError
	switch {
	case errors.As(err, &state), errors.As(err, &owned), errors.Is(err, pgx.ErrNoRows):
		return nil
	case errors.Is(err, commands.ErrJobNotFound), errors.Is(err, commands.ErrKeyNotFound):
		return nil
	}
	return err
}

// tryOnce does one thing that may lose a race.
func (s *shop) tryOnce(ctx context.Context) {
	if err := s.do(ctx); err != nil && !commands.Retryable(err) && ctx.Err() == nil {
		s.t.Errorf("%v", err)
	}
}

// A ledger on which everything is done at once has no differences, whenever one looks; and everything is done.
func TestBusyLedgerIsSound(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(24))
	s := newShop(t, db)
	group := builtinGroup(t)
	const writers, each = 6, 250
	relay := db.AsRole(t, "daybook_relay")
	looks := 0
	for range rounds(t, 1) {
		ctx, stop := context.WithCancel(t.Context())
		var writing, folding sync.WaitGroup
		for range writers {
			writing.Go(func() {
				for range each {
					s.tryOnce(ctx)
				}
			})
		}
		folding.Go(func() {
			for ctx.Err() == nil {
				if _, err := group.CatchUp(ctx, db.Pool, 500); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
		written := make(chan struct{})
		go func() {
			writing.Wait()
			close(written)
		}()
		for done := false; !done; looks++ {
			wantSound(t, relay)
			for _, p := range projections.Builtin() {
				report, err := projections.Verify(t.Context(), db.Pool, p)
				if err != nil || !report.OK {
					t.Errorf("%+v, %v", report, err)
				}
			}
			select {
			case <-written:
				done = true
			default:
			}
		}
		stop()
		folding.Wait()
		sequence(t, db.Pool)
		wantSound(t, db.Pool)
	}
	t.Logf("looked %d times, at up to %d events", looks, one[int64](t, db.Pool, `select count(*) from daybook.event`))
	for _, what := range []string{
		"accepted", "replayed", "replaced", "non_replaceable", "coalesced", "conflict_rejected", "batch", "claimed", "maintained",
		"purged", "cancelled", "run now", "redriven", "released",
	} {
		if s.counted(what) == 0 {
			t.Errorf("nothing was ever %s, so this shows little", what)
		}
	}
	// Each kind of event was folded.
	for _, kind := range []ledger.Kind{
		ledger.KindAccepted, ledger.KindReplaced, ledger.KindBindingExpired, ledger.KindBindingReleased, ledger.KindJobStarted,
		ledger.KindJobSucceeded, ledger.KindJobAttemptFailed, ledger.KindJobFailed, ledger.KindJobLeaseExpired,
		ledger.KindJobCancelled, ledger.KindJobPurged, ledger.KindJobReleased, ledger.KindJobRedriven,
	} {
		if one[int64](t, db.Pool, `select count(*) from daybook.event where kind = $1`, string(kind)) == 0 {
			t.Errorf("no event %s", kind)
		}
	}
}

func builtinGroup(t testing.TB) *projections.Group {
	t.Helper()
	var runners []*projections.Runner
	for _, p := range projections.Builtin() {
		runner, err := projections.NewRunner(p, projections.RunnerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		runners = append(runners, runner)
	}
	group, err := projections.NewGroup(runners...)
	if err != nil {
		t.Fatal(err)
	}
	return group
}
