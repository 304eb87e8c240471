// Package cli_test runs the built daybook binary against a real PostgreSQL and compares what it writes with golden
// files. DAYBOOK_UPDATE_GOLDEN=1 writes them anew.
package cli_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience bounds what a command may take on a loaded machine.
const patience = 2 * time.Minute

// daybook is the built binary. It is built once: every test of the tool is a subtest of TestTool.
type daybook struct{ path string }

func build(t *testing.T) daybook {
	t.Helper()
	path := filepath.Join(t.TempDir(), "daybook")
	cmd := exec.Command("go", "build", "-o", path, "github.com/daybook-go/daybook/cmd/daybook")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build daybook: %v\n%s", err, out)
	}
	return daybook{path}
}

// call is one run of the tool.
type call struct {
	args  []string
	stdin string
	// url is the database; empty leaves DATABASE_URL unset.
	url string
	env []string
}

// result is how it ended.
type result struct {
	stdout, stderr string
	code           int
}

func (d daybook) command(ctx context.Context, c call) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.path, c.args...)
	cmd.Stdin = strings.NewReader(c.stdin)
	// Nothing of the developer's own environment may reach it, such as a DATABASE_URL or PGUSER.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TZ=Asia/Tokyo"}, c.env...)
	if c.url != "" {
		cmd.Env = append(cmd.Env, "DATABASE_URL="+c.url)
	}
	return cmd
}

func (d daybook) run(t *testing.T, c call) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := d.command(ctx, c)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("daybook %s: %v", strings.Join(c.args, " "), err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// ok runs a command that must end well, and returns what it wrote to standard output.
func (d daybook) ok(t *testing.T, c call) string {
	t.Helper()
	r := d.run(t, c)
	if r.code != 0 {
		t.Fatalf("daybook %s: exit code %d\n%s%s", strings.Join(c.args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}
