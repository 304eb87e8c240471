package projections_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// noon is when the stories begin.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// storyteller writes events of every kind that the built-in views know, straight into the event table, as fast as
// PostgreSQL takes them. Its keys come again and again, so that they also recur within a batch.
type storyteller struct {
	random *rand.Rand
	keys   int
	at     time.Time
	jobs   map[int]uuid.UUID // of the keys that are bound
	alive  []*storyJob
}

// storyJob is a job that is not finished, or failed and not redriven.
type storyJob struct {
	id             uuid.UUID
	key            int // -1 where it has none
	attempt        int
	active, failed bool
}

func newStoryteller(seed uint64, keys int) *storyteller {
	return &storyteller{random: rand.New(rand.NewPCG(seed, seed)), keys: keys, at: noon, jobs: map[int]uuid.UUID{}}
}

// hashOf is the hash of a story's key: any 32 bytes will do.
func hashOf(key int) ledger.KeyHash { return sha256.Sum256(fmt.Append(nil, "key ", key)) }

func (s *storyteller) uuid() (id uuid.UUID) {
	for i := range id {
		id[i] = byte(s.random.Uint32())
	}
	return id
}

var eventColumns = []string{"recorded_at", "job_id", "key_hash", "kind", "scope", "key_preview", "body"}

// next returns one event as a row.
func (s *storyteller) next() []any {
	s.at = s.at.Add(time.Duration(s.random.IntN(700)) * time.Millisecond)
	if s.random.IntN(3) == 0 && len(s.alive) > 0 {
		return s.ofJob()
	}
	key := s.random.IntN(s.keys)
	job, bound := s.jobs[key]
	body := map[string]any{"run_at": s.at.Add(time.Duration(s.random.IntN(9)) * time.Second), "attempt_budget": 3}
	switch dice := s.random.IntN(20); {
	case dice == 0: // no key
		job := s.uuid()
		s.alive = append(s.alive, &storyJob{id: job, key: -1})
		return s.row(ledger.KindAccepted, job, -1, body)
	case !bound:
		s.jobs[key] = s.uuid()
		s.alive = append(s.alive, &storyJob{id: s.jobs[key], key: key})
		body["mode"], body["expires_at"] = "idempotency", s.at.Add(time.Hour)
		return s.row(ledger.KindAccepted, s.jobs[key], key, body)
	case dice < 8:
		body["mode"], body["fields"], body["existing_mode"] = "debounce", []string{"payload", `q"ueue`}, "idempotency"
		body["existing_request_digest"], body["bound_at"], body["expires_at"] = s.digest(), s.at, s.at.Add(time.Hour)
		return s.row(ledger.KindConflictRejected, job, key, body)
	case dice < 10:
		body["mode"], body["expires_at"] = "debounce", s.at.Add(2*time.Hour)
		return s.row(ledger.KindReplaced, job, key, body)
	case dice < 12:
		return s.row(ledger.KindNonReplaceable, job, key, body)
	case dice < 18:
		delete(s.jobs, key)
		return s.row(ledger.KindBindingExpired, job, key, body)
	default:
		delete(s.jobs, key)
		return s.row(ledger.KindBindingReleased, job, key, body)
	}
}

// ofJob returns what happens next to a job.
func (s *storyteller) ofJob() []any {
	i := s.random.IntN(len(s.alive))
	j := s.alive[i]
	var kind ledger.Kind
	body := map[string]any{"attempt_budget": 3}
	dice := s.random.IntN(10)
	switch {
	case j.failed:
		kind = ledger.KindJobRedriven
		body["source_job_id"] = j.id.String()
		s.alive[i] = &storyJob{id: s.uuid(), key: -1}
		body["attempt"] = 0
		return s.lifeRow(kind, s.alive[i].id, j.key, body)
	case !j.active && dice < 6:
		kind = ledger.KindJobStarted
		j.active, j.attempt = true, j.attempt+1
	case !j.active && dice < 8:
		kind = ledger.KindJobReleased
	case !j.active:
		kind = ledger.KindJobPurged
	case dice < 4:
		kind = ledger.KindJobSucceeded
	case dice < 6:
		kind = ledger.KindJobAttemptFailed
		body["run_at"] = s.at.Add(time.Minute)
		j.active = false
	case dice < 7:
		kind = ledger.KindJobLeaseExpired
		j.active = false
	case dice < 9:
		kind = ledger.KindJobFailed
		j.active, j.failed = false, true
	default:
		kind = ledger.KindJobCancelled
	}
	switch kind {
	case ledger.KindJobPurged, ledger.KindJobSucceeded, ledger.KindJobCancelled:
		s.alive = append(s.alive[:i], s.alive[i+1:]...)
	}
	body["attempt"] = j.attempt
	return s.lifeRow(kind, j.id, j.key, body)
}

// lifeRow is row for an event of a job's life, which has no more of the key than its hash.
func (s *storyteller) lifeRow(kind ledger.Kind, job uuid.UUID, key int, body map[string]any) []any {
	row := s.row(kind, job, key, body)
	row[4], row[5] = nil, nil
	return row
}

func (s *storyteller) row(kind ledger.Kind, job uuid.UUID, key int, body map[string]any) []any {
	body["v"], body["request_digest"], body["job_id"] = 1, s.digest(), job.String()
	body["queue"], body["type"] = fmt.Sprintf("queue-%d", s.random.IntN(3)), fmt.Sprintf("type-%d", s.random.IntN(4))
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	if key < 0 {
		return []any{s.at, job, nil, string(kind), nil, nil, string(text)}
	}
	hash := hashOf(key)
	return []any{s.at, job, hash[:], string(kind), fmt.Sprintf("scope-%d", key%3), fmt.Sprintf("ke%d…", key%10), string(text)}
}

func (s *storyteller) digest() string {
	sum := sha256.Sum256(fmt.Append(nil, s.random.Uint64()))
	return "01" + hex.EncodeToString(sum[:])
}

// tell appends so many events and sequences them.
func (s *storyteller) tell(t testing.TB, db *pgtest.DB, count int) {
	t.Helper()
	ctx := t.Context()
	_, err := db.Pool.CopyFrom(ctx, pgx.Identifier{"daybook", "event"}, eventColumns,
		pgx.CopyFromSlice(count, func(int) ([]any, error) { return s.next(), nil }))
	if err != nil {
		t.Fatal(err)
	}
	sequence(t, db)
}

func sequence(t testing.TB, db *pgtest.DB) {
	t.Helper()
	if _, err := ledger.Sequence(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
}

func head(t testing.TB, db *pgtest.DB) ledger.Position {
	t.Helper()
	position, err := ledger.Head(t.Context(), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	return position
}

func runner(t testing.TB, p projections.Projection) *projections.Runner {
	t.Helper()
	r, err := projections.NewRunner(p, projections.RunnerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func builtinGroup(t testing.TB) *projections.Group {
	t.Helper()
	var runners []*projections.Runner
	for _, p := range projections.Builtin() {
		runners = append(runners, runner(t, p))
	}
	group, err := projections.NewGroup(runners...)
	if err != nil {
		t.Fatal(err)
	}
	return group
}

func builtin(t testing.TB, name string) projections.Projection {
	t.Helper()
	for _, p := range projections.Builtin() {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no built-in projection %s", name)
	panic("unreachable")
}

func catchUp(t testing.TB, db *pgtest.DB, batch int) {
	t.Helper()
	if _, err := builtinGroup(t).CatchUp(t.Context(), db.Pool, batch); err != nil {
		t.Fatal(err)
	}
}

func queryOne[T any](t testing.TB, db *pgtest.DB, sql string, args ...any) (value T) {
	t.Helper()
	if err := db.Pool.QueryRow(context.WithoutCancel(t.Context()), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}
