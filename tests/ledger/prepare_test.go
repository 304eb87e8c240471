package ledger_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/tests/pgtest"
)

// Every statement that is embedded from a file must be one that PostgreSQL takes.
func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	root := os.DirFS("../..")
	found := map[string]int{}
	for _, folder := range []string{"ledger", "commands", "outbox", "projections", "cmd"} {
		err := fs.WalkDir(root, folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".sql" {
				return err
			}
			found[folder]++
			text, err := fs.ReadFile(root, path)
			if err != nil {
				return err
			}
			prepare(t, db, path, string(text))
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if found["ledger"] == 0 || found["commands"] == 0 {
		t.Errorf("files of statements: %v", found)
	}
}

func prepare(t *testing.T, db *pgtest.DB, path, text string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	// A projection's statements name its tables without a schema: a rebuild runs them on shadow tables.
	if strings.HasPrefix(path, "projections/") {
		if _, err := conn.Exec(t.Context(), `set search_path = daybook`); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Prepare(t.Context(), "statement", text); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}
