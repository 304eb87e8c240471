package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
)

func TestMayPass(t *testing.T) {
	t.Parallel()
	server := func(code string) error { return &pgconn.PgError{Code: code} }
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"none", nil, false},
		{"another", errors.New("unexpected EOF"), false},
		{"deadlock", server("40P01"), true},
		{"terminated", server("57P01"), true},
		{"statement_timeout", server("57014"), true},
		{"a replica", server("25006"), true},
		{"no privilege", server("42501"), false},
		{"connection refused", &net.OpError{Op: "dial", Err: errors.New("connection refused")}, true},
		{"the call's deadline", context.DeadlineExceeded, false},
		{"the call's end", context.Canceled, false},
	} {
		if got := ledger.MayPass(test.err); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if test.err == nil {
			continue
		}
		if got := ledger.MayPass(fmt.Errorf("call: %w", test.err)); got != test.want {
			t.Errorf("%s, wrapped: %v, want %v", test.name, got, test.want)
		}
	}
}

// A server that takes connections and never answers: whoever cannot connect in connect_timeout tries again, and a loop under
// a deadline ends with it.
func TestMayPassOfAServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	pool, err := pgxpool.New(t.Context(), fmt.Sprintf("postgres://u@%s/d?sslmode=disable&connect_timeout=1", listener.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := pool.Ping(t.Context()); !ledger.MayPass(err) {
		t.Errorf("could not connect in time: %v", err)
	}
	for _, end := range []func(context.Context) (context.Context, context.CancelFunc){
		func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 100*time.Millisecond)
		},
		func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(100*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := end(t.Context())
		calls := 1
		for err = pool.Ping(ctx); ledger.MayPass(err) && calls < 10; err = pool.Ping(ctx) {
			calls++
		}
		if ctx.Err() == nil || ledger.MayPass(err) {
			t.Errorf("after %d calls the loop would go on: %v", calls, err)
		}
		cancel()
	}
}
