package pgtest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/tests/pgtest"
)

// helperVariable makes the test binary play another test process, for tests about several of them.
const helperVariable = "DAYBOOK_PGTEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperVariable) {
	case "without Main":
		_, err := pgtest.Open(context.Background())
		fmt.Println(err)
		os.Exit(0)
	case "hold":
		// The only test is the one that takes a database and holds it until told to end.
		_ = os.Setenv("DAYBOOK_PGTEST_HOLD", "1")
	}
	pgtest.Main(m)
}

// TestHold is the body of a helper process: it takes a database, tells which server it is on, and
// ends when its standard input does. As an ordinary test it holds nothing.
func TestHold(t *testing.T) {
	db := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var dir, started string
	err = conn.QueryRow(t.Context(),
		"select current_setting('data_directory'), pg_postmaster_start_time()::text").Scan(&dir, &started)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("DAYBOOK_PGTEST_HOLD") == "" {
		return
	}
	fmt.Printf("HOLDS %s\t%s\t%s\n", dir, started, db.Name)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// holder is a helper process that holds a database.
type holder struct {
	cmd           *exec.Cmd
	stdin         io.Closer
	dir           string // data folder of its server
	serverStarted string
	database      string
}

// startHolder starts a helper process and returns when it holds a database.
func startHolder(t *testing.T, env ...string) *holder {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHold$", "-test.timeout=2m")
	cmd.Env = append(append(os.Environ(), helperVariable+"=hold"), env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &holder{cmd: cmd, stdin: stdin}
	t.Cleanup(func() { h.kill() })
	var said []string
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		said = append(said, lines.Text())
		if rest, ok := strings.CutPrefix(lines.Text(), "HOLDS "); ok {
			fields := strings.Split(rest, "\t")
			h.dir, h.serverStarted, h.database = fields[0], fields[1], fields[2]
			return h
		}
	}
	t.Fatalf("the helper process ended:\n%s", strings.Join(said, "\n"))
	return nil
}

// end lets the process end as a test process does.
func (h *holder) end(t *testing.T) {
	t.Helper()
	_ = h.stdin.Close()
	if err := h.cmd.Wait(); err != nil {
		t.Errorf("helper process: %v", err)
	}
}

// kill ends the process with SIGKILL.
func (h *holder) kill() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

const long = time.Minute
