package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
)

// keeperVariable, when set, makes Main the keeper of the cluster in the folder it names.
const keeperVariable = "DAYBOOK_PGTEST_KEEPER"

// idleTime is how long the shared cluster waits for the next test process before it is stopped:
// long enough for go test to build and start it.
func idleTime() time.Duration {
	if idle, err := time.ParseDuration(os.Getenv("DAYBOOK_PGTEST_IDLE")); err == nil && idle > 0 {
		return idle
	}
	return 30 * time.Second
}

// ensureKeeper starts a keeper unless there is one. It is called with the start lock held, under
// which alone a keeper gives up its place. Two processes one after the other may both start one,
// before the first has come to take the lock: the one that comes late finds it taken and leaves.
func ensureKeeper(dir string) error {
	lock, err := tryLockFile(filepath.Join(dir, keeperLock))
	if errors.Is(err, errLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	lock.unlock()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, keeperLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), keeperVariable+"="+dir)
	// go test waits until everybody has closed its output, and its folder is removed at its end.
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = dir
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	go func() { _ = cmd.Wait() }() // or it would stay a zombie while this process lives
	return nil
}

// keep stops the cluster in a folder, and removes its data, once no test process has used it for
// the idle time.
func keep(ctx context.Context, dir string, idle time.Duration) error {
	place, err := tryLockFile(filepath.Join(dir, keeperLock))
	if errors.Is(err, errLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer place.unlock()
	tick := time.NewTicker(min(time.Second, idle/10))
	defer tick.Stop()
	for last := time.Now(); ; <-tick.C {
		lease, err := tryLockFile(filepath.Join(dir, leaseLock))
		if errors.Is(err, errLocked) {
			last = time.Now()
			continue
		}
		if err != nil {
			return err // the folder is gone, for example
		}
		lease.unlock()
		if time.Since(last) < idle {
			continue
		}
		stopped, err := stopIdle(ctx, dir, place)
		if stopped || err != nil {
			return err
		}
		last = time.Now()
	}
}

// stopIdle stops the cluster, unless a test process has come meanwhile. With the start lock held
// none can come while it stops, and whoever waits for that lock then finds neither a server nor a
// keeper, and starts both.
func stopIdle(ctx context.Context, dir string, place *fileLock) (stopped bool, err error) {
	start, err := lockFile(ctx, filepath.Join(dir, startLock))
	if err != nil {
		return false, err
	}
	defer start.unlock()
	lease, err := tryLockFile(filepath.Join(dir, leaseLock))
	if errors.Is(err, errLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer lease.unlock()
	defer place.unlock()
	data := filepath.Join(dir, dataName)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	server, err := localpg.Attach(ctx, data)
	if err == nil {
		err = server.Stop(ctx, localpg.Immediate)
	}
	if err != nil && !errors.Is(err, localpg.ErrNotRunning) {
		// A server that is in no state to answer would fail every test from now on.
		if kerr := localpg.Kill(data); kerr != nil {
			return true, errors.Join(err, kerr)
		}
	}
	return true, discard(data)
}
