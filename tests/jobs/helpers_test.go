package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// noon is where frozen clocks stand at first: far from the server's time, so that a clock read elsewhere shows.
var noon = time.Date(2031, 5, 6, 12, 0, 0, 0, time.UTC)

// operator is who does things to jobs in these tests.
var operator = commands.Act{Actor: "operator@example.com", Reason: "asked for by the test"}

// fataler is what testing.TB and rapid.T have in common.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// newFrozen is a database whose clock stands at noon, and a queue on it.
func newFrozen(t testing.TB, options ...pgtest.Option) (*pgtest.DB, *commands.Queue) {
	t.Helper()
	db := pgtest.New(t, options...)
	db.FreezeClock(t, noon)
	return db, newQueue(t, db.Pool)
}

func newQueue(t fataler, pool *pgxpool.Pool) *commands.Queue {
	t.Helper()
	queue, err := commands.NewQueue(commands.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	return queue
}

// with makes a request of another one, changed.
func with(o commands.EnqueueOptions, change func(*commands.EnqueueOptions)) commands.EnqueueOptions {
	change(&o)
	return o
}

// work is a request without a key.
func work(payload string) commands.EnqueueOptions {
	return commands.EnqueueOptions{Type: "index.refresh", Payload: json.RawMessage(payload)}
}

func idempotent(key, payload string, ttl time.Duration) commands.EnqueueOptions {
	o := work(payload)
	o.Idempotency = &commands.Idempotency{Key: ledger.NewKey(key), TTL: ttl}
	return o
}

func debounced(key, payload string, block commands.Debounce) commands.EnqueueOptions {
	o := work(payload)
	block.Key = ledger.NewKey(key)
	o.Debounce = &block
	return o
}

func throttled(key, payload string, window time.Duration) commands.EnqueueOptions {
	o := work(payload)
	o.Throttle = &commands.Throttle{Key: ledger.NewKey(key), Window: window}
	return o
}

func decide(t fataler, queue *commands.Queue, o commands.EnqueueOptions) commands.EnqueueResult {
	t.Helper()
	result, err := queue.Decide(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// accept is decide where nothing but acceptance will do.
func accept(t fataler, queue *commands.Queue, o commands.EnqueueOptions) commands.EnqueueResult {
	t.Helper()
	result := decide(t, queue, o)
	wantOutcome(t, result, commands.OutcomeAccepted)
	return result
}

func wantOutcome(t fataler, got commands.EnqueueResult, want commands.EnqueueOutcome) {
	t.Helper()
	if got.Outcome != want {
		t.Fatalf("outcome %s %s, want %s", got.Outcome, got.Reason, want)
	}
}

func wantRefused(t fataler, got commands.EnqueueResult, job uuid.UUID, reason string) {
	t.Helper()
	if got.Outcome != commands.OutcomeNonReplaceable || got.Reason != reason || got.JobID != job {
		t.Fatalf("%s %q of job %s, want non_replaceable %q of job %s", got.Outcome, got.Reason, got.JobID, reason, job)
	}
}

func wantInvalid(t fataler, err error, field string) {
	t.Helper()
	var invalid *commands.InvalidRequestError
	if !errors.As(err, &invalid) || invalid.Field != field {
		t.Fatalf("error %v, want an *InvalidRequestError about %s", err, field)
	}
}

func diff(t fataler, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// query returns the one column of a query.
func query[T any](t fataler, db querier, sql string, args ...any) []T {
	t.Helper()
	rows, err := db.Query(context.Background(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return values
}

// query1 returns the one value of a query.
func query1[T any](t fataler, db querier, sql string, args ...any) T {
	t.Helper()
	values := query[T](t, db, sql, args...)
	if len(values) != 1 {
		t.Fatalf("%s: %d rows", sql, len(values))
	}
	return values[0]
}

// jobRow is all of a job but its id and acceptance.
type jobRow struct {
	State          commands.JobState
	Queue, Type    string
	Payload        string
	Priority       int
	Attempt        int
	AttemptBudget  int
	Fence          int64
	ConcurrencyKey *string
	Tags           []string
	RetryKind      *string
	RetryInitial   *int64
	RetryMax       *int64
	Timeout        *int64
	RunAt          time.Time
	Deadline       *time.Time
	LeaseExpiresAt *time.Time
	FinishedAt     *time.Time
	After          *uuid.UUID
}

func jobOf(t fataler, db querier, id uuid.UUID) jobRow {
	t.Helper()
	rows, err := db.Query(context.Background(), `
		select state, queue, type, payload::text, priority, attempt, attempt_budget, fence, concurrency_key, tags,
			retry_kind, retry_initial_ms, retry_max_ms, execution_timeout_ms, run_at, deadline, lease_expires_at,
			finished_at, after_job_id
		from daybook.job
		where job_id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[jobRow])
	if err != nil {
		t.Fatalf("job %s: %v", id, err)
	}
	row.RunAt = row.RunAt.UTC()
	for _, at := range []**time.Time{&row.Deadline, &row.LeaseExpiresAt, &row.FinishedAt} {
		if *at != nil {
			utc := (*at).UTC()
			*at = &utc
		}
	}
	return row
}

// wantState checks where a job is.
func wantState(t fataler, db querier, id uuid.UUID, want commands.JobState) {
	t.Helper()
	if got := jobOf(t, db, id).State; got != want {
		t.Fatalf("job %s is %s, want %s", id, got, want)
	}
}

// kinds are the events of a database, or of one job, in the order in which they were appended.
func kinds(t fataler, db querier, jobs ...uuid.UUID) []ledger.Kind {
	t.Helper()
	all := query[ledger.Kind](t, db, `
		select kind from daybook.event
		where cardinality($1::uuid[]) = 0 or job_id = any ($1)
		order by event_id`, append([]uuid.UUID{}, jobs...))
	return append([]ledger.Kind{}, all...)
}

func wantKinds(t fataler, db querier, want []ledger.Kind, jobs ...uuid.UUID) {
	t.Helper()
	diff(t, "events", append([]ledger.Kind{}, want...), kinds(t, db, jobs...))
}

// lastBody is the body of the newest event of a kind.
func lastBody(t fataler, db querier, kind ledger.Kind) map[string]any {
	t.Helper()
	text := query1[string](t, db, "select body::text from daybook.event where kind = $1 order by event_id desc limit 1", kind)
	var body map[string]any
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		t.Fatal(err)
	}
	return body
}

// rfc is an instant as event bodies have it.
func rfc(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000000Z") }

// footprint is how much of everything there is.
type footprint struct {
	Jobs, Bindings, Rejections, Events int64
}

func footprintOf(t fataler, db querier) footprint {
	t.Helper()
	return footprint{
		Jobs:       query1[int64](t, db, "select count(*) from daybook.job"),
		Bindings:   query1[int64](t, db, "select count(*) from daybook.binding"),
		Rejections: query1[int64](t, db, "select count(*) from daybook.rejection"),
		Events:     query1[int64](t, db, "select count(*) from daybook.event"),
	}
}

// claim claims from the default queue, and fails where it does not get as many.
func claim(t fataler, queue *commands.Queue, jobs int) []commands.ClaimedJob {
	t.Helper()
	return claimFrom(t, queue, "", jobs)
}

func claimFrom(t fataler, queue *commands.Queue, name string, jobs int) []commands.ClaimedJob {
	t.Helper()
	claimed, err := queue.ClaimJobs(context.Background(), commands.ClaimOptions{
		Queue: name, Worker: "worker", Limit: max(1, jobs), Lease: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(claimed) != jobs {
		t.Fatalf("claimed %d jobs, want %d", len(claimed), jobs)
	}
	return claimed
}

func claims(jobs []commands.ClaimedJob) []commands.Claim {
	all := make([]commands.Claim, len(jobs))
	for i, job := range jobs {
		all[i] = job.Claim
	}
	return all
}

func complete(t fataler, queue *commands.Queue, jobs ...commands.ClaimedJob) {
	t.Helper()
	done, err := queue.CompleteJobs(context.Background(), claims(jobs)...)
	if err != nil {
		t.Fatal(err)
	}
	for i, ok := range done {
		if !ok {
			t.Fatalf("claim %v is stale", jobs[i].Claim)
		}
	}
}

func fail(t fataler, queue *commands.Queue, job commands.ClaimedJob) commands.Failure {
	t.Helper()
	failure, err := queue.FailJob(context.Background(), job.Claim, "it broke")
	if err != nil {
		t.Fatal(err)
	}
	return failure
}

// failed makes a job that has no attempts left.
func failed(t fataler, queue *commands.Queue, o commands.EnqueueOptions) uuid.UUID {
	t.Helper()
	o.AttemptBudget = 1
	id := accept(t, queue, o).JobID
	if got := fail(t, queue, claimFrom(t, queue, o.Queue, 1)[0]); got.State != commands.JobFailed {
		t.Fatalf("the job is %s", got.State)
	}
	return id
}

func maintain(t fataler, queue *commands.Queue, options commands.MaintainOptions) commands.Maintained {
	t.Helper()
	done, err := queue.Maintain(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func begin(t testing.TB, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func commit(t fataler, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func rollback(t fataler, tx pgx.Tx) {
	t.Helper()
	if err := tx.Rollback(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func pidOf(tx pgx.Tx) uint32 { return tx.Conn().PgConn().PID() }
