package migrations_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/migrations"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestUp(t *testing.T) {
	t.Parallel()
	all, err := migrations.All()
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, pgtest.New(t, pgtest.Empty()).URL)
	first, err := migrations.Up(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	want := migrations.Result{Applied: all, Version: all[len(all)-1].Version}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	history := ask(t, conn, `select string_agg(concat_ws(' ', version, name, checksum), ', ' order by version) from daybook.migration`)
	var recorded []string
	for _, m := range all {
		recorded = append(recorded, fmt.Sprint(m.Version, " ", m.Name, " ", m.Checksum))
	}
	if diff := cmp.Diff(strings.Join(recorded, ", "), history); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	// The session is its user's again, and holds no lock.
	if got := ask(t, conn, `select current_user::text || (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory')`); got != ask(t, conn, `select session_user::text || 0`) {
		t.Errorf("afterwards: %s", got)
	}

	again, err := migrations.Up(t.Context(), conn)
	if diff := cmp.Diff(migrations.Result{Version: want.Version}, again); diff != "" || err != nil {
		t.Errorf("again, %v (-want +got):\n%s", err, diff)
	}
}

func TestUpOnTheLatePart(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.New(t, pgtest.Empty()).URL)
	all, err := migrations.All()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrations.Up(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	// As if an older build had been at work, which knew all but the last.
	last := all[len(all)-1]
	if _, err := conn.Exec(t.Context(), `delete from daybook.migration where version = $1`, last.Version); err != nil {
		t.Fatal(err)
	}
	_, err = migrations.Up(t.Context(), conn)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("migration %d (%s)", last.Version, last.Name)) {
		t.Errorf("only the pending one is applied, and here it is there already: %v", err)
	}
}

func TestUpByManyAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Empty())
	applied := make([]int, 8)
	var wait sync.WaitGroup
	for i := range applied {
		conn := connect(t, db.URL)
		wait.Go(func() {
			result, err := migrations.Up(t.Context(), conn)
			if err != nil {
				t.Error(err)
			}
			applied[i] = len(result.Applied)
		})
	}
	wait.Wait()
	all, err := migrations.All()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range applied {
		total += n
		if n != 0 && n != len(all) {
			t.Errorf("one of them applied %d of %d", n, len(all))
		}
	}
	if total != len(all) {
		t.Errorf("applied %v of %d", applied, len(all))
	}
}

func TestUpRefusesAnotherHistory(t *testing.T) {
	t.Parallel()
	all, err := migrations.All()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		alter string
		want  migrations.ChangedError
		says  string
	}{
		"a changed migration": {
			`update daybook.migration set checksum = repeat('0', 64) where version = 7`,
			migrations.ChangedError{Version: 7, Applied: strings.Repeat("0", 64), Embedded: checksum(all, 7)},
			"migration 7 was applied with checksum 000000000000, this build has " + checksum(all, 7)[:12],
		},
		"a newer database": {
			`insert into daybook.migration (version, name, checksum) values (9999, 'future', repeat('1', 64))`,
			migrations.ChangedError{Version: 9999, Applied: strings.Repeat("1", 64)},
			"migration 9999, which this build does not know; use the Daybook version that applied it, or a later one",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, pgtest.New(t).URL)
			if _, err := conn.Exec(t.Context(), test.alter); err != nil {
				t.Fatal(err)
			}
			result, err := migrations.Up(t.Context(), conn)
			var changed *migrations.ChangedError
			if !errors.As(err, &changed) || *changed != test.want || !strings.Contains(err.Error(), test.says) || result.Applied != nil {
				t.Errorf("%+v, %v", result, err)
			}
		})
	}
}

func checksum(all []migrations.Migration, version int) string {
	for _, m := range all {
		if m.Version == version {
			return m.Checksum
		}
	}
	return ""
}

// A failure on the way leaves nothing behind, and the next attempt starts from the beginning.
func TestUpFailsWhole(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.New(t, pgtest.Empty()).URL)
	execute(t, conn, `
		create function public.refuse() returns event_trigger language plpgsql as $$
		begin
			if exists (select from pg_event_trigger_ddl_commands() where object_identity = 'daybook.feed') then
				raise exception 'no feed here';
			end if;
		end $$;
		create event trigger refuse on ddl_command_end execute function public.refuse()`)
	for range 2 {
		_, err := migrations.Up(t.Context(), conn)
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || !strings.Contains(err.Error(), "migration 19 (feed): ERROR: no feed here") {
			t.Errorf("error %v", err)
		}
		if got := ask(t, conn, `select count(*)::text from pg_namespace where nspname like 'daybook%'`); got != "0" {
			t.Errorf("%s schemas left behind", got)
		}
	}
	execute(t, conn, `drop event trigger refuse`)
	if _, err := migrations.Up(t.Context(), conn); err != nil {
		t.Error(err)
	}
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestUpWantsUTF8(t *testing.T) {
	t.Parallel()
	admin := connect(t, pgtest.New(t, pgtest.Empty()).URL)
	name := ask(t, admin, `select current_database()::text || '_ascii'`)
	quoted := pgx.Identifier{name}.Sanitize()
	execute(t, admin, `create database `+quoted+` template template0 encoding 'SQL_ASCII' locale 'C'`)
	config := admin.Config().Copy()
	config.Database = name
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = migrations.Up(t.Context(), conn)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || !strings.Contains(pgErr.Message, "encoding UTF8, this one has SQL_ASCII") || pgErr.Hint == "" {
		t.Errorf("error %v", err)
	}
	if got := ask(t, conn, `select count(*)::text from pg_namespace where nspname like 'daybook%'`); got != "0" {
		t.Errorf("%s schemas left behind", got)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	execute(t, admin, `drop database `+quoted)
}
