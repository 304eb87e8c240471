package tests

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// openFolder returns a folder that the server's user can enter too; t.TempDir would be closed to it
// as root.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "localpg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startServer starts a cluster that is gone with the test.
func startServer(t *testing.T, cfg localpg.Config) *localpg.Server {
	t.Helper()
	server, err := localpg.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background(), localpg.Immediate); err != nil {
			t.Error(err)
		}
	})
	return server
}

// ask returns the one text that a query answers.
func ask(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var answer string
	if err := conn.QueryRow(t.Context(), sql).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func TestLocalServerLife(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openFolder(t), "not yet", "there")
	settings := map[string]string{"work_mem": "5MB", "daybook.test": `it's a \ "test"`, "fsync": "off"}
	cfg := localpg.Config{DataDir: dir, Settings: settings}
	server := startServer(t, cfg)
	if server.Attached || server.Pid() == 0 || server.SocketDir == "" {
		t.Errorf("started: attached %v, pid %d, socket in %q", server.Attached, server.Pid(), server.SocketDir)
	}
	for sql, want := range map[string]string{
		"show work_mem":         "5MB",
		"show daybook.test":     settings["daybook.test"],
		"show server_encoding":  "UTF8",
		"show listen_addresses": "127.0.0.1",
		"select datcollate || ' ' || datctype from pg_database where datname = 'postgres'": "C C",
		"select current_user::text": "postgres",
	} {
		if got := ask(t, server.URL(), sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
	viaSocket := fmt.Sprintf("host='%s' port=%d user=postgres dbname=postgres", server.SocketDir, server.Port())
	if got := ask(t, viaSocket, "select coalesce(host(inet_client_addr()), 'socket')"); got != "socket" {
		t.Errorf("through the socket: client address %s", got)
	}

	// Whoever starts it again gets the one that runs, whatever else they ask for.
	again, err := localpg.Start(t.Context(), localpg.Config{DataDir: dir, Settings: map[string]string{"work_mem": "6MB"}})
	if err != nil {
		t.Fatal(err)
	}
	found, err := localpg.Attach(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []*localpg.Server{again, found} {
		if !other.Attached || other.Pid() != server.Pid() || other.URL() != server.URL() || other.LogFile != server.LogFile {
			t.Errorf("attached %v to pid %d at %s, want pid %d at %s",
				other.Attached, other.Pid(), other.URL(), server.Pid(), server.URL())
		}
	}
	if got := ask(t, again.URL(), "show work_mem"); got != "5MB" {
		t.Errorf("attaching changed work_mem to %s", got)
	}

	// SIGKILL: what was committed is there afterwards, at the same URL.
	pid := server.Pid()
	execute(t, server.URL(), "create table kept as select 1", "alter system set work_mem = '7MB'")
	if err := found.Kill(); err != nil {
		t.Fatal(err)
	}
	if server.Pid() != 0 || again.Pid() != 0 {
		t.Errorf("after Kill: pids %d, %d", server.Pid(), again.Pid())
	}
	if _, err := localpg.Attach(t.Context(), dir); !errors.Is(err, localpg.ErrNotRunning) {
		t.Errorf("Attach to a killed server: %v", err)
	}
	url := server.URL()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if server.URL() != url || server.Pid() == pid || server.Pid() == 0 {
		t.Errorf("restarted at %s with pid %d; before, %s with pid %d", server.URL(), server.Pid(), url, pid)
	}
	if got := ask(t, url, "select count(*)::text from kept"); got != "1" {
		t.Errorf("kept has %s rows", got)
	}
	if got := ask(t, url, "show work_mem"); got != "7MB" {
		t.Errorf("work_mem after ALTER SYSTEM is %s", got)
	}
	if err := again.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("restart under the feet of the one who runs it: %v", err)
	}

	// Somebody kills only the server process, and starts it at once: its orphans need a moment to
	// notice.
	only, err := os.FindProcess(server.Pid())
	if err != nil {
		t.Fatal(err)
	}
	if err := only.Kill(); err != nil {
		t.Fatal(err)
	}
	pgtest.WaitFor(t, time.Minute, func() bool { return server.Pid() == 0 }, "the server is dead")
	server = startServer(t, cfg)
	if server.Attached {
		t.Error("attached to a dead server")
	}

	if err := server.Stop(t.Context(), localpg.Fast); err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(t.Context(), localpg.Immediate); err != nil {
		t.Errorf("second stop: %v", err)
	}
	if tail := server.LogTail(1); !strings.Contains(tail, "shut down") {
		t.Errorf("the log ends with %q", tail)
	}
}

func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// Two that start one folder at the same time both get it, on a path too long for a socket.
func TestLocalServerStartedTwiceAtOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openFolder(t), strings.Repeat("long", 25))
	type result struct {
		server *localpg.Server
		err    error
	}
	results := make(chan result, 2)
	for range 2 {
		go func() {
			server, err := localpg.Start(t.Context(), localpg.Config{DataDir: dir, Settings: map[string]string{"fsync": "off"}})
			results <- result{server, err}
		}()
	}
	a, b := <-results, <-results
	for _, r := range []result{a, b} {
		if r.err != nil {
			t.Fatal(r.err)
		}
		t.Cleanup(func() { _ = r.server.Stop(context.Background(), localpg.Immediate) })
	}
	if a.server.Attached == b.server.Attached || a.server.Pid() != b.server.Pid() {
		t.Errorf("pid %d attached %v, pid %d attached %v", a.server.Pid(), a.server.Attached, b.server.Pid(), b.server.Attached)
	}
	for _, r := range []result{a, b} {
		if r.server.SocketDir != "" {
			t.Errorf("a socket in %s", r.server.SocketDir)
		}
		if got := ask(t, r.server.URL(), "select 'yes'"); got != "yes" {
			t.Errorf("without a socket: %s", got)
		}
	}
}

func TestLocalServerRefusals(t *testing.T) {
	t.Parallel()
	t.Run("a folder with something else in it", func(t *testing.T) {
		t.Parallel()
		dir := openFolder(t)
		if err := os.WriteFile(filepath.Join(dir, "letter.txt"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		wantStartError(t, localpg.Config{DataDir: dir}, "not empty", "letter.txt")
	})
	t.Run("a cluster of a version that is not installed", func(t *testing.T) {
		t.Parallel()
		dir := openFolder(t)
		if err := os.WriteFile(filepath.Join(dir, "PG_VERSION"), []byte("11\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		wantStartError(t, localpg.Config{DataDir: dir}, "PostgreSQL 11")
		_, err := localpg.Start(t.Context(), localpg.Config{DataDir: dir})
		var missing *localpg.NotFoundError
		if !errors.As(err, &missing) || missing.Major != 11 {
			t.Errorf("error %#v", err)
		}
	})
	t.Run("no binaries", func(t *testing.T) {
		t.Parallel()
		dir := openFolder(t)
		wantStartError(t, localpg.Config{DataDir: filepath.Join(dir, "data"), BinDir: dir}, dir+" has no server binaries")
	})
	t.Run("a setting that the server does not take", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(openFolder(t), "data")
		cfg := localpg.Config{DataDir: dir, Settings: map[string]string{"work_mem": "plenty", "fsync": "off"}}
		wantStartError(t, cfg, "server.log", `invalid value for parameter "work_mem": "plenty"`)
		// The cluster itself is good, and once that is put right it starts.
		delete(cfg.Settings, "work_mem")
		startServer(t, cfg)
	})
	t.Run("a taken port", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t, pgtest.Empty())
		port := db.Pool.Config().ConnConfig.Port
		dir := filepath.Join(openFolder(t), "data")
		wantStartError(t, localpg.Config{DataDir: dir, Port: int(port)}, "Address already in use")
	})
	t.Run("a context that ends", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := localpg.Start(ctx, localpg.Config{DataDir: filepath.Join(openFolder(t), "data")})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a closed folder", func(t *testing.T) {
		t.Parallel()
		closed := openFolder(t)
		if err := os.Chmod(closed, 0o700); err != nil {
			t.Fatal(err)
		}
		cfg := localpg.Config{DataDir: filepath.Join(closed, "data"), Settings: map[string]string{"fsync": "off"}}
		if os.Geteuid() != 0 {
			startServer(t, cfg) // closed to others only
			return
		}
		wantStartError(t, cfg, "may not enter "+closed, "chmod o+x "+closed)
	})
	t.Run("not running", func(t *testing.T) {
		t.Parallel()
		for _, dir := range []string{openFolder(t), "/nowhere/at/all"} {
			if _, err := localpg.Attach(t.Context(), dir); !errors.Is(err, localpg.ErrNotRunning) {
				t.Errorf("Attach to %s: %v", dir, err)
			}
		}
	})
}

func wantStartError(t *testing.T, cfg localpg.Config, want ...string) {
	t.Helper()
	server, err := localpg.Start(t.Context(), cfg)
	if err == nil {
		_ = server.Stop(context.Background(), localpg.Immediate)
		t.Fatal("it started")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error lacks %q:\n%v", w, err)
		}
	}
}

// startServerAndHang is a helper process: it starts a server, says so, and waits to be killed.
func startServerAndHang() {
	_, err := localpg.Start(context.Background(), localpg.Config{
		DataDir:  os.Getenv("HELPER_DATA_DIR"),
		Detached: os.Getenv("HELPER_DETACHED") == "yes",
		Settings: map[string]string{"fsync": "off"},
	})
	fmt.Println("started:", err)
	select {}
}

func TestLocalServerAndTheDeathOfItsProcess(t *testing.T) {
	t.Parallel()
	for _, detached := range []string{"yes", "no"} {
		t.Run("detached "+detached, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(openFolder(t), "data")
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), helperVariable+"=start a server", "HELPER_DATA_DIR="+dir, "HELPER_DETACHED="+detached)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(stdout).ReadString('\n')
			kill := errors.Join(err, cmd.Process.Kill())
			_ = cmd.Wait()
			if kill != nil || !strings.Contains(line, "<nil>") {
				t.Fatalf("helper said %q, %v", line, kill)
			}
			running := func() bool {
				server, err := localpg.Attach(t.Context(), dir)
				if err == nil {
					t.Cleanup(func() { _ = server.Stop(context.Background(), localpg.Immediate) })
				}
				return err == nil
			}
			if detached == "no" && runtime.GOOS == "linux" {
				pgtest.WaitFor(t, time.Minute, func() bool { return !running() }, "the server dies with its process")
			} else if !running() {
				t.Error("the server died with its process")
			}
		})
	}
}
