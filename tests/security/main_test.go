// Package security_test holds the tests of what nobody may do: alter the ledger, read what is not theirs, see a key.
package security_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func newQueue(t *testing.T, config commands.Config) *commands.Queue {
	t.Helper()
	queue, err := commands.NewQueue(config)
	if err != nil {
		t.Fatal(err)
	}
	return queue
}

func request(key ledger.Key, n int) commands.EnqueueOptions {
	return commands.EnqueueOptions{
		Type:        "work",
		Payload:     map[string]int{"n": n},
		Idempotency: &commands.Idempotency{Key: key},
	}
}

func code(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return fmt.Sprint(err)
}

// column returns the single column that a query answers, as text.
func column(t *testing.T, db ledger.Querier, sql string, args ...any) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return texts
}

// login makes a role of the test's own that can log in, owns a schema, and is a member of one of Daybook's roles:
// what an application, or an intruder in one, is. It is gone when the test ends.
func login(t *testing.T, db *pgtest.DB, member string) (pool *pgxpool.Pool, name string) {
	t.Helper()
	name = "login_" + uuid.NewString()
	quoted := pgx.Identifier{name}.Sanitize()
	db.Exec(t, `create role `+quoted+` login inherit password '`+name+`' in role `+member)
	db.Exec(t, `create schema `+quoted+` authorization `+quoted)
	db.Exec(t, `grant temporary on database `+pgx.Identifier{db.Name}.Sanitize()+` to `+quoted)
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, name)
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 2
	pool, err = pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		if _, err := db.Pool.Exec(context.Background(), `drop owned by `+quoted+`; drop role `+quoted); err != nil {
			t.Error(err)
		}
	})
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatalf("log in as a role of our own: %v", err)
	}
	return pool, name
}
