package commands_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// stopped is a call that was stopped while it waited for another transaction.
type stopped struct {
	name string
	// stop ends the wait of the call, which runs on the connection of pid; nil where the server does by itself.
	stop func(t *testing.T, db *pgtest.DB, pid uint32, cancel context.CancelFunc)
	// setting of the session.
	setting string
	// cause is PostgreSQL's error, "" where the client gave up.
	cause     string
	unknown   bool
	retryable bool
}

func stops() []stopped {
	return []stopped{
		{
			name: "lost connection", cause: "57P01", unknown: true,
			stop: func(t *testing.T, db *pgtest.DB, pid uint32, _ context.CancelFunc) {
				db.Exec(t, "select pg_terminate_backend($1::int)", pid)
			},
		},
		{
			name: "cancelled by an operator", cause: "57014",
			stop: func(t *testing.T, db *pgtest.DB, pid uint32, _ context.CancelFunc) {
				db.Exec(t, "select pg_cancel_backend($1::int)", pid)
			},
		},
		{
			name: "cancelled context", unknown: true,
			stop: func(_ *testing.T, _ *pgtest.DB, _ uint32, cancel context.CancelFunc) { cancel() },
		},
		{name: "lock_timeout", setting: "lock_timeout = '150ms'", cause: "55P03", retryable: true},
		{name: "statement_timeout", setting: "statement_timeout = '300ms'", cause: "57014"},
	}
}

// A call that did not get its answer is a *CallError that holds the cause; nothing is half-written, single and batch, in a
// transaction of its own and in the caller's.
func TestStoppedCallsWriteNothing(t *testing.T) {
	t.Parallel()
	calls := map[string]func(context.Context, *commands.Queue, commands.Tx) error{
		"Enqueue": func(ctx context.Context, queue *commands.Queue, _ commands.Tx) error {
			_, err := queue.Enqueue(ctx, order("k", "1"))
			return err
		},
		"EnqueueMany": func(ctx context.Context, queue *commands.Queue, _ commands.Tx) error {
			_, err := queue.EnqueueMany(ctx, []commands.EnqueueOptions{order("a", "1"), order("k", "1"), order("z", "1")})
			return err
		},
		"EnqueueTx": func(ctx context.Context, queue *commands.Queue, tx commands.Tx) error {
			_, err := queue.EnqueueTx(ctx, tx, order("k", "1"))
			return err
		},
		"DecideManyTx": func(ctx context.Context, queue *commands.Queue, tx commands.Tx) error {
			_, err := queue.DecideManyTx(ctx, tx, []commands.EnqueueOptions{order("a", "1"), order("k", "1"), order("z", "1")})
			return err
		},
	}
	for _, test := range stops() {
		for name, call := range calls {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				testStoppedCall(t, test, name == "EnqueueTx" || name == "DecideManyTx", call)
			})
		}
	}
}

func testStoppedCall(t *testing.T, test stopped, inTx bool, call func(context.Context, *commands.Queue, commands.Tx) error) {
	background := context.Background()
	db := pgtest.New(t)
	pool := onePool(t, db)
	queue := newQueue(t, pool)
	pid := query1[uint32](t, pool, "select pg_backend_pid()::int8")

	holder := begin(t, db.Pool, pgx.TxOptions{})
	wantOutcome(t, decideTx(t, queue, holder, order("k", "1")), commands.OutcomeAccepted)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	var tx pgx.Tx
	var conn interface {
		Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	} = pool
	if inTx {
		tx = begin(t, pool, pgx.TxOptions{})
		conn = tx
		// Something to lose with the call.
		if _, err := queue.EnqueueTx(background, tx, order("before", "1")); err != nil {
			t.Fatal(err)
		}
	}
	if test.setting != "" {
		if _, err := conn.Exec(background, "set "+test.setting); err != nil {
			t.Fatal(err)
		}
	}
	failed := make(chan error, 1)
	go func() { failed <- call(ctx, queue, tx) }()
	if test.stop != nil {
		db.WaitBlockedBy(t, pidOf(holder), 1)
		test.stop(t, db, pid, cancel)
	}
	err := <-failed

	var callError *commands.CallError
	if !errors.As(err, &callError) {
		t.Fatalf("error %v, want a *CallError", err)
	}
	if want := test.unknown && !inTx; callError.Unknown != want {
		t.Errorf("Unknown is %v, want %v: %v", callError.Unknown, want, err)
	}
	if got := commands.Retryable(err); got != test.retryable {
		t.Errorf("Retryable is %v: %v", got, err)
	}
	var pgErr *pgconn.PgError
	switch {
	case test.cause == "" && !errors.Is(err, context.Canceled):
		t.Errorf("the cause is lost: %v", err)
	case test.cause != "" && (!errors.As(err, &pgErr) || pgErr.Code != test.cause):
		t.Errorf("the cause is not %s: %v", test.cause, err)
	}
	if tx != nil {
		_ = tx.Rollback(background) // on a dead connection it fails, too
	}
	// Whoever was given up by its client may still be there.
	pgtest.WaitFor(t, 30*time.Second, func() bool {
		return query1[int64](t, db.Pool, "select count(*) from pg_stat_activity where pid = $1::int and state <> 'idle'", pid) == 0
	}, "the call's backend goes on")
	commit(t, holder)
	wantFootprint(t, db.Pool, footprint{Jobs: 1, Bindings: 1, Events: []ledger.Kind{ledger.KindAccepted}})
	if _, err := pool.Exec(background, "reset all"); err != nil {
		t.Fatal(err)
	}
	// Repeated with its key, the call learns what was decided.
	wantOutcome(t, decide(t, queue, order("k", "1")), commands.OutcomeReplayed)
}

// onePool is a pool of one connection, so that the next call's backend is known.
func onePool(t *testing.T, db *pgtest.DB) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Who got no connection knows that nothing has happened.
func TestNoConnectionIsNotUnknown(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(1))
	queue := newQueue(t, db.Pool)
	busy := begin(t, db.Pool, pgx.TxOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, single := queue.Enqueue(ctx, order("k", "1"))
	_, batch := queue.EnqueueMany(ctx, []commands.EnqueueOptions{order("k", "1")})
	for _, err := range []error{single, batch} {
		var callError *commands.CallError
		if !errors.As(err, &callError) || callError.Unknown || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%#v", err)
		}
	}
	rollback(t, busy)
	wantFootprint(t, db.Pool, footprint{})
}

// A transaction that has failed already stays what it is, and the call says so.
func TestAbortedTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool)
	tx := begin(t, db.Pool, pgx.TxOptions{})
	if _, err := tx.Exec(ctx, "select 1/0"); err == nil {
		t.Fatal("1/0 is a number")
	}
	_, err := queue.EnqueueTx(ctx, tx, order("k", "1"))
	var callError *commands.CallError
	var pgErr *pgconn.PgError
	if !errors.As(err, &callError) || callError.Unknown || !errors.As(err, &pgErr) || pgErr.Code != "25P02" {
		t.Errorf("%v", err)
	}
}

// Without a pool the calls that need one say so, and the Tx twins work.
func TestQueueWithoutPool(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	queue := newQueue(t, nil)
	_, err1 := queue.Enqueue(ctx, order("k", "1"))
	_, err2 := queue.EnqueueMany(ctx, []commands.EnqueueOptions{order("k", "1")})
	_, err3 := queue.DecideMany(ctx, []commands.EnqueueOptions{order("k", "1")})
	err4 := queue.InTx(ctx, func(pgx.Tx) error { return nil })
	err5 := queue.RecordRejection(ctx, errors.New("x"))
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if err == nil {
			t.Error("a call without a pool succeeds")
		}
	}
	tx := begin(t, db.Pool, pgx.TxOptions{})
	wantOutcome(t, decideTx(t, queue, tx, order("k", "1")), commands.OutcomeAccepted)
}
