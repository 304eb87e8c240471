//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// flock locks an open file without waiting.
func flock(f *os.File, share bool) error {
	how := syscall.LOCK_EX
	if share {
		how = syscall.LOCK_SH
	}
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		default:
			return err
		}
	}
}

// detach gives a process a session of its own, so that Ctrl-C does not reach it.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}

// checkOwner tells whether a path is a folder, not a link to one, of the current user.
func checkOwner(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user", dir)
	}
	return nil
}
