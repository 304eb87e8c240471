package jobs_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// The races of race_test.go find deadlocks by chance. Here are the rules that leave no room for any, one by one.

// impatient fails whoever has to wait for a lock that is not given back.
func impatient(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["lock_timeout"] = "300ms" }

// byHash is some keys in the order of their hashes.
func byHash(names ...string) []string {
	hash := func(name string) []byte {
		h, _ := ledger.Keys{}.Hash(commands.DefaultScope, ledger.NewKey(name))
		return h[:]
	}
	slices.SortFunc(names, func(a, b string) int { return slices.Compare(hash(a), hash(b)) })
	return names
}

// A batch that waits for a key holds none above it, whether that key has a binding or is being claimed.
func TestBatchTakesKeysInOrder(t *testing.T) {
	t.Parallel()
	keys := byHash("a", "b", "c", "d")
	for name, bound := range map[string]bool{"bound": true, "being claimed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, patient := newFrozen(t)
			request := func(i int) commands.EnqueueOptions {
				return debounced(keys[i], `1`, commands.Debounce{Window: time.Hour})
			}
			if bound {
				accept(t, patient, request(1))
			}
			holder := begin(t, db.Pool)
			if _, err := patient.DecideTx(t.Context(), holder, request(1)); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := patient.DecideMany(context.Background(), []commands.EnqueueOptions{request(3), request(2), request(1), request(0)})
				done <- err
			}()
			db.WaitBlockedBy(t, pidOf(holder), 1)
			other := newQueue(t, impatientPool(t, db))
			for _, i := range []int{2, 3} {
				tx := begin(t, db.Pool)
				if _, err := other.DecideTx(t.Context(), tx, request(i)); err != nil {
					t.Errorf("a key above the one that is waited for is held: %v", err)
				}
				rollback(t, tx)
			}
			commit(t, holder)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			diff(t, "jobs", int64(4), footprintOf(t, db.Pool).Jobs)
		})
	}
}

func impatientPool(t *testing.T, db *pgtest.DB) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	impatient(config)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A debounced request never waits for a worker that finishes its job: a job that has begun is not locked by it.
func TestBegunJobIsNotLocked(t *testing.T) {
	t.Parallel()
	for _, followUp := range []bool{false, true} {
		db, queue := newFrozen(t, pgtest.PoolConfig(impatient))
		o := debounced("k", `1`, commands.Debounce{Window: time.Hour, FollowUp: followUp})
		o.RunAt = noon
		accept(t, queue, o)
		job := claim(t, queue, 1)[0]
		worker := begin(t, db.Pool)
		if _, err := queue.CompleteJobsTx(t.Context(), worker, job.Claim); err != nil {
			t.Fatal(err)
		}
		want := commands.OutcomeNonReplaceable
		if followUp {
			want = commands.OutcomeAccepted
		}
		wantOutcome(t, decide(t, queue, o), want)
		commit(t, worker)
	}
}

// A replay, and a refusal that is known, wait for nobody: they are decided by what can be read.
func TestReadersWaitForNobody(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t, pgtest.PoolConfig(impatient))
	requests := map[commands.EnqueueOutcome]commands.EnqueueOptions{
		commands.OutcomeReplayed:         idempotent("i", `1`, time.Hour),
		commands.OutcomeCoalesced:        throttled("t", `1`, time.Hour),
		commands.OutcomeConflictRejected: idempotent("t", `1`, time.Hour),
		commands.OutcomeNonReplaceable:   debounced("i", `1`, commands.Debounce{Window: time.Hour}),
	}
	accept(t, queue, requests[commands.OutcomeReplayed])
	accept(t, queue, requests[commands.OutcomeCoalesced])
	for _, o := range requests {
		decide(t, queue, o)
	}
	holder := begin(t, db.Pool)
	for _, table := range []string{"binding", "job"} {
		if _, err := holder.Exec(t.Context(), "select from daybook."+table+" for update"); err != nil {
			t.Fatal(err)
		}
	}
	for want, o := range requests {
		for _, w := range ways() {
			if want == commands.OutcomeConflictRejected && w.name == "EnqueueManyTx" {
				continue
			}
			result, err := w.ask(db, queue, o)
			if err != nil {
				t.Fatalf("%s by %s: %v", want, w.name, err)
			}
			wantOutcome(t, result, want)
		}
	}
}

// An operator who waits while a key goes to another job releases it from that one.
func TestReleaseLooksAgain(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	o := debounced("k", `1`, commands.Debounce{Window: time.Hour, FollowUp: true})
	o.RunAt = noon
	accept(t, queue, o)
	claim(t, queue, 1)
	hash, _ := ledger.Keys{}.Hash(commands.DefaultScope, ledger.NewKey("k"))
	tx := begin(t, db.Pool)
	follow, err := queue.DecideTx(t.Context(), tx, o)
	if err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, follow, commands.OutcomeAccepted)
	released := make(chan uuid.UUID, 1)
	go func() {
		id, err := queue.ReleaseKey(context.Background(), "", hash.Digest(), operator)
		if err != nil {
			t.Error(err)
		}
		released <- id
	}()
	db.WaitBlockedBy(t, pidOf(tx), 1)
	commit(t, tx)
	diff(t, "released from", follow.JobID, <-released)
}
