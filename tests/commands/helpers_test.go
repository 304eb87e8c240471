package commands_test

import (
	"context"
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// noon is where frozen clocks stand at first: far from the server's time, so that a clock read elsewhere shows.
var noon = time.Date(2031, 5, 6, 12, 0, 0, 0, time.UTC)

// fataler is what testing.TB and rapid.TB have in common.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func newQueue(t fataler, pool *pgxpool.Pool) *commands.Queue {
	t.Helper()
	queue, err := commands.NewQueue(commands.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	return queue
}

// order is a request under a key, with a payload in JSON.
func order(key, payload string) commands.EnqueueOptions {
	return commands.EnqueueOptions{
		Type: "order.confirm", Payload: json.RawMessage(payload), Idempotency: &commands.Idempotency{Key: ledger.NewKey(key)},
	}
}

func decide(t fataler, queue *commands.Queue, o commands.EnqueueOptions) commands.EnqueueResult {
	t.Helper()
	result, err := queue.Decide(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func decideTx(t fataler, queue *commands.Queue, tx commands.Tx, o commands.EnqueueOptions) commands.EnqueueResult {
	t.Helper()
	result, err := queue.DecideTx(context.Background(), tx, o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func wantOutcome(t fataler, got commands.EnqueueResult, want commands.EnqueueOutcome) {
	t.Helper()
	if got.Outcome != want {
		fields := []string(nil)
		if got.Conflict != nil {
			fields = got.Conflict.Fields
		}
		t.Fatalf("outcome %s %v, want %s", got.Outcome, fields, want)
	}
}

func wantFields(t fataler, got commands.EnqueueResult, want ...string) {
	t.Helper()
	wantOutcome(t, got, commands.OutcomeConflictRejected)
	if diff := cmp.Diff(want, got.Conflict.Fields); diff != "" {
		t.Fatalf("fields (-want +got):\n%s", diff)
	}
}

func outcomes(results []commands.EnqueueResult) []commands.EnqueueOutcome {
	all := make([]commands.EnqueueOutcome, len(results))
	for i, result := range results {
		all[i] = result.Outcome
	}
	return all
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

// footprint is how much of everything there is.
type footprint struct {
	Jobs, Bindings, Rejections int64
	// Events are the kinds, in the order in which they were appended.
	Events []ledger.Kind
}

func footprintOf(t fataler, db querier) footprint {
	t.Helper()
	return footprint{
		Jobs:       query1[int64](t, db, "select count(*) from daybook.job"),
		Bindings:   query1[int64](t, db, "select count(*) from daybook.binding"),
		Rejections: query1[int64](t, db, "select count(*) from daybook.rejection"),
		Events:     query[ledger.Kind](t, db, "select kind from daybook.event order by event_id"),
	}
}

func wantFootprint(t fataler, db querier, want footprint) {
	t.Helper()
	if want.Events == nil {
		want.Events = []ledger.Kind{}
	}
	got := footprintOf(t, db)
	if got.Events == nil {
		got.Events = []ledger.Kind{}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("what is written (-want +got):\n%s", diff)
	}
}

func begin(t testing.TB, pool *pgxpool.Pool, options pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(context.Background(), options)
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

// steerClock makes daybook.clock() read a table, so that, unlike a replaced function, it also moves for a call that is
// under way.
func steerClock(t testing.TB, db *pgtest.DB, at time.Time) {
	t.Helper()
	db.Exec(t, `
		create table public.steered (at timestamptz not null);
		grant select on public.steered to daybook_owner, daybook_app;
		create or replace function daybook.clock() returns timestamptz language sql volatile
			as 'select s.at from public.steered as s'`)
	db.Exec(t, "insert into public.steered values ($1)", at)
}

func steerTo(t testing.TB, db *pgtest.DB, at time.Time) {
	t.Helper()
	db.Exec(t, "update public.steered set at = $1", at)
}

// answer is what a call in another goroutine came to.
type answer struct {
	result commands.EnqueueResult
	err    error
}

func decideLater(queue *commands.Queue, tx commands.Tx, o commands.EnqueueOptions) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		var a answer
		if tx == nil {
			a.result, a.err = queue.Decide(context.Background(), o)
		} else {
			a.result, a.err = queue.DecideTx(context.Background(), tx, o)
		}
		answers <- a
	}()
	return answers
}

func (a answer) want(t fataler, outcome commands.EnqueueOutcome) commands.EnqueueResult {
	t.Helper()
	if a.err != nil {
		t.Fatal(a.err)
	}
	wantOutcome(t, a.result, outcome)
	return a.result
}

// withoutTLS is a URL for lib/pq, which otherwise insists on TLS.
func withoutTLS(t fataler, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	if !query.Has("sslmode") {
		query.Set("sslmode", "disable")
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// collect returns the rows of a query, column by column into a struct.
func collect[T any](t fataler, db querier, sql string, args ...any) []T {
	t.Helper()
	rows, err := db.Query(context.Background(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	if err != nil {
		t.Fatal(err)
	}
	return all
}
