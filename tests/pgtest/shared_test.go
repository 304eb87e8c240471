package pgtest_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestOpenNeedsMain(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperVariable+"=without Main")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "pgtest.Main") {
		t.Errorf("Open before Main said %q, %v", out, err)
	}
}

func TestProcessesShareACluster(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The keeper may still be writing its last words.
		pgtest.WaitFor(t, long, func() bool { return os.RemoveAll(root) == nil }, "remove %s", root)
	})
	// As root the server is another user's process.
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{
		"DAYBOOK_PGTEST_DIR=" + root, "DAYBOOK_PGTEST_IDLE=1s",
		"DAYBOOK_TEST_DATABASE_URL=", "DATABASE_URL=",
	}

	// Both come before there is anything.
	second := make(chan *holder, 1)
	go func() { second <- startHolder(t, env...) }()
	a := startHolder(t, env...)
	b := <-second
	if a.dir != b.dir || a.serverStarted != b.serverStarted {
		t.Errorf("two servers: %s since %s, %s since %s", a.dir, a.serverStarted, b.dir, b.serverStarted)
	}
	if a.database == b.database {
		t.Errorf("both have %s", a.database)
	}
	if !strings.HasPrefix(a.dir, root) {
		t.Errorf("the cluster is in %s, not below %s", a.dir, root)
	}

	// What a killed process held goes when the next one comes; what is in use stays.
	exists := databaseExists(t, a.dir)
	b.kill()
	if !exists(b.database) {
		t.Errorf("%s went with its process: the rest shows nothing", b.database)
	}
	pgtest.WaitFor(t, long, func() bool {
		// The server ends the session of a killed process in its own time.
		next := startHolder(t, env...)
		next.end(t)
		return !exists(b.database)
	}, "%s is dropped", b.database)
	if !exists(a.database) {
		t.Errorf("%s, which is in use, was dropped", a.database)
	}

	// Neither the killed process nor the one that ends well keeps the server running.
	a.end(t)
	stopped := func() bool {
		_, err := localpg.Attach(t.Context(), a.dir)
		return errors.Is(err, localpg.ErrNotRunning)
	}
	pgtest.WaitFor(t, long, stopped, "the keeper stops the server")

	// The next process makes it again.
	c := startHolder(t, env...)
	if c.dir != a.dir || c.serverStarted == a.serverStarted {
		t.Errorf("the server of %s since %s was not started anew", c.dir, c.serverStarted)
	}
	server, err := localpg.Attach(t.Context(), c.dir)
	if err != nil {
		t.Fatal(err)
	}
	marker := filepath.Join(c.dir, "marker")
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	c.kill()

	// Killed without fsync, its files are not to be trusted.
	d := startHolder(t, env...)
	if _, err := os.Stat(marker); !os.IsNotExist(err) {
		t.Errorf("the crashed cluster was used again: %v", err)
	}
	d.end(t)
	pgtest.WaitFor(t, long, stopped, "the keeper stops the server again")
}

// databaseExists asks the server of a data folder for a database.
func databaseExists(t *testing.T, dataDir string) func(name string) bool {
	t.Helper()
	server, err := localpg.Attach(t.Context(), dataDir)
	if err != nil {
		t.Fatal(err)
	}
	return func(name string) (exists bool) {
		conn, err := pgx.Connect(t.Context(), server.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		err = conn.QueryRow(t.Context(), "select exists (select from pg_database where datname = $1)", name).Scan(&exists)
		if err != nil {
			t.Fatal(err)
		}
		return exists
	}
}

func TestNewCluster(t *testing.T) {
	t.Parallel()
	var dir string
	t.Run("a crash", func(t *testing.T) {
		cluster := pgtest.NewCluster(t, map[string]string{"log_statement": "all"})
		dir = cluster.DataDir
		db := cluster.New(t)
		if got := query1[string](t, db.Pool, "select current_setting('fsync') || current_setting('log_statement')"); got != "onall" {
			t.Errorf("fsync and log_statement are %s", got)
		}
		db.Exec(t, "create table kept as select 'needle'::text as v")
		if err := cluster.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The old pool's connections are dead; a new one finds what was committed at the old URL.
		conn, err := pgx.Connect(t.Context(), db.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		var v string
		if err := conn.QueryRow(t.Context(), "select v from kept").Scan(&v); err != nil || v != "needle" {
			t.Errorf("after the crash: %q, %v", v, err)
		}
		log, err := os.ReadFile(cluster.LogFile)
		if err != nil || !strings.Contains(string(log), "needle") {
			t.Errorf("the statement is not in %s: %v", cluster.LogFile, err)
		}
	})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}
