//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package pgtest

import (
	"os"
	"os/exec"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
)

// Where localpg can't run a server there is none to share, and nothing to lock: tests then need
// DAYBOOK_TEST_DATABASE_URL.

func flock(*os.File, bool) error { return localpg.ErrUnsupported }

func detach(*exec.Cmd) {}

func checkOwner(string) error { return nil }
