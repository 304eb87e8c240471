package main

import (
	"testing"

	"github.com/daybook-go/daybook/migrations"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Each mutation is of the SQL that there is, and PostgreSQL takes it: one that does not build would fail every test, and
// count as caught, or be noticed only where somebody runs them all.
func TestMutationsBuild(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	all, err := migrations.All()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range mutations() {
		if names[m.name] {
			t.Errorf("%s: there are two of that name", m.name)
		}
		names[m.name] = true
		statement, err := m.statement(all)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		tx, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		// The next one breaks what is whole, in the role that this one had taken on.
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
