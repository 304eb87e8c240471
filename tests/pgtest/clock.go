package pgtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// clock is how daybook.clock() of a database was replaced. The zero value is the migrations' own.
type clock struct {
	frozen bool
	at     time.Time     // while frozen
	offset time.Duration // otherwise, from the server's clock
}

// The clock is moved by replacing the function itself, in the same language and with the same
// volatility, so that PostgreSQL inlines it as it does the real one and every plan that has it is
// made anew. A call that is under way may still see the old clock.

// FreezeClock makes daybook.clock() stand at an instant, in every session.
func (db *DB) FreezeClock(t testing.TB, at time.Time) {
	t.Helper()
	db.moveClock(t, func(clock) clock { return clock{frozen: true, at: at.Truncate(time.Microsecond)} })
}

// SetClock makes daybook.clock() run on from an instant, in every session.
func (db *DB) SetClock(t testing.TB, at time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var now time.Time
	err := db.ask(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "select clock_timestamp()").Scan(&now)
	})
	if err != nil {
		t.Fatalf("read the clock: %v", err)
	}
	db.moveClock(t, func(clock) clock { return clock{offset: at.Sub(now)} })
}

// AdvanceClock moves daybook.clock() on by a duration, or back by a negative one. A frozen clock
// stays frozen.
func (db *DB) AdvanceClock(t testing.TB, by time.Duration) {
	t.Helper()
	db.moveClock(t, func(c clock) clock {
		if c.frozen {
			c.at = c.at.Add(by)
		} else {
			c.offset += by
		}
		return c
	})
}

// ResetClock lets daybook.clock() be the server's clock again.
func (db *DB) ResetClock(t testing.TB) {
	t.Helper()
	db.moveClock(t, func(clock) clock { return clock{} })
}

// Clock returns what daybook.clock() says, in UTC.
func (db *DB) Clock(t testing.TB) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var now time.Time
	err := db.ask(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "select daybook.clock()").Scan(&now)
	})
	if err != nil {
		t.Fatalf("read daybook.clock(): %v", err)
	}
	return now.UTC()
}

func (db *DB) moveClock(t testing.TB, move func(clock) clock) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// Held throughout: two sessions can't replace one function at the same time.
	db.mu.Lock()
	defer db.mu.Unlock()
	next := move(db.clock)
	err := db.ask(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, fmt.Sprintf("create or replace function daybook.clock() returns timestamptz "+
			"language sql volatile as $clock$select %s$clock$", next.sql()))
		return err
	})
	if err != nil {
		t.Fatalf("move daybook.clock(): %v", err)
	}
	db.clock = next
}

// sql is an expression for what the clock says.
func (c clock) sql() string {
	if c.frozen {
		return "timestamptz '" + c.at.UTC().Format("2006-01-02 15:04:05.000000+00") + "'"
	}
	if c.offset == 0 {
		return "clock_timestamp()"
	}
	return fmt.Sprintf("clock_timestamp() + interval '%d microseconds'", c.offset.Microseconds())
}

// ask runs something on a connection of its own: the test may have taken all of the pool's.
func (db *DB) ask(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, db.URL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return do(conn)
}
