package localpg

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pidFile is what a running server says of itself in postmaster.pid. The file outlives a server
// that was killed, so nothing in it is true until the process has been looked at.
type pidFile struct {
	pid       int
	port      int
	socketDir string // empty when it has no socket
	memoryID  string // of its System V shared memory, empty where it has none
	ready     bool   // says that it accepts connections
}

// readPidFile reads postmaster.pid, whose lines are: pid, data folder, start time, port, first
// socket folder, first listen address, shared memory key, state. A server that is just starting
// has written only the first few. The error satisfies os.IsNotExist when there is no such file.
func readPidFile(dataDir string) (pidFile, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, "postmaster.pid"))
	if err != nil {
		return pidFile{}, err
	}
	lines := strings.Split(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 0 {
		return pidFile{}, fmt.Errorf("no process id in %s", filepath.Join(dataDir, "postmaster.pid"))
	}
	p := pidFile{pid: pid}
	if len(lines) > 3 {
		p.port, _ = strconv.Atoi(strings.TrimSpace(lines[3]))
	}
	if len(lines) > 4 {
		p.socketDir = strings.TrimSpace(lines[4])
	}
	if len(lines) > 6 {
		if keyAndID := strings.Fields(lines[6]); len(keyAndID) == 2 {
			p.memoryID = keyAndID[1]
		}
	}
	if len(lines) > 7 {
		state := strings.TrimSpace(lines[7])
		p.ready = state == "ready" || state == "standby"
	}
	return p, nil
}
