package migrations_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
	"github.com/daybook-go/daybook/migrations"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// Who applies the script with a tool of their own gets the same schema as who calls Up, and the same history.
func TestPrintedScriptEqualsUp(t *testing.T) {
	t.Parallel()
	up, printed := pgtest.New(t, pgtest.Empty()), pgtest.New(t, pgtest.Empty())
	if _, err := migrations.Up(t.Context(), connect(t, up.URL)); err != nil {
		t.Fatal(err)
	}
	var script bytes.Buffer
	if err := migrations.Print(&script); err != nil {
		t.Fatal(err)
	}
	apply(t, printed, script.String())
	if diff := cmp.Diff(schema(t, up), schema(t, printed)); diff != "" {
		t.Errorf("schema (-Up +Print):\n%s", diff)
	}
	result, err := migrations.Up(t.Context(), connect(t, printed.URL))
	if err != nil || len(result.Applied) != 0 {
		t.Errorf("Up after the script: %d applied, %v", len(result.Applied), err)
	}
}

func TestPrintTellsOfAFailedWriter(t *testing.T) {
	t.Parallel()
	if err := migrations.Print(brokenPipe{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v", err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, os.ErrClosed }

// client is where a client program is, "" where this installation has none that is fit for the server.
func client(t *testing.T, db *pgtest.DB, name string) string {
	t.Helper()
	binaries, err := localpg.Find()
	if err != nil {
		return "" // the server is another machine's
	}
	major, err := strconv.Atoi(ask(t, connect(t, db.URL), `select (current_setting('server_version_num')::integer / 10000)::text`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binaries.Path(name)); err != nil || binaries.Major < major {
		return ""
	}
	return binaries.Path(name)
}

// apply runs a script as psql does; without psql, the same way over a connection.
func apply(t *testing.T, db *pgtest.DB, script string) {
	t.Helper()
	psql := client(t, db, "psql")
	if psql == "" {
		if err := pgx.BeginFunc(t.Context(), connect(t, db.URL), func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), script)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return
	}
	file := filepath.Join(t.TempDir(), "daybook.sql")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), psql, "--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1",
		"--file="+file, db.URL).CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
}

// schema is what pg_dump says of a schema; without pg_dump, what the catalogs say of its functions, tables and rights.
func schema(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	dump := client(t, db, "pg_dump")
	if dump == "" {
		return ask(t, connect(t, db.URL), `
			select string_agg(line, E'\n' order by line) from (
				select pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '') || p.proowner::regrole as line
				from pg_proc as p where p.pronamespace::regnamespace::text like 'daybook%'
				union all
				select concat_ws(' ', c.oid::regclass, c.relowner::regrole, c.relacl, c.reloptions, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attacl)
				from pg_class as c left join pg_attribute as a on a.attrelid = c.oid where c.relnamespace::regnamespace::text like 'daybook%'
				union all
				select pg_get_triggerdef(t.oid) || t.tgenabled::text from pg_trigger as t where t.tgrelid::regclass::text like 'daybook%'
				union all
				select pg_get_constraintdef(c.oid) from pg_constraint as c where c.conrelid::regclass::text like 'daybook%'
			) as l`)
	}
	out, err := exec.CommandContext(t.Context(), dump, "--schema-only", "--no-comments", db.URL).Output()
	if err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	var lines []string
	for _, line := range strings.Split(string(out), "\n") {
		// Newer releases of pg_dump give each dump a random word.
		if !strings.HasPrefix(line, `\restrict`) && !strings.HasPrefix(line, `\unrestrict`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
