package jobs_test

import (
	"context"
	"time"

	"github.com/daybook-go/daybook/tests/pgtest"
)

// steerClock makes daybook.clock() read a table. It is moved by one statement and, unlike a replaced function, it also
// moves for a call that is under way.
func steerClock(t fataler, db *pgtest.DB, at time.Time) {
	t.Helper()
	for _, statement := range []string{
		`create table public.steered (at timestamptz not null)`,
		`grant select on public.steered to daybook_owner, daybook_app`,
		`create or replace function daybook.clock() returns timestamptz language sql volatile
			as 'select s.at from public.steered as s'`,
	} {
		if _, err := db.Pool.Exec(context.Background(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Pool.Exec(context.Background(), "insert into public.steered values ($1)", at); err != nil {
		t.Fatal(err)
	}
}

func steerTo(t fataler, db *pgtest.DB, at time.Time) {
	t.Helper()
	if _, err := db.Pool.Exec(context.Background(), "update public.steered set at = $1", at); err != nil {
		t.Fatal(err)
	}
}
