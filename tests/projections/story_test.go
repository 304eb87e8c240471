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
	queue, typ := fmt.Sprintf("queue-%d", s.random.IntN(3)), fmt.Sprintf("type-%d", s.random.IntN(4))
	body := map[string]any{"v": 1, "queue": queue, "type": typ, "request_digest": s.digest()}
	key := s.random.IntN(s.keys)
	job, bound := s.jobs[key]
	dice := s.random.IntN(20)
	row := func(kind ledger.Kind, job uuid.UUID) []any {
		body["job_id"] = job.String()
		hash := hashOf(key)
		text, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		return []any{s.at, job, hash[:], string(kind), fmt.Sprintf("scope-%d", key%3), fmt.Sprintf("ke%d…", key%10), string(text)}
	}
	switch {
	case dice == 0: // no key
		job := s.uuid()
		r := row(ledger.KindAccepted, job)
		r[2], r[4], r[5] = nil, nil, nil
		return r
	case dice == 1: // nothing that the views know
		return row(ledger.KindJobStarted, s.uuid())
	case !bound:
		s.jobs[key] = s.uuid()
		body["mode"], body["expires_at"] = "idempotency", s.at.Add(time.Hour)
		return row(ledger.KindAccepted, s.jobs[key])
	case dice < 8:
		body["mode"], body["fields"], body["existing_mode"] = "debounce", []string{"payload", `q"ueue`}, "idempotency"
		body["existing_request_digest"], body["bound_at"], body["expires_at"] = s.digest(), s.at, s.at.Add(time.Hour)
		return row(ledger.KindConflictRejected, job)
	case dice < 10:
		body["mode"], body["expires_at"] = "debounce", s.at.Add(2*time.Hour)
		return row(ledger.KindReplaced, job)
	case dice < 12:
		return row(ledger.KindNonReplaceable, job)
	case dice < 18:
		delete(s.jobs, key)
		return row(ledger.KindBindingExpired, job)
	default:
		delete(s.jobs, key)
		return row(ledger.KindBindingReleased, job)
	}
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
