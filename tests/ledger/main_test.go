// Package ledger_test holds the tests of package ledger that need a PostgreSQL.
package ledger_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func newQueue(t *testing.T, pool *pgxpool.Pool) *commands.Queue {
	t.Helper()
	queue, err := commands.NewQueue(commands.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	return queue
}

// work is a request under a key; another n is another request.
func work(key string, n int) commands.EnqueueOptions {
	return commands.EnqueueOptions{
		Type:        "work",
		Payload:     map[string]int{"n": n},
		Idempotency: &commands.Idempotency{Key: ledger.NewKey(key)},
	}
}

// accept enqueues n new jobs, each in a transaction of its own.
func accept(t *testing.T, queue *commands.Queue, n int) []uuid.UUID {
	t.Helper()
	jobs := make([]uuid.UUID, n)
	for i := range jobs {
		var err error
		if jobs[i], err = queue.Enqueue(t.Context(), work(uuid.NewString(), i)); err != nil {
			t.Fatal(err)
		}
	}
	return jobs
}

func sequence(t *testing.T, db ledger.Querier) int {
	t.Helper()
	n, err := ledger.Sequence(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// round runs one round of daybook.sequence; nil where another is at it.
func round(t *testing.T, db ledger.Querier, limit int) (sequenced *int, more bool) {
	t.Helper()
	rows, err := db.Query(t.Context(), `select r.sequenced, coalesce(r.more, false) from daybook.sequence($1) as r`, limit)
	if err == nil {
		type answer struct {
			Sequenced *int
			More      bool
		}
		var a answer
		a, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[answer])
		sequenced, more = a.Sequenced, a.More
	}
	if err != nil {
		t.Fatal(err)
	}
	return sequenced, more
}

// one returns the single value that a query answers.
func one[T any](t *testing.T, db ledger.Querier, sql string, args ...any) T {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// transaction is one open transaction on a connection of its own, driven step by step.
type transaction struct {
	t    *testing.T
	conn *pgx.Conn
	pgx.Tx
}

func begin(t *testing.T, url string) *transaction {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &transaction{t: t, conn: conn, Tx: tx}
}

// takeXID makes the transaction one that may write.
func (tx *transaction) takeXID() {
	tx.t.Helper()
	one[string](tx.t, tx, `select pg_current_xact_id()::text`)
}

// append draws an event id and appends an event, as the functions do: the xid first.
func (tx *transaction) append() int64 {
	tx.t.Helper()
	tx.takeXID()
	return one[int64](tx.t, tx, `
		insert into daybook.event (recorded_at, kind, body)
		values (clock_timestamp(), 'enqueue.accepted', '{"v":1}')
		returning event_id`)
}

func (tx *transaction) commit() {
	tx.t.Helper()
	if err := tx.Commit(tx.t.Context()); err != nil {
		tx.t.Fatal(err)
	}
}

// order returns the event ids in the order of their positions.
func order(t *testing.T, db ledger.Querier) []int64 {
	t.Helper()
	rows, err := db.Query(t.Context(), `select o.event_id from daybook.ledger_order as o order by o.position`)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// wantSound checks what must hold of any ledger at rest: every event has one position, positions are dense, and
// neither a sweep finds anything nor has one ever.
func wantSound(t *testing.T, db ledger.Querier) {
	t.Helper()
	got := one[string](t, db, `
		select format('%s events, %s positions, last %s, head %s, swept %s', count(e.event_id), count(o.position),
			coalesce(max(o.position), 0), (select position from daybook.sequencer), (select swept from daybook.sequencer))
		from daybook.event as e
		full join daybook.ledger_order as o on o.event_id = e.event_id`)
	n := one[int64](t, db, `select count(*) from daybook.event`)
	if want := fmt.Sprintf("%d events, %d positions, last %d, head %d, swept 0", n, n, n, n); got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if swept := one[int64](t, db, `select daybook.sweep()`); swept != 0 {
		t.Errorf("a sweep found %d events", swept)
	}
}
