package jobs_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// way is one of the ways in which a request can be made.
type way struct {
	name string
	ask  func(*pgtest.DB, *commands.Queue, commands.EnqueueOptions) (commands.EnqueueResult, error)
}

func ways() []way {
	ctx := context.Background()
	first := func(results []commands.EnqueueResult, err error) (commands.EnqueueResult, error) {
		if err != nil {
			return commands.EnqueueResult{}, err
		}
		return results[0], nil
	}
	inTx := func(db *pgtest.DB, ask func(pgx.Tx) (commands.EnqueueResult, error)) (result commands.EnqueueResult, err error) {
		err = pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
			result, err = ask(tx)
			return err
		})
		return result, err
	}
	return []way{
		{"Decide", func(_ *pgtest.DB, queue *commands.Queue, o commands.EnqueueOptions) (commands.EnqueueResult, error) {
			return queue.Decide(ctx, o)
		}},
		{"DecideTx", func(db *pgtest.DB, queue *commands.Queue, o commands.EnqueueOptions) (commands.EnqueueResult, error) {
			return inTx(db, func(tx pgx.Tx) (commands.EnqueueResult, error) { return queue.DecideTx(ctx, tx, o) })
		}},
		{"DecideMany", func(_ *pgtest.DB, queue *commands.Queue, o commands.EnqueueOptions) (commands.EnqueueResult, error) {
			return first(queue.DecideMany(ctx, []commands.EnqueueOptions{o}))
		}},
		{"EnqueueManyTx", func(db *pgtest.DB, queue *commands.Queue, o commands.EnqueueOptions) (commands.EnqueueResult, error) {
			return inTx(db, func(tx pgx.Tx) (commands.EnqueueResult, error) {
				return first(queue.EnqueueManyTx(ctx, tx, []commands.EnqueueOptions{o}))
			})
		}},
	}
}

// eachWay runs a test once for each way to make a request, on a database of its own whose clock stands at noon.
func eachWay(t *testing.T, test func(t *testing.T, db *pgtest.DB, queue *commands.Queue, ask func(commands.EnqueueOptions) commands.EnqueueResult)) {
	t.Helper()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			db, queue := newFrozen(t)
			test(t, db, queue, func(o commands.EnqueueOptions) commands.EnqueueResult {
				t.Helper()
				result, err := w.ask(db, queue, o)
				if err != nil {
					t.Fatal(err)
				}
				return result
			})
		})
	}
}
