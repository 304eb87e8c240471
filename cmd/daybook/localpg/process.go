package localpg

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// poll is the time between two looks at something that sends no word of its own.
const poll = 10 * time.Millisecond

// process is a server process, started here or found.
type process struct {
	pid int
	// exited is closed when a child of this process has ended, and nil for a found one.
	exited chan struct{}
}

// startProcess starts the command. With tied, the kernel stops it when this process dies.
func startProcess(cmd *exec.Cmd, owner *identity, tied bool) (*process, error) {
	setAttributes(cmd, owner, tied)
	p := &process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux takes "the parent died" to mean the thread that forked. Held here until the
		// server has ended, that thread ends with this process and never before.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			// How a server ended is in its log; here it only matters that it has.
			_ = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// alive reports whether the process is still running.
func (p *process) alive() bool {
	if p.exited != nil {
		select {
		case <-p.exited:
			return false
		default:
			return true
		}
	}
	return isPostgres(p.pid)
}

// wait returns when the process has ended, or with the context's error.
func (p *process) wait(ctx context.Context) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for p.alive() {
		select {
		case <-p.exited: // never, when it is nil
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// command prepares one of PostgreSQL's programs with an environment of its own: PGDATA, PGPORT or a
// locale of the caller's would change what it does, and HOME would be of another user.
func command(bins Binaries, program, dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(bins.Path(program), args...)
	cmd.Dir = dir
	cmd.Env = []string{"LC_ALL=C"}
	for _, name := range []string{"PATH", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd
}

// runContext runs the command to its end and returns all it printed. Unlike exec.CommandContext it
// takes a command that is made already.
func runContext(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !stop() && ctx.Err() != nil {
		err = ctx.Err()
	}
	return strings.TrimSpace(out.String()), err
}
