package localpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func (c Config) timeout() time.Duration {
	if c.StartTimeout == 0 {
		return time.Minute
	}
	return c.StartTimeout
}

// Start makes the cluster if there is none, starts it, and returns when it accepts connections. If
// a server already runs in the folder it is returned instead, with Attached set. Several processes
// may start the same folder at once: one starts it, the others attach.
//
// The context bounds the start only; the server outlives it. A failed start leaves no process
// behind, and its error carries the end of the server's log. Without binaries it is a
// [*NotFoundError].
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.timeout())
	defer cancel()
	s, err := start(ctx, cfg)
	if err != nil {
		var missing *NotFoundError
		if errors.As(err, &missing) {
			return nil, err // says it all, and starts with localpg
		}
		return nil, fmt.Errorf("localpg: start: %w", err)
	}
	return s, nil
}

// Attach returns the server that runs in a folder, or ErrNotRunning. It starts none and changes
// nothing.
func Attach(ctx context.Context, dataDir string) (*Server, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	cfg := Config{DataDir: dataDir}
	ctx, cancel := context.WithTimeout(ctx, cfg.timeout())
	defer cancel()
	dir, err := resolve(dataDir)
	if os.IsNotExist(err) {
		return nil, ErrNotRunning
	}
	if err != nil {
		return nil, fmt.Errorf("localpg: attach: %w", err)
	}
	s, err := attach(ctx, cfg, dir)
	if err != nil && !errors.Is(err, ErrNotRunning) {
		return nil, fmt.Errorf("localpg: attach: %w", err)
	}
	return s, err
}

func start(ctx context.Context, cfg Config) (*Server, error) {
	dir := cfg.DataDir
	if dir == "" {
		var err error
		if dir, err = DefaultDataDir(); err != nil {
			return nil, err
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	// Refused before anything is made or changed in it.
	if _, err := clusterMajor(dir); err != nil {
		return nil, err
	}
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	if dir, err = resolve(dir); err != nil {
		return nil, err
	}
	unlock, err := lockFolder(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s, err := attach(ctx, cfg, dir); !errors.Is(err, ErrNotRunning) {
		return s, err
	}
	major, err := clusterMajor(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{DataDir: dir, LogFile: filepath.Join(dir, logName), SocketDir: socketDir(dir), cfg: cfg}
	if s.Binaries, err = cfg.binaries(major); err != nil {
		return nil, err
	}
	if s.owner, err = serverIdentity(cfg, dir); err != nil {
		return nil, err
	}
	if err := prepare(ctx, s, major == 0); err != nil {
		return nil, err
	}
	if err := s.launch(ctx, cfg.Port); err != nil {
		return nil, err
	}
	return s, nil
}

// prepare makes the folder ready to be served: owned by the right user, a cluster in it, its
// settings written.
func prepare(ctx context.Context, s *Server, empty bool) error {
	if err := reachable(s.DataDir, s.owner); err != nil {
		return err
	}
	if err := reachable(s.Binaries.Path("postgres"), s.owner); err != nil {
		return err
	}
	if err := giveTree(s.DataDir, s.owner); err != nil {
		return err
	}
	if empty {
		// Whoever gives up fsync has nothing to gain from a cluster that is on disk.
		sync := s.cfg.Settings["fsync"] != "off"
		if err := initCluster(ctx, s.Binaries, s.DataDir, s.owner, sync); err != nil {
			return err
		}
	}
	return writeSettings(s.DataDir, s.cfg.Settings, s.owner)
}

// attach returns the server that runs in the folder, or ErrNotRunning.
func attach(ctx context.Context, cfg Config, dir string) (*Server, error) {
	proc, file, err := findRunning(ctx, dir)
	if err != nil {
		return nil, err
	}
	major, err := clusterMajor(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{
		DataDir: dir, LogFile: filepath.Join(dir, logName), SocketDir: file.socketDir,
		Attached: true, cfg: cfg, port: file.port, proc: proc,
	}
	// Needed by Restart only, which says so if they are gone meanwhile.
	s.Binaries, _ = cfg.binaries(major)
	s.owner, err = serverIdentity(Config{}, dir)
	return s, err
}

func (c Config) binaries(major int) (Binaries, error) {
	if c.BinDir == "" {
		return FindMajor(major)
	}
	b, err := At(c.BinDir)
	if err == nil && major != 0 && b.Major != major {
		err = &NotFoundError{Override: c.BinDir, Major: major, Unsuitable: []string{"version " + b.Version}}
	}
	return b, err
}

// launch starts the server on the port, or on a free one if it is 0, and waits until it answers. What
// goes away by itself is tried again: a free port that somebody else was faster to take, and the last
// processes of a killed server that have not noticed yet.
func (s *Server) launch(ctx context.Context, port int) error {
	for {
		chosen := port
		if chosen == 0 {
			var err error
			if chosen, err = freePort(ctx); err != nil {
				return err
			}
		}
		retry, err := s.launchOn(ctx, chosen)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !(retry == portTaken && port == 0) && retry != oldProcesses {
			return err
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return err
		}
	}
}

// What the log of a server that would not start says when trying again may help.
const (
	portTaken    = "Address already in use"
	oldProcesses = "pre-existing shared memory block"
)

func (s *Server) launchOn(ctx context.Context, port int) (retry string, err error) {
	if s.Binaries.Dir == "" {
		return "", &NotFoundError{}
	}
	log, err := os.OpenFile(s.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY|noFollow, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = log.Close() }() // the server has its own descriptor
	if err := giveTo(s.LogFile, s.owner); err != nil {
		return "", err
	}
	info, err := log.Stat()
	if err != nil {
		return "", err
	}
	socket := ""
	if s.SocketDir != "" {
		// A list of folders: quoted, blanks are part of the name.
		socket = `"` + s.SocketDir + `"`
	}
	cmd := command(s.Binaries, "postgres", s.DataDir,
		"-D", s.DataDir, "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+socket)
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := startProcess(cmd, s.owner, !s.cfg.Detached)
	if err != nil {
		return "", err
	}
	if err := awaitReady(ctx, proc, port, s.DataDir); err != nil {
		for _, reason := range []string{portTaken, oldProcesses} {
			if errors.Is(err, errExited) && strings.Contains(logTail(s.LogFile, info.Size(), 20), reason) {
				retry = reason
			}
		}
		// Half-started, it would hold the folder against the next attempt.
		if proc.alive() {
			err = errors.Join(err, killServer(proc.pid, s.DataDir))
		}
		return retry, fmt.Errorf("%w%s", err, withLog(s.LogFile, info.Size()))
	}
	s.port, s.proc = port, proc
	return "", nil
}

// freePort asks the system for a port that nobody uses at the moment.
func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("no free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// resolve makes a path absolute and free of links, as the server itself will see it.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}
