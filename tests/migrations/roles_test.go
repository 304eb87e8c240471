package migrations_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/daybook-go/daybook/migrations"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// Roles belong to the cluster, so what happens to a cluster that has none of Daybook's yet is tried in ones of our own.
func TestUpInAClusterWithoutRoles(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"fsync": "off", "autovacuum": "off"}

	t.Run("two databases at once", func(t *testing.T) {
		t.Parallel()
		cluster := pgtest.NewCluster(t, settings)
		var wait sync.WaitGroup
		for range 3 {
			conn := connect(t, cluster.New(t, pgtest.Empty()).URL)
			wait.Go(func() {
				if result, err := migrations.Up(t.Context(), conn); err != nil || len(result.Applied) == 0 {
					t.Errorf("%d applied, %v", len(result.Applied), err)
				}
			})
		}
		wait.Wait()
	})

	t.Run("by one who is no superuser", func(t *testing.T) {
		t.Parallel()
		cluster := pgtest.NewCluster(t, settings)
		db := cluster.New(t, pgtest.Empty())
		admin := connect(t, db.URL)
		execute(t, admin, `create role migrator login createrole password 'migrator'`)
		execute(t, admin, `create role application login password 'application'`)
		migrator := connect(t, as(t, db, "migrator"))

		// Without CREATE on the database, without CREATEROLE: it says what is missing, and leaves nothing.
		for who, conn := range map[string]string{"migrator": as(t, db, "migrator"), "application": as(t, db, "application")} {
			_, err := migrations.Up(t.Context(), connect(t, conn))
			if err == nil || !strings.Contains(err.Error(), "migrate as a superuser, or as a user with CREATEROLE and CREATE on the database") {
				t.Errorf("%s without rights: %v", who, err)
			}
		}
		if got := ask(t, admin, `select count(*)::text from pg_roles where rolname like 'daybook%'`); got != "0" {
			t.Errorf("%s roles left behind", got)
		}

		execute(t, admin, `grant create on database `+`"`+db.Name+`" to migrator`)
		for _, applied := range []bool{true, false} {
			result, err := migrations.Up(t.Context(), migrator)
			if err != nil || (len(result.Applied) > 0) != applied {
				t.Fatalf("%d applied, %v", len(result.Applied), err)
			}
		}
		if got := ask(t, admin, `
			select string_agg(distinct relowner::regrole::text, ', ')
			from pg_class where relnamespace = 'daybook'::regnamespace`); got != "daybook_owner" {
			t.Errorf("tables belong to %s", got)
		}
		// Others may look whether the schema is up to date only where they have been let in.
		_, err := migrations.Up(t.Context(), connect(t, as(t, db, "application")))
		if err == nil || !strings.Contains(err.Error(), "migrate as a superuser") {
			t.Errorf("an application without rights: %v", err)
		}
		// A second database in the same cluster, where the roles exist already.
		other := cluster.New(t, pgtest.Empty())
		execute(t, admin, `grant create on database `+`"`+other.Name+`" to migrator`)
		if _, err := migrations.Up(t.Context(), connect(t, as(t, other, "migrator"))); err != nil {
			t.Errorf("the second database: %v", err)
		}
	})
}
