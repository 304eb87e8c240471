package security_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // a database/sql driver

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// leak sends one key along every path.
type leak struct {
	*told
	db    *pgtest.DB
	key   ledger.Key
	scope string
}

func (l *leak) request(n int) commands.EnqueueOptions {
	return commands.EnqueueOptions{
		Type: "work", Payload: map[string]int{"n": n}, Idempotency: &commands.Idempotency{Key: l.key, Scope: l.scope},
	}
}

func (l *leak) everyPath(t *testing.T) {
	t.Helper()
	keys, err := ledger.NewHMACKeys([]byte("0123456789abcdef"), []byte("fedcba9876543210"))
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		for _, ring := range []ledger.Keys{{}, keys} {
			config := l.db.Pool.Config()
			config.ConnConfig.DefaultQueryExecMode = mode
			config.MaxConns = 4
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			l.config.Pool, l.config.Keys = pool, ring
			queue := newQueue(t, l.config)
			l.note(ring, l.config.Keys)
			l.answers(t, queue)
			l.failures(t, pool, queue)
			pool.Close()
		}
	}
	l.databaseSQL(t)
	l.wrongWays(t)
}

// answers are the calls that PostgreSQL decides.
func (l *leak) answers(t *testing.T, queue *commands.Queue) {
	t.Helper()
	for n := range 3 {
		options := l.request(n)
		l.note(options, &options, options.Idempotency, *options.Idempotency)
		result, err := queue.EnqueueWithResult(t.Context(), options)
		l.note(result, err)
		result, err = queue.Decide(t.Context(), options)
		l.note(result, err)
		results, err := queue.EnqueueMany(t.Context(), []commands.EnqueueOptions{options, options, l.request(n + 1)})
		l.note(results, err)
		results, err = queue.DecideMany(t.Context(), []commands.EnqueueOptions{options, l.request(n + 1)})
		l.note(results, err)
		undone := errors.New("undone")
		err = queue.InTx(t.Context(), func(tx pgx.Tx) error {
			_, err := queue.EnqueueTx(t.Context(), tx, l.request(n+10))
			return errors.Join(undone, err)
		})
		l.note(err)
		l.note(queue.RecordRejection(t.Context(), err))
	}
	for _, options := range []commands.EnqueueOptions{
		{Type: "work", Throttle: &commands.Throttle{Key: l.key, Scope: l.scope + "t", Window: time.Hour}},
		{Type: "work", Debounce: &commands.Debounce{Key: l.key, Scope: l.scope + "d", Window: time.Hour}},
		{Type: "work", Debounce: &commands.Debounce{Key: l.key, Scope: l.scope, Window: time.Hour}},
	} {
		for range 2 {
			result, err := queue.EnqueueWithResult(t.Context(), options)
			l.note(options, result, err)
		}
	}
}

// failures are the calls that get no answer, and those that are refused before they are sent.
func (l *leak) failures(t *testing.T, pool *pgxpool.Pool, queue *commands.Queue) {
	t.Helper()
	invalid := l.request(0)
	invalid.Priority = 101
	tooLong := l.request(0)
	tooLong.Idempotency.TTL = -1
	unmarshallable := l.request(0)
	unmarshallable.Payload = func() {}
	late := l.request(77)
	late.Idempotency.Scope += "late"
	late.Deadline = time.Now().Add(-time.Hour)
	badScope := l.request(0)
	badScope.Idempotency.Scope = "\x00"
	for _, options := range []commands.EnqueueOptions{invalid, tooLong, unmarshallable, late, badScope} {
		_, err := queue.Enqueue(t.Context(), options)
		if err == nil {
			t.Errorf("%+v is taken", options)
		}
		_, many := queue.EnqueueMany(t.Context(), []commands.EnqueueOptions{l.request(0), options})
		l.note(options, err, many)
	}

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := queue.Enqueue(cancelled, l.request(0))
	l.note(err)

	// Somebody holds the key; whoever waits is timed out, cancelled, or loses the connection.
	holder, err := l.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.Background()) }()
	held := l.request(0)
	held.Idempotency.Scope = randomText(l.scope + "held-")
	if _, err := queue.EnqueueTx(t.Context(), holder, held); err != nil {
		t.Fatal(err)
	}
	for _, timeout := range []string{"lock_timeout", "statement_timeout"} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `set local `+timeout+` = '50ms'`); err != nil {
				return err
			}
			_, err := queue.EnqueueTx(t.Context(), tx, held)
			return err
		})
		if err == nil {
			t.Errorf("%s: no error", timeout)
		}
		_, aborted := queue.EnqueueMany(t.Context(), nil)
		l.note(err, aborted)
	}
	soon, cancelSoon := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancelSoon()
	_, err = queue.Enqueue(soon, held)
	l.note(err)
	lost := make(chan error, 1)
	go func() {
		_, err := queue.EnqueueMany(t.Context(), []commands.EnqueueOptions{held})
		lost <- err
	}()
	// The call whose context has ended may still be waiting in the server, too: so whoever waits is ended until the one
	// that is meant has been.
	pgtest.WaitFor(t, time.Minute, func() bool {
		l.db.Exec(t, `
			select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`)
		return len(lost) == 1
	}, "the connection of a waiting call is not lost")
	if err := <-lost; err == nil {
		t.Error("a lost connection is no error")
	} else {
		l.note(err)
	}
}

// databaseSQL is another driver's way.
func (l *leak) databaseSQL(t *testing.T) {
	t.Helper()
	pool, err := sql.Open("pgx", l.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	l.config.Keys = ledger.Keys{}
	queue := newQueue(t, l.config)
	tx, err := pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	result, err := queue.DecideTx(t.Context(), commands.SQLTx(tx), l.request(5))
	l.note(result, err)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	// A key, given as an argument by mistake.
	_, err = pool.ExecContext(t.Context(), `select $1::text`, l.key)
	if err == nil {
		t.Error("database/sql sends a key")
	}
	l.note(err)
}

// wrongWays are what somebody might do who has not read the documentation.
func (l *leak) wrongWays(t *testing.T) {
	t.Helper()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		for _, query := range []string{`select $1::text`, `select $1::bytea`, `select $1::jsonb`} {
			for _, argument := range []any{l.key, &l.key} {
				_, err := l.db.Pool.Exec(t.Context(), query, mode, argument)
				if err == nil {
					t.Errorf("pgx sends a key in mode %v as %T", mode, argument)
				}
				l.note(err)
			}
		}
		_, err := l.db.Pool.Exec(t.Context(), `select $1::text[]`, mode, []ledger.Key{l.key})
		l.note(err)
	}
	_, err := l.db.Pool.CopyFrom(t.Context(), pgx.Identifier{"daybook", "migration"}, []string{"name"}, pgx.CopyFromRows([][]any{{l.key}}))
	l.note(err)
	_, err = io.WriteString(l, fmt.Sprint(l.key, &l.key, []ledger.Key{l.key}, map[string]ledger.Key{"k": l.key}, struct{ k ledger.Key }{l.key}))
	if err != nil {
		t.Error(err)
	}
}
