package localpg

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnsupported is what Start and Attach return on a system where localpg can't run a server.
var ErrUnsupported = errors.New("localpg: running a PostgreSQL server is not supported on this system: " +
	"start one yourself and pass its URL")

// ErrNotRunning is what Attach returns when no server runs in the folder.
var ErrNotRunning = errors.New("localpg: no server is running in this folder")

// NotFoundError says that no usable PostgreSQL server binaries were found, where they were looked
// for, and how to get them.
type NotFoundError struct {
	// Override is the folder that the caller or DAYBOOK_POSTGRES_BIN named, if either did. Then no
	// other folder was looked at.
	Override string
	// Major is the one major version that was wanted, or 0 for any supported one.
	Major int
	// Searched lists the folders and patterns that were looked at.
	Searched []string
	// Unsuitable lists what was found there but can't be used, with the reason.
	Unsuitable []string
}

// Error names what is missing and what to install, on each system, in a few lines.
func (e *NotFoundError) Error() string {
	var b strings.Builder
	wanted := fmt.Sprintf("PostgreSQL %d or later", MinMajor)
	if e.Major != 0 {
		wanted = fmt.Sprintf("PostgreSQL %d (the version that made this data folder)", e.Major)
	}
	if e.Override != "" {
		fmt.Fprintf(&b, "localpg: %s has no server binaries of %s", e.Override, wanted)
	} else {
		fmt.Fprintf(&b, "localpg: no server binaries of %s on this machine", wanted)
	}
	for _, u := range e.Unsuitable {
		fmt.Fprintf(&b, "\n  found, but not usable: %s", u)
	}
	if len(e.Searched) > 0 {
		fmt.Fprintf(&b, "\n  looked in: %s", strings.Join(e.Searched, ", "))
	}
	if e.Override != "" {
		fmt.Fprintf(&b, "\nName the folder that holds initdb and postgres, or unset %s to search for it.", binVariable)
		return b.String()
	}
	major := "17"
	if e.Major != 0 {
		major = fmt.Sprint(e.Major)
	}
	fmt.Fprintf(&b, `
Install them:
  in a checkout    make postgres
  Debian, Ubuntu   apt-get install postgresql
  Fedora, RHEL     dnf install postgresql-server
  macOS            brew install postgresql@%s
or set %s to the folder that holds initdb and postgres.`, major, binVariable)
	return b.String()
}
