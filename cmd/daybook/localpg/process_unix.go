//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func supported() error { return nil }

// state returns the state letter and the name of a process, both empty when there is none. The
// name in ps may be a whole path.
func state(pid int) (letter, name string) {
	// Linux: "pid (name) S …". The name may itself have parentheses.
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		stat := string(text)
		open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
		if open < 0 || end < open || end+2 >= len(stat) {
			return "", ""
		}
		return stat[end+2 : end+3], stat[open+1 : end]
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		return "", ""
	}
	out, err := exec.Command("ps", "-o", "stat=,comm=", "-p", strconv.Itoa(pid)).Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 2 {
		return "", ""
	}
	return fields[0][:1], filepath.Base(fields[len(fields)-1])
}

// isPostgres reports whether the process runs and is a PostgreSQL: after a crash the number may
// have gone to anything. A zombie does not count, and where nobody reaps orphans it stays one.
func isPostgres(pid int) bool {
	letter, name := state(pid)
	return letter != "" && letter != "Z" && letter != "X" && (name == "postgres" || name == "postmaster")
}

// servesFrom reports whether a PostgreSQL process can be the server of a data folder, which it makes
// its working folder. Where the system does not tell, it can.
func servesFrom(pid int, dataDir string) bool {
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return err != nil || dir == dataDir
}

// signalStop asks the server to shut down: fast ends its sessions first, immediate aborts without a
// checkpoint.
func signalStop(pid int, mode StopMode) error {
	sig := syscall.SIGINT
	if mode == Immediate {
		sig = syscall.SIGQUIT
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}

// killServer kills the server of a folder and all its processes. The few bytes of System V memory
// by which a server makes sure that it is alone would outlive it, and where the folder is never
// used again, for good; macOS has room for 32 of them.
func killServer(pid int, dataDir string) error {
	file, fileErr := readPidFile(dataDir)
	if err := killAll(pid); err != nil {
		return err
	}
	if fileErr == nil && file.pid == pid && file.memoryID != "" {
		// The next start would do without it, so there is nothing to do where this fails.
		_ = exec.Command("ipcrm", "-m", file.memoryID).Run()
	}
	return nil
}

// killAll kills a server and every process of it. Each backend is in a session of its own, so there
// is no group to kill; stopped first, the server can start no further one while they are counted.
func killAll(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		if errors.Is(err, syscall.ESRCH) {
			return nil
		}
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	all, err := children(pid)
	for _, p := range append([]int{pid}, all...) {
		if kerr := syscall.Kill(p, syscall.SIGKILL); kerr != nil && !errors.Is(kerr, syscall.ESRCH) {
			err = errors.Join(err, fmt.Errorf("kill process %d: %w", p, kerr))
		}
	}
	for deadline := time.Now().Add(10 * time.Second); err == nil && len(all) > 0; {
		if !isPostgres(all[0]) {
			all = all[1:]
			continue
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d is still there 10s after SIGKILL", all[0])
		}
		time.Sleep(poll)
	}
	return err
}

// children lists the processes started by a process.
func children(pid int) ([]int, error) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		var found []int
		for line := range strings.Lines(string(out)) {
			var p, parent int
			if _, err := fmt.Sscan(line, &p, &parent); err == nil && parent == pid {
				found = append(found, p)
			}
		}
		return found, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []int
	for _, entry := range entries {
		p, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// A process that ended meanwhile has no file any more.
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		_, rest, ok := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); ok && len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			found = append(found, p)
		}
	}
	return found, nil
}

// lockFolder keeps other processes from starting a server in the folder at the same time. The lock
// is on the folder itself, because initdb wants it empty, and ends with the process however that
// ends.
func lockFolder(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("another process is starting a server in %s: %w", dir, ctx.Err())
		}
	}
}
