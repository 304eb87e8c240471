package security_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

var (
	oldSecret = []byte("the old secret of this test")
	newSecret = []byte("the new secret of this test")
)

// stages are the rings of the processes in a rotation, as KEYS.md has them.
func stages(t *testing.T) map[string]ledger.Keys {
	t.Helper()
	ring := func(current []byte, others ...[]byte) ledger.Keys {
		keys, err := ledger.NewHMACKeys(current, others...)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	return map[string]ledger.Keys{
		"plain":           {},
		"old, also plain": ring(oldSecret).AlsoSHA256(),
		"old":             ring(oldSecret),
		"old, also new":   ring(oldSecret, newSecret),
		"new, also old":   ring(newSecret, oldSecret),
		"new":             ring(newSecret),
	}
}

// Processes of a rolling deploy race for one key, over and over, singly and in batches: one is accepted, all others are
// replayed to its job, and nobody meets an error.
func TestRotationRaces(t *testing.T) {
	t.Parallel()
	rings := stages(t)
	for _, running := range [][]string{
		{"old", "old, also new"},
		{"old, also new", "new, also old"},
		{"new, also old", "new"},
		{"old", "old, also new", "new, also old"},
		{"old, also new", "new, also old", "new"},
		{"plain", "old, also plain"},
		{"old, also plain", "old"},
	} {
		t.Run(strings.Join(running, " | "), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			var queues []*commands.Queue
			for _, stage := range running {
				for range 2 {
					queues = append(queues, newQueue(t, commands.Config{Pool: ownPool(t, db), Keys: rings[stage]}))
				}
			}
			for range 25 {
				raceForKeys(t, db, queues, 1)
				raceForKeys(t, db, queues, 5)
			}
		})
	}
}

// ownPool is what a process of its own would have.
func ownPool(t *testing.T, db *pgtest.DB) *pgxpool.Pool {
	t.Helper()
	config := db.Pool.Config()
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// raceForKeys lets every queue ask for the same n new keys at once, each in an order of its own.
func raceForKeys(t *testing.T, db *pgtest.DB, queues []*commands.Queue, n int) {
	t.Helper()
	keys := make([]ledger.Key, n)
	for i := range keys {
		keys[i] = ledger.NewKey(uuid.NewString())
	}
	accepted, jobs := make([]int, n), make([]map[uuid.UUID]bool, n)
	for i := range jobs {
		jobs[i] = map[uuid.UUID]bool{}
	}
	before := len(column(t, db.Pool, `select job_id::text from daybook.job`))
	start := make(chan struct{})
	var racers sync.WaitGroup
	var mu sync.Mutex
	for _, queue := range queues {
		order := rand.Perm(n)
		racers.Go(func() {
			<-start
			var results []commands.EnqueueResult
			var err error
			if n == 1 {
				results = make([]commands.EnqueueResult, 1)
				results[0], err = queue.EnqueueWithResult(t.Context(), request(keys[0], 0))
			} else {
				var batch []commands.EnqueueOptions
				for _, i := range order {
					batch = append(batch, request(keys[i], i))
				}
				results, err = queue.EnqueueMany(t.Context(), batch)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("a race showed the caller %v", err)
				return
			}
			for j, result := range results {
				jobs[order[j]][result.JobID] = true
				switch result.Outcome {
				case commands.OutcomeAccepted:
					accepted[order[j]]++
				case commands.OutcomeReplayed:
				default:
					t.Errorf("outcome %s", result.Outcome)
				}
			}
		})
	}
	close(start)
	racers.Wait()
	for i := range keys {
		if accepted[i] != 1 || len(jobs[i]) != 1 {
			t.Errorf("key %d of %d: accepted %d times, jobs %v", i, n, accepted[i], jobs[i])
		}
	}
	if after := len(column(t, db.Pool, `select job_id::text from daybook.job`)); after != before+n {
		t.Errorf("%d jobs for %d keys", after-before, n)
	}
}

// What was bound at one stage is found at every other that shares a secret with it, in whichever order they come.
func TestRotationFindsWhatWasBound(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	rings := stages(t)
	for _, test := range []struct {
		bound    string
		replayed []string
		foreign  []string // those that share no secret: that is why a rotation waits for the longest TTL
	}{
		{"old", []string{"old", "old, also new", "new, also old"}, []string{"new", "plain"}},
		{"old, also new", []string{"old", "old, also new", "new, also old", "new"}, []string{"plain"}},
		{"new, also old", []string{"old", "old, also new", "new, also old", "new"}, nil},
		{"new", []string{"old, also new", "new, also old", "new"}, []string{"old"}},
		{"plain", []string{"plain", "old, also plain"}, []string{"old"}},
		{"old, also plain", []string{"plain", "old", "old, also new", "old, also plain"}, []string{"new"}},
	} {
		db.ResetClock(t)
		key := ledger.NewKey(uuid.NewString())
		ask := func(stage string, n int) commands.EnqueueResult {
			t.Helper()
			result, err := newQueue(t, commands.Config{Pool: db.Pool, Keys: rings[stage]}).Decide(t.Context(), request(key, n))
			if err != nil {
				t.Fatal(err)
			}
			return result
		}
		first := ask(test.bound, 0)
		if first.Outcome != commands.OutcomeAccepted {
			t.Fatalf("bound at %q: %s", test.bound, first.Outcome)
		}
		for _, stage := range test.replayed {
			if got := ask(stage, 0); got.Outcome != commands.OutcomeReplayed || got.JobID != first.JobID {
				t.Errorf("bound at %q, asked at %q: %s", test.bound, stage, got.Outcome)
			}
			if got := ask(stage, 1); got.Outcome != commands.OutcomeConflictRejected || got.JobID != first.JobID {
				t.Errorf("bound at %q, asked for something else at %q: %s", test.bound, stage, got.Outcome)
			}
		}
		if got := column(t, db.Pool, `select count(*)::text from daybook.event where job_id = $1 and kind = 'enqueue.conflict_rejected'`, first.JobID); got[0] != "1" {
			t.Errorf("bound at %q: the same conflict recorded %s times", test.bound, got[0])
		}

		// Once it has expired, the key is free at each stage, and taken with all its rows.
		db.AdvanceClock(t, commands.DefaultTTL)
		last := test.replayed[len(test.replayed)-1]
		again := ask(last, 0)
		if again.Outcome != commands.OutcomeAccepted || again.JobID == first.JobID {
			t.Errorf("bound at %q, expired, asked at %q: %s", test.bound, last, again.Outcome)
		}
		leftovers := column(t, db.Pool, `select count(*)::text from daybook.binding where job_id = $1`, first.JobID)
		expired := column(t, db.Pool, `select count(*)::text from daybook.event where job_id = $1 and kind = 'binding.expired'`, first.JobID)
		if leftovers[0] != "0" || expired[0] != "1" {
			t.Errorf("bound at %q, expired, asked at %q: %s rows left over, %s binding.expired", test.bound, last, leftovers[0], expired[0])
		}
		for _, stage := range test.foreign {
			shared := again.JobID
			if got := ask(stage, 0); got.JobID == first.JobID || (got.Outcome == commands.OutcomeReplayed && got.JobID != shared) {
				t.Errorf("bound at %q, asked at %q: %s of %v", test.bound, stage, got.Outcome, got.JobID)
			}
		}
	}
}

const candidates = 10_000

// Without the secret a dump does not yield to whoever tries every order number; without a secret it does.
func TestDictionaryAgainstADump(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		keys ledger.Keys
		want int
	}{
		"HMAC-SHA-256": {stages(t)["old"], 0},
		"two secrets":  {stages(t)["new, also old"], 0},
		"SHA-256":      {ledger.Keys{}, 50},
		"also SHA-256": {stages(t)["old, also plain"], 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			// Without previews: those give away the first characters, and are meant to.
			queue := newQueue(t, commands.Config{Pool: db.Pool, Keys: test.keys, HidePreviews: true})
			var batch []commands.EnqueueOptions
			for range 50 {
				batch = append(batch, request(ledger.NewKey(orderNumber(rand.IntN(candidates))), 0))
			}
			// Numbers drawn twice are replayed.
			results, err := queue.DecideMany(t.Context(), batch)
			if err != nil {
				t.Fatal(err)
			}
			distinct := map[uuid.UUID]bool{}
			for _, result := range results {
				distinct[result.JobID] = true
			}
			hashes := map[[sha256.Size]byte]bool{}
			for _, hash := range column(t, db.Pool, `
				select encode(key_hash, 'hex') from daybook.binding
				union select encode(key_hash, 'hex') from daybook.event
				union select encode(key_hash, 'hex') from daybook.job`) {
				raw, err := hex.DecodeString(hash)
				if err != nil {
					t.Fatal(err)
				}
				hashes[[sha256.Size]byte(raw)] = true
			}
			if len(hashes) < len(distinct) {
				t.Fatalf("%d hashes of %d keys", len(hashes), len(distinct))
			}
			guessed := 0
			for i := range candidates {
				// Both what Daybook's page says and what somebody would try who has not read it.
				if hashes[plainHash("default", orderNumber(i))] || hashes[sha256.Sum256([]byte(orderNumber(i)))] {
					guessed++
				}
			}
			if want := min(test.want, len(distinct)); guessed != want {
				t.Errorf("%d of %d keys guessed, want %d", guessed, len(distinct), want)
			}
		})
	}
}

func orderNumber(i int) string { return fmt.Sprintf("order-%06d", i) }

// plainHash is KEYS.md by hand.
func plainHash(scope, key string) [sha256.Size]byte {
	in := []byte("daybook.key.v1\x00")
	in = binary.BigEndian.AppendUint32(in, uint32(len(scope)))
	in = append(in, scope...)
	in = binary.BigEndian.AppendUint32(in, uint32(len(key)))
	return sha256.Sum256(append(in, key...))
}
