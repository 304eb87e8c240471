//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package localpg

import (
	"os/exec"
	"syscall"
)

// setAttributes gives the command its user and a session of its own, so that Ctrl-C in a terminal
// reaches the program, which stops the server in its own time, and not the server. These systems
// have no signal for the death of a parent that a changed user keeps, so tied makes no difference.
func setAttributes(cmd *exec.Cmd, owner *identity, _ bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: owner.credential()}
}
