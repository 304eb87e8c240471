package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// One pass loops until nothing is left, however small its batches are; and a pass with nothing to do does nothing.
func TestMaintainLoops(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	const keys = 25
	var requests []commands.EnqueueOptions
	for i := range keys {
		requests = append(requests, idempotent(fmt.Sprint(i), `1`, time.Minute))
	}
	requests = append(requests, idempotent("live", `1`, time.Hour))
	if _, err := queue.EnqueueMany(t.Context(), requests); err != nil {
		t.Fatal(err)
	}
	complete(t, queue, claim(t, queue, 20)...)
	claim(t, queue, 6)
	db.FreezeClock(t, noon.Add(time.Minute-time.Microsecond))
	diff(t, "too early", commands.Maintained{}, maintain(t, queue, commands.MaintainOptions{BatchSize: 4}))
	db.FreezeClock(t, noon.Add(time.Minute))
	want := commands.Maintained{ExpiredBindings: keys, ExpiredLeases: 6}
	diff(t, "first pass", want, maintain(t, queue, commands.MaintainOptions{BatchSize: 4}))
	diff(t, "events", int64(keys), query1[int64](t, db.Pool, "select count(*) from daybook.event where kind = 'binding.expired'"))
	diff(t, "second pass", commands.Maintained{}, maintain(t, queue, commands.MaintainOptions{BatchSize: 4}))
	diff(t, "bindings left", int64(1), footprintOf(t, db.Pool).Bindings)

	// Retention counts from when a job was finished.
	db.FreezeClock(t, noon.Add(time.Hour-time.Microsecond))
	diff(t, "too early", commands.Maintained{}, maintain(t, queue, commands.MaintainOptions{BatchSize: 3, Retention: time.Hour}))
	db.FreezeClock(t, noon.Add(time.Hour))
	// One of them is the live key's, which ends at the same moment.
	got := maintain(t, queue, commands.MaintainOptions{BatchSize: 3, Retention: time.Hour})
	diff(t, "after retention", commands.Maintained{ExpiredBindings: 1, PrunedJobs: 20}, got)
	diff(t, "jobs left", int64(6), footprintOf(t, db.Pool).Jobs)
	for field, options := range map[string]commands.MaintainOptions{
		"batch_size": {BatchSize: 10_001},
		"retention":  {Retention: 3651 * 24 * time.Hour},
	} {
		_, err := queue.Maintain(t.Context(), options)
		wantInvalid(t, err, field)
	}
}

// binding.expired says whose it was and until when.
func TestMaintainAudits(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	id := accept(t, queue, throttled("a long enough key", `1`, time.Minute)).JobID
	db.AdvanceClock(t, time.Hour)
	maintain(t, queue, commands.MaintainOptions{})
	body := lastBody(t, db.Pool, ledger.KindBindingExpired)
	digest := body["key_digest"]
	diff(t, "binding.expired", map[string]any{
		"v": 1.0, "job_id": id.String(), "mode": "throttle", "scope": "default", "key_digest": digest, "key_preview": "a lon…",
		"bound_at": rfc(noon), "expires_at": rfc(noon.Add(time.Minute)),
	}, body)
	diff(t, "recorded at", noon.Add(time.Hour), query1[time.Time](t, db.Pool,
		"select recorded_at from daybook.event where kind = 'binding.expired'").UTC())
}

// Whatever somebody holds is passed over, never waited for, and taken by the next pass.
func TestMaintainPassesOver(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	const keys = 20
	for i := range keys {
		o := idempotent(fmt.Sprint(i), `1`, time.Minute)
		o.AttemptBudget = 1
		accept(t, queue, o)
		db.AdvanceClock(t, time.Millisecond) // which orders their IDs
	}
	complete(t, queue, claim(t, queue, keys-2)...)
	claim(t, queue, 2)
	db.AdvanceClock(t, time.Hour)
	// Two bindings, two finished jobs and one leased job are held.
	tx := begin(t, db.Pool)
	for _, statement := range []string{
		"select from daybook.binding order by expires_at limit 2 for update",
		"select from daybook.job where state = 'succeeded' order by finished_at, job_id desc limit 2 for update",
		"select from daybook.job where state = 'active' limit 1 for update",
	} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan commands.Maintained, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		got, err := queue.Maintain(ctx, commands.MaintainOptions{BatchSize: 5, Retention: -1})
		if err != nil {
			t.Error(err)
		}
		done <- got
	}()
	first := <-done
	// 18 finished jobs, and the one whose last lease has run out; the two held, and the two whose bindings are held, stay.
	diff(t, "while they are held", commands.Maintained{ExpiredBindings: keys - 2, ExpiredLeases: 1, PrunedJobs: 15}, first)
	rollback(t, tx)
	diff(t, "afterwards", commands.Maintained{ExpiredBindings: 2, ExpiredLeases: 1, PrunedJobs: 5},
		maintain(t, queue, commands.MaintainOptions{BatchSize: 5, Retention: -1}))
	diff(t, "left", footprint{Events: int64(keys + keys + keys - 2 + 4 + keys)}, footprintOf(t, db.Pool))
}

// A page of jobs that live keys pin never hides those behind it.
func TestPinnedJobsHideNothing(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	const pinned, free = 12, 5
	for i := range pinned {
		accept(t, queue, idempotent(fmt.Sprint(i), `1`, 24*time.Hour))
	}
	complete(t, queue, claim(t, queue, pinned)...)
	db.AdvanceClock(t, time.Second)
	for range free {
		accept(t, queue, work(`1`))
	}
	complete(t, queue, claim(t, queue, free)...)
	db.AdvanceClock(t, time.Second)
	diff(t, "pruned", commands.Maintained{PrunedJobs: free}, maintain(t, queue, commands.MaintainOptions{BatchSize: 3, Retention: -1}))
	// A pinned job is what a replay returns.
	wantOutcome(t, decide(t, queue, idempotent("0", `1`, 24*time.Hour)), commands.OutcomeReplayed)
	diff(t, "jobs left", int64(pinned), footprintOf(t, db.Pool).Jobs)
}

// Neither do debounced keys whose jobs wait: they are kept, and those behind them go.
func TestWaitingDebouncesHideNothing(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	for i := range 7 {
		accept(t, queue, debounced(fmt.Sprint("waits", i), `1`, commands.Debounce{Window: time.Second}))
	}
	begun := debounced("begun", `1`, commands.Debounce{Window: 2 * time.Second})
	begun.Queue = "begun"
	accept(t, queue, begun)
	accept(t, queue, throttled("t", `1`, 3*time.Second))
	db.AdvanceClock(t, time.Minute)
	fail(t, queue, claimFrom(t, queue, "begun", 1)[0])
	diff(t, "expired", commands.Maintained{ExpiredBindings: 2}, maintain(t, queue, commands.MaintainOptions{BatchSize: 2}))
	diff(t, "kept", int64(7), query1[int64](t, db.Pool, "select count(*) from daybook.binding where mode = 'debounce'"))
	claim(t, queue, 8)
	diff(t, "expired", commands.Maintained{ExpiredBindings: 7}, maintain(t, queue, commands.MaintainOptions{BatchSize: 2}))
}

// An expired binding never keeps its job from being pruned, whether or not its own turn has come.
func TestExpiredBindingKeepsNoJob(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	id := accept(t, queue, idempotent("k", `1`, time.Minute)).JobID
	complete(t, queue, claim(t, queue, 1)...)
	const prune = "select p.pruned from daybook.prune_jobs(0, null, null, 10) as p"
	db.FreezeClock(t, noon.Add(time.Minute-time.Microsecond))
	diff(t, "pruned while bound", int32(0), query1[int32](t, db.Pool, prune))
	db.FreezeClock(t, noon.Add(time.Minute))
	diff(t, "pruned", int32(1), query1[int32](t, db.Pool, prune))
	diff(t, "left", footprint{Events: 4}, footprintOf(t, db.Pool))
	wantKinds(t, db.Pool, []ledger.Kind{
		ledger.KindAccepted, ledger.KindJobStarted, ledger.KindJobSucceeded, ledger.KindBindingExpired,
	}, id)
}

// The rows under other secrets and the refusals of a key go with its binding.
func TestMaintainTakesAliasesAndRefusals(t *testing.T) {
	t.Parallel()
	db, _ := newFrozen(t)
	keys, err := ledger.NewHMACKeys([]byte(strings.Repeat("1", 32)), []byte(strings.Repeat("2", 32)))
	if err != nil {
		t.Fatal(err)
	}
	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		accept(t, queue, idempotent(fmt.Sprint(i), `1`, time.Minute))
		wantOutcome(t, decide(t, queue, idempotent(fmt.Sprint(i), `2`, time.Minute)), commands.OutcomeConflictRejected)
	}
	diff(t, "before", footprint{Jobs: 3, Bindings: 6, Rejections: 3, Events: 6}, footprintOf(t, db.Pool))
	db.AdvanceClock(t, time.Minute)
	diff(t, "expired", commands.Maintained{ExpiredBindings: 3}, maintain(t, queue, commands.MaintainOptions{BatchSize: 2}))
	diff(t, "after", footprint{Jobs: 3, Events: 9}, footprintOf(t, db.Pool))
}

// Fifty thousand expired bindings go in one call while writers enqueue: no error, nobody waits for a lock of the other
// for as long as 5 s, and no new key is lost.
func TestMaintainKeepsPaceWithIngress(t *testing.T) {
	t.Parallel()
	// Whoever waits 5 s for another's lock fails. A new key waits for nobody's binding, but while the tables grow it may wait
	// for room, which on a busy machine takes longer than the fraction of a second that a batch does.
	db := pgtest.New(t, pgtest.MaxConns(12), pgtest.PoolConfig(func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["lock_timeout"] = "5s"
	}))
	queue := newQueue(t, db.Pool)
	const backlog, writers = 50_000, 8
	db.Exec(t, `
		insert into daybook.binding (key_hash, job_id, bound_at, expires_at, window_ms, mode, scope, key_preview, request_digest)
		select sha256(int4send(i)), gen_random_uuid(), now() - interval '2 days', now() - interval '1 day', 86400000, 'idempotency',
			'old', '…', '\x00'
		from generate_series(1, $1) as i`, backlog)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	counts := make([]int, writers)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				// Half of them expire while maintenance is at it.
				o := idempotent(fmt.Sprintf("new %d %d", w, i), `1`, map[bool]time.Duration{true: time.Millisecond, false: time.Hour}[i%2 == 0])
				if _, err := queue.Enqueue(context.Background(), o); err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
				counts[w]++
			}
		})
	}
	pgtest.WaitFor(t, time.Minute, func() bool {
		return query1[int64](t, db.Pool, "select count(*) from daybook.job") > writers
	}, "the writers do not write")
	done, err := queue.Maintain(context.Background(), commands.MaintainOptions{})
	stop()
	group.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if done.ExpiredBindings < backlog {
		t.Errorf("%d bindings removed in one call, want the backlog of %d at least", done.ExpiredBindings, backlog)
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	diff(t, "old bindings left", int64(0), query1[int64](t, db.Pool, "select count(*) from daybook.binding where scope = 'old'"))
	diff(t, "jobs", int64(total), query1[int64](t, db.Pool, "select count(*) from daybook.job"))
	diff(t, "events", int64(backlog), query1[int64](t, db.Pool, "select count(*) from daybook.event where kind = 'binding.expired' and scope = 'old'"))
	t.Logf("%d enqueued by %d writers meanwhile", total, writers)
	checkLedger(t, db.Pool, "default")
}
