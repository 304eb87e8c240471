package ledger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

const (
	stressWriters      = 24
	stressTransactions = 60 // of each writer
	stressKeys         = 20
)

// Writers with random delays between drawing an id and committing, rollbacks, xids taken early; two sequencers in each
// other's way, rolled back and killed at random; and two transactions that stay open all the while, one that wrote
// first and commits last, and one in another database of the cluster.
func TestSequenceUnderStress(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(stressWriters+8))
	queue := newQueue(t, db.Pool)

	elsewhere := begin(t, pgtest.New(t, pgtest.Empty()).URL)
	elsewhere.takeXID()
	long := begin(t, db.URL)
	longJob, err := queue.EnqueueTx(t.Context(), long, work("long", 0))
	if err != nil {
		t.Fatal(err)
	}

	s := &stress{t: t, db: db, queue: queue, perKey: make([][]string, stressKeys), times: map[uuid.UUID]interval{}}
	ctx, stop := context.WithCancel(t.Context())
	var sequencers, writers sync.WaitGroup
	for range 2 {
		sequencers.Go(func() { s.sequencer(ctx) })
	}
	sequencers.Go(func() { s.killer(ctx) })
	for range stressWriters {
		writers.Go(s.writer)
	}
	writers.Wait()

	// Both long transactions are still open, and everybody else's events get their positions.
	sequenceUntil(t, db, s.committed.Load())
	stop()
	sequencers.Wait()
	if got := one[int64](t, db.Pool, `select count(*) from daybook.event`); got != s.committed.Load() {
		t.Errorf("%d events committed, %d are there", s.committed.Load(), got)
	}
	if one[int64](t, db.Pool, `select count(*) from daybook.sequencer_gap`) == 0 {
		t.Error("no gap is kept, but the long transaction has an id")
	}
	long.commit()
	if err := elsewhere.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	sequenceUntil(t, db, s.committed.Load()+1)

	s.check(longJob)
	wantGapsForgotten(t, db)
	wantSound(t, db.Pool)
	t.Logf("%d events committed, %d transactions rolled back, %d rounds rolled back, %d sequencers killed",
		s.committed.Load()+1, s.rolledBack.Load(), s.roundsRolledBack.Load(), s.killed.Load())
	if s.rolledBack.Load() == 0 || s.roundsRolledBack.Load() == 0 || s.killed.Load() == 0 {
		t.Error("this run has not tried what it is for")
	}
}

// sequenceUntil sequences until so many events have a position: another sequencer may be at it.
func sequenceUntil(t *testing.T, db *pgtest.DB, want int64) {
	t.Helper()
	pgtest.WaitFor(t, patience, func() bool {
		sequence(t, db.Pool)
		return one[int64](t, db.Pool, `select count(*) from daybook.ledger_order`) == want
	}, "%d events have their positions", want)
}

// interval is when a request that was accepted began and when its commit had returned.
type interval struct{ began, committed time.Time }

// stress is what the writers know of what they did, to hold against the ledger.
type stress struct {
	t     *testing.T
	db    *pgtest.DB
	queue *commands.Queue

	mu     sync.Mutex
	perKey [][]string // the digests of the requests whose events were committed, in the order of the commits
	times  map[uuid.UUID]interval

	committed, rolledBack, roundsRolledBack, killed atomic.Int64
}

func (s *stress) writer() {
	for i := range stressTransactions {
		if err := s.transaction(i); err != nil {
			s.t.Errorf("writer: %v", err)
			return
		}
	}
}

// pause is mostly short and sometimes long, so that commits overtake one another.
func pause() { time.Sleep(time.Duration(rand.ExpFloat64() * float64(4*time.Millisecond))) }

func (s *stress) transaction(i int) error {
	ctx := context.Background()
	tx, err := s.db.Pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if i%3 == 0 { // the xid early, the id late
		if _, err := tx.Exec(ctx, `select pg_current_xact_id()`); err != nil {
			return err
		}
		pause()
	}
	events, fresh, began := 0, []uuid.UUID(nil), time.Now()
	if i%4 == 0 {
		batch := []commands.EnqueueOptions{work(uuid.NewString(), i), {Type: "keyless"}, work(uuid.NewString(), i)}
		results, err := s.queue.EnqueueManyTx(ctx, tx, batch)
		if err != nil {
			return err
		}
		for _, r := range results {
			fresh = append(fresh, r.JobID)
		}
		events += len(results)
	}
	// Requests under one of a few keys, each unlike any other: the first is accepted and every other a conflict, so
	// each appends an event, under the lock of the binding.
	n := rand.IntN(stressKeys)
	key, digest, err := s.contend(ctx, tx, n)
	if err != nil {
		return err
	}
	events++
	pause()
	if rand.IntN(12) == 0 {
		s.rolledBack.Add(1)
		return tx.Rollback(ctx)
	}
	// The lock is still held, so whoever comes next under this key appends after this.
	s.mu.Lock()
	s.perKey[key] = append(s.perKey[key], digest)
	s.mu.Unlock()
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	s.committed.Add(int64(events))
	done := time.Now()
	s.mu.Lock()
	for _, job := range fresh {
		s.times[job] = interval{began, done}
	}
	s.mu.Unlock()
	return nil
}

func (s *stress) contend(ctx context.Context, tx pgx.Tx, n int) (key int, digest string, err error) {
	result, err := s.queue.DecideTx(ctx, tx, work(fmt.Sprint("contended ", n), rand.IntN(math.MaxInt32)))
	if err != nil {
		return 0, "", err
	}
	if result.Conflict != nil {
		return n, result.Conflict.RequestDigest.String(), nil
	}
	err = tx.QueryRow(ctx, `select encode(b.request_digest, 'hex') from daybook.binding as b where b.job_id = $1`, result.JobID).Scan(&digest)
	return n, digest, err
}

// sequencer runs rounds of any size on connections that may be killed under it, and rolls some back.
func (s *stress) sequencer(ctx context.Context) {
	config := s.db.Pool.Config()
	config.MaxConns = 1
	config.ConnConfig.RuntimeParams["application_name"] = "stressed sequencer"
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer pool.Close()
	for ctx.Err() == nil {
		tx, err := pool.Begin(ctx)
		if err != nil {
			continue // killed while idle
		}
		var n *int
		err = tx.QueryRow(ctx, `select sequenced from daybook.sequence($1)`, 1+rand.IntN(300)).Scan(&n)
		if err == nil && rand.IntN(3) == 0 {
			pause()
		}
		if err == nil && rand.IntN(8) == 0 {
			s.roundsRolledBack.Add(1)
			_ = tx.Rollback(ctx)
			continue
		}
		_ = tx.Commit(context.Background()) // or it was killed
	}
}

// killer ends one of the sequencers' connections, whatever it is doing.
func (s *stress) killer(ctx context.Context) {
	for ctx.Err() == nil {
		var n int64
		err := s.db.Pool.QueryRow(ctx, `
			select count(*) filter (where pg_terminate_backend(pid))
			from (
				select pid
				from pg_stat_activity
				where datname = current_database() and application_name = 'stressed sequencer' and state <> 'idle'
				order by random()
				limit 1
			) as victim`).Scan(&n)
		if err != nil && ctx.Err() == nil {
			s.t.Errorf("killer: %v", err)
			return
		}
		s.killed.Add(n)
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// check holds the order of the ledger against what the writers know.
func (s *stress) check(longJob uuid.UUID) {
	t := s.t
	perKey := map[ledger.KeyDigest][]string{}
	var began, committed []time.Time // in the order of the ledger
	last := ledger.Position(0)
	for event, err := range ledger.All(t.Context(), s.db.Pool, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Position != last+1 {
			t.Fatalf("position %d after %d", event.Position, last)
		}
		last = event.Position
		var body struct {
			RequestDigest string `json:"request_digest"`
		}
		if err := json.Unmarshal(event.Body, &body); err != nil {
			t.Fatal(err)
		}
		perKey[event.KeyDigest()] = append(perKey[event.KeyDigest()], body.RequestDigest)
		if times, ok := s.times[event.JobID]; ok && event.Kind == ledger.KindAccepted {
			began, committed = append(began, times.began), append(committed, times.committed)
		}
		if event.JobID == longJob && int64(last) != s.committed.Load()+1 {
			t.Errorf("the one that committed last is at %d", last)
		}
	}
	for i, want := range s.perKey {
		hash, _ := ledger.Keys{}.Hash(commands.DefaultScope, ledger.NewKey(fmt.Sprint("contended ", i)))
		if got := perKey[hash.Digest()]; !slices.Equal(want, got) {
			t.Errorf("key %d: %d events in another order than that of their %d commits", i, len(got), len(want))
		}
	}
	// What had committed before something else began stands before it, whatever their keys.
	inversions, earliest := 0, time.Now()
	for i := len(began) - 1; i >= 0; i-- {
		if earliest.Before(began[i]) {
			inversions++
		}
		if committed[i].Before(earliest) {
			earliest = committed[i]
		}
	}
	if inversions != 0 || len(began) == 0 {
		t.Errorf("%d inversions among %d events", inversions, len(began))
	}
}
