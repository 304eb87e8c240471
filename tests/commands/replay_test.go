package commands_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// replaysVariable is how many replays TestReplaysWriteNothing makes; 20,000 where it is not set.
const replaysVariable = "DAYBOOK_TEST_REPLAYS"

// trace is all that a statement could leave behind in a cluster where nobody else does anything.
type trace struct {
	WAL, NextXID, LastEventID string
	// Touched are the rows that somebody has locked, or tried to update or delete. A dead row needs no counting: it can't
	// come about without WAL.
	Touched int64
	Bytes   int64
}

func traceOf(t fataler, db querier) trace {
	t.Helper()
	return trace{
		WAL:         query1[string](t, db, "select pg_current_wal_insert_lsn()::text"),
		NextXID:     query1[string](t, db, "select pg_snapshot_xmax(pg_current_snapshot())::text"),
		LastEventID: query1[string](t, db, "select last_value::text from daybook.event_event_id_seq"),
		Touched: query1[int64](t, db, `select (select count(*) from daybook.binding where xmax <> '0'::xid)
			+ (select count(*) from daybook.job where xmax <> '0'::xid)`),
		Bytes: query1[int64](t, db, `select sum(pg_relation_size(oid))::bigint from pg_class
			where relnamespace = 'daybook'::regnamespace`),
	}
}

// §4.3: a replay writes nothing: no row version, no event, no sequence value, no WAL of its own, not even a transaction id;
// single and batch, alone and in a transaction, with an equal digest and where only jsonb says that the two are the same.
func TestReplaysWriteNothing(t *testing.T) {
	t.Parallel()
	const callers, batch = 8, 50
	count := 20_000
	if set := os.Getenv(replaysVariable); set != "" {
		var err error
		if count, err = strconv.Atoi(set); err != nil {
			t.Fatalf("%s: %v", replaysVariable, err)
		}
	}
	ctx := context.Background()
	cluster := pgtest.NewCluster(t, map[string]string{
		// Nothing in this cluster writes by itself.
		"autovacuum": "off", "wal_level": "minimal", "max_wal_senders": "0", "checkpoint_timeout": "1d", "fsync": "off",
	})
	db := cluster.New(t, pgtest.MaxConns(callers+1))
	queue := newQueue(t, db.Pool)
	requests := make([]commands.EnqueueOptions, 100)
	for i := range requests {
		requests[i] = order(fmt.Sprint("key ", i), fmt.Sprintf(`{"n":%d}`, i))
		if i%3 == 0 {
			requests[i].Throttle = &commands.Throttle{Key: requests[i].Idempotency.Key, Window: commands.DefaultTTL}
			requests[i].Idempotency = nil
		}
	}
	if _, err := queue.EnqueueMany(ctx, requests); err != nil {
		t.Fatal(err)
	}
	// A digest of another version can't prove sameness: then the fields are compared.
	db.Exec(t, `update daybook.binding set request_digest = '\x02' || substring(request_digest from 2) where job_id in
		(select job_id from daybook.binding order by job_id limit 20)`)
	// Whoever reads a page that was changed lately may tidy it, in PostgreSQL's own catalogs too.
	db.Exec(t, "vacuum (freeze)")
	replays := func(n int) {
		t.Helper()
		for _, a := range together(callers, func(caller int) (commands.EnqueueResult, error) {
			for done := 0; done < n/callers; {
				var err error
				var results []commands.EnqueueResult
				o := requests[(caller*31+done)%len(requests)]
				switch done % 4 {
				case 0:
					i := done % (len(requests) - batch)
					results, err = queue.EnqueueMany(ctx, requests[i:i+batch])
				case 1:
					err = pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
						result, err := queue.EnqueueWithResultTx(ctx, tx, o)
						results = append(results, result)
						return err
					})
				default:
					var result commands.EnqueueResult
					result, err = queue.EnqueueWithResult(ctx, o)
					results = append(results, result)
				}
				if err != nil {
					return commands.EnqueueResult{}, err
				}
				for _, result := range results {
					if result.Outcome != commands.OutcomeReplayed && result.Outcome != commands.OutcomeCoalesced {
						return result, fmt.Errorf("outcome %s", result.Outcome)
					}
				}
				done += len(results)
			}
			return commands.EnqueueResult{}, nil
		}) {
			if a.err != nil {
				t.Fatal(a.err)
			}
		}
	}
	replays(1000)
	before := traceOf(t, db.Pool)
	replays(count)
	if diff := cmp.Diff(before, traceOf(t, db.Pool)); diff != "" {
		t.Errorf("%d replays left behind (-before +after):\n%s", count, diff)
	}
}

// A replay in the caller's transaction gives it no transaction id, single or batch.
func TestReplayTakesNoXID(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool)
	requests := []commands.EnqueueOptions{order("a", "1"), order("b", "1"), order("a", "1")}
	if _, err := queue.EnqueueMany(ctx, requests); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, db.Pool, pgx.TxOptions{})
	wantOutcome(t, decideTx(t, queue, tx, order("a", "1")), commands.OutcomeReplayed)
	if _, err := queue.EnqueueManyTx(ctx, tx, requests); err != nil {
		t.Fatal(err)
	}
	if xid := query1[*string](t, tx, "select pg_current_xact_id_if_assigned()::text"); xid != nil {
		t.Errorf("a replay took the xid %s", *xid)
	}
}
