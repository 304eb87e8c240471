package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// errLocked says that another process holds the lock.
var errLocked = errors.New("held by another process")

// fileLock is a lock on a file. It ends with the process, however that ends, so nothing ever has to
// be cleaned up.
type fileLock struct {
	file *os.File
}

// unlock gives the lock back. A second call does nothing.
func (l *fileLock) unlock() {
	_ = l.file.Close()
}

// tryLockFile takes the lock for this process alone, or returns errLocked.
func tryLockFile(path string) (*fileLock, error) {
	return tryFile(path, false)
}

// lockFile waits for the lock for this process alone.
func lockFile(ctx context.Context, path string) (*fileLock, error) {
	return waitFile(ctx, path, false)
}

// shareFile waits for a lock that any number of processes share.
func shareFile(ctx context.Context, path string) (*fileLock, error) {
	return waitFile(ctx, path, true)
}

// waitFile tries again and again, because a system call that waits can't be told about the context.
func waitFile(ctx context.Context, path string, share bool) (*fileLock, error) {
	for {
		lock, err := tryFile(path, share)
		if !errors.Is(err, errLocked) {
			return lock, err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w: %w", path, err, ctx.Err())
		}
	}
}

func tryFile(path string, share bool) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, share); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &fileLock{file: f}, nil
}
