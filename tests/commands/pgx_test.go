package commands_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// pgx works in every mode of execution, single and batch, with every field.
func TestQueryExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t, pgtest.PoolConfig(func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }))
			db.FreezeClock(t, noon)
			testEveryField(t, db, newQueue(t, db.Pool), func(work func(commands.Tx)) {
				tx := begin(t, db.Pool, pgx.TxOptions{})
				work(tx)
				commit(t, tx)
			})
			o := full()
			o.Priority = 0
			result, err := newQueue(t, db.Pool).EnqueueWithResult(context.Background(), o)
			if err := newQueue(t, db.Pool).RecordRejection(context.Background(), err); err != nil {
				t.Error(err)
			}
			wantFields(t, result, "priority")
		})
	}
}

// A pool of two connections under 50 callers: no caller holds a connection while it waits for another.
func TestSmallPool(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for the failure
	defer cancel()
	db := pgtest.New(t, pgtest.MaxConns(2))
	db.Exec(t, "create table mine (n int primary key)")
	queue := newQueue(t, db.Pool)
	answers := together(50, func(i int) (result commands.EnqueueResult, err error) {
		key := fmt.Sprint("key ", i%5)
		switch i % 3 {
		case 0:
			return queue.EnqueueWithResult(ctx, order(key, "1"))
		case 1:
			err = pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "insert into mine values ($1)", i); err != nil {
					return err
				}
				result, err = queue.EnqueueWithResultTx(ctx, tx, order(key, "1"))
				return err
			})
			return result, err
		default:
			// A conflict that is recorded after its transaction: it needs a second connection, and only then.
			err = queue.InTx(ctx, func(tx pgx.Tx) error {
				result, err = queue.EnqueueWithResultTx(ctx, tx, order(key, fmt.Sprint(rand.IntN(2)+1)))
				return err
			})
			var conflict *commands.EnqueueIdempotencyConflictError
			if errors.As(err, &conflict) {
				err = nil
			}
			return result, err
		}
	})
	counted := map[commands.EnqueueOutcome]int{}
	for _, a := range answers {
		if a.err != nil && !isConflict(a.err) {
			t.Error(a.err)
		}
		counted[a.result.Outcome]++
	}
	if counted[commands.OutcomeAccepted] != 5 || counted[""] != 0 {
		t.Errorf("outcomes %v", counted)
	}
}

func isConflict(err error) bool {
	var conflict *commands.EnqueueIdempotencyConflictError
	return errors.As(err, &conflict)
}

// testEveryField asks for full, single and batch, in transactions of some driver, and looks at what was stored.
func testEveryField(t *testing.T, db *pgtest.DB, queue *commands.Queue, inTx func(func(commands.Tx))) {
	t.Helper()
	ctx := context.Background()
	odd := full()
	odd.Idempotency.Key = ledger.NewKey("odd")
	odd.Tags = []string{`a,b`, `{x}`, `"q"`, `\b`, ` blank `, `NULL`, `é`, "new\nline"}
	odd.Queue, odd.ConcurrencyKey = `q'"\`, "NULL"
	odd.Payload = map[string]any{`k"\` + "\n": "v'\u2028"}
	bare := commands.EnqueueOptions{Type: "bare"}
	var single, odder commands.EnqueueResult
	inTx(func(tx commands.Tx) {
		single = decideTx(t, queue, tx, full())
		odder = decideTx(t, queue, tx, odd)
		results, err := queue.EnqueueManyTx(ctx, tx, []commands.EnqueueOptions{odd, bare, full(), order("fresh", "1"), bare})
		if err != nil {
			t.Fatal(err)
		}
		want := []commands.EnqueueOutcome{"replayed", "accepted", "replayed", "accepted", "accepted"}
		if diff := cmp.Diff(want, outcomes(results)); diff != "" {
			t.Errorf("batch (-want +got):\n%s", diff)
		}
		if results[0].JobID != odder.JobID || results[2].JobID != single.JobID || !results[1].ExpiresAt.IsZero() {
			t.Errorf("batch %+v", results)
		}
		if !results[2].ExpiresAt.Equal(noon.Add(time.Hour)) || !results[3].BoundAt.Equal(noon) {
			t.Errorf("batch %+v", results)
		}
	})
	wantOutcome(t, single, commands.OutcomeAccepted)
	wantOutcome(t, odder, commands.OutcomeAccepted)
	if !single.BoundAt.Equal(noon) || !single.ExpiresAt.Equal(noon.Add(time.Hour)) {
		t.Errorf("bound at %v to %v", single.BoundAt, single.ExpiresAt)
	}
	const stored = `
		select concat_ws('|', type, queue, priority, concurrency_key, tags, attempt_budget, retry_kind, retry_initial_ms, retry_max_ms,
			run_at at time zone 'UTC', deadline at time zone 'UTC', execution_timeout_ms, payload, state)
		from daybook.job where job_id = $1`
	want := `order.confirm|orders|7|customer 5|{a,b}|3|exponential|1000|60000|2031-05-06 13:00:00|2031-05-06 14:00:00|60000|{"order": 1}|scheduled`
	if got := query1[string](t, db.Pool, stored, single.JobID); got != want {
		t.Errorf("stored\n%s, want\n%s", got, want)
	}
	slices.Sort(odd.Tags)
	if diff := cmp.Diff(odd.Tags, query1[[]string](t, db.Pool, "select tags from daybook.job where job_id = $1", odder.JobID)); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	odd.Tags = odd.Tags[1:]
	odd.Payload = nil
	inTx(func(tx commands.Tx) {
		wantFields(t, decideTx(t, queue, tx, odd), "payload", "tags")
		_, err := queue.EnqueueManyTx(ctx, tx, []commands.EnqueueOptions{order("never", "1"), odd, odd})
		var many *commands.EnqueueManyConflictError
		if !errors.As(err, &many) || len(many.Conflicts) != 2 || many.Conflicts[0].Ordinal != 1 {
			t.Fatalf("batch: %v", err)
		}
		conflict := many.Conflicts[1]
		if conflict.JobID != odder.JobID || conflict.State != commands.JobScheduled || conflict.Scope != "shop" || conflict.TwinOrdinal != -1 ||
			!conflict.BoundAt.Equal(noon) || !conflict.ExpiresAt.Equal(noon.Add(time.Hour)) || conflict.Mode != commands.ModeIdempotency {
			t.Errorf("%+v", conflict)
		}
		if diff := cmp.Diff([]string{"payload", "tags"}, conflict.Fields); diff != "" {
			t.Error(diff)
		}
	})
}
