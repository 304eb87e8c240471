package localpg

import (
	"os/exec"
	"syscall"
)

// setAttributes gives the command its user and a session of its own, so that Ctrl-C in a terminal
// reaches the program, which stops the server in its own time, and not the server. A tied server
// gets SIGINT, a fast shutdown, when its parent dies; a detached one must have no such signal.
func setAttributes(cmd *exec.Cmd, owner *identity, tied bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: owner.credential()}
	if tied {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGINT
	}
}
