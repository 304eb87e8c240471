package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// StopMode is how a server is stopped.
type StopMode int

const (
	// Fast ends all sessions, rolls back what is open, writes a checkpoint and exits.
	Fast StopMode = iota
	// Immediate exits at once, without a checkpoint: the next start recovers, as after a crash.
	Immediate
)

// Server is one running, or stopped, PostgreSQL server. Its methods may be called from several
// goroutines.
type Server struct {
	// DataDir is the data folder, with links resolved.
	DataDir string
	// LogFile has what the server has logged since the cluster was made, unless its settings say
	// otherwise.
	LogFile string
	// SocketDir is the folder of the Unix socket, empty where there is none.
	SocketDir string
	// Attached says that the server was running before: it was found, not started. Its
	// port and settings are then those it was started with.
	Attached bool
	// Binaries are those the server was started from, or would be restarted from.
	Binaries Binaries

	cfg   Config
	owner *identity

	mu   sync.Mutex
	port int
	proc *process
}

// Port returns the TCP port on 127.0.0.1. Restart keeps it.
func (s *Server) Port() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port
}

// Pid returns the process id of the server, or 0 when it is not running.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.alive() {
		return 0
	}
	return s.proc.pid
}

// URL returns the URL of the database postgres, as the superuser postgres.
func (s *Server) URL() string {
	return s.DatabaseURL("postgres")
}

// DatabaseURL returns the URL of a database, as the superuser postgres. The name must be fit for a
// URL.
func (s *Server) DatabaseURL(name string) string {
	return urlOf(s.Port(), name)
}

// LogTail returns the last lines of the log.
func (s *Server) LogTail(lines int) string {
	return logTail(s.LogFile, 0, lines)
}

// Stop stops the server, an attached one too, and returns when it is gone. When the context ends
// first the server goes on stopping. Stopping a stopped server does nothing.
func (s *Server) Stop(ctx context.Context, mode StopMode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(ctx, mode)
}

func (s *Server) stop(ctx context.Context, mode StopMode) error {
	if s.proc == nil || !s.proc.alive() {
		return nil
	}
	if err := signalStop(s.proc.pid, mode); err != nil {
		return fmt.Errorf("localpg: %w", err)
	}
	if err := s.proc.wait(ctx); err != nil {
		return fmt.Errorf("localpg: the server has not stopped yet: %w%s", err, withLog(s.LogFile, 0))
	}
	return nil
}

// Kill ends the server and all its processes with SIGKILL, as a crash of the machine's would but
// without losing what the system has not written yet. It returns when they are gone. Start and
// Restart recover.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.alive() {
		return nil
	}
	err := killServer(s.proc.pid, s.DataDir)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = s.proc.wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("localpg: kill: %w", err)
	}
	return nil
}

// Kill ends the server that runs in a data folder as Server.Kill does, whether it answers or not.
// Without one it does nothing.
func Kill(dataDir string) error {
	if err := supported(); err != nil {
		return err
	}
	dir, err := resolve(dataDir)
	if err == nil {
		var file pidFile
		file, err = readPidFile(dir)
		if err == nil && isPostgres(file.pid) && servesFrom(file.pid, dir) {
			err = killServer(file.pid, dir)
		}
	}
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("localpg: kill the server in %s: %w", dataDir, err)
	}
	return nil
}

// Restart stops the server if it is running, fast, and starts it again on the same port, so that
// the URL stays good. After Kill it recovers the cluster. The restarted server is tied or detached
// as Config says, and no longer Attached.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stop(ctx, Fast); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.timeout())
	defer cancel()
	unlock, err := lockFolder(ctx, s.DataDir)
	if err != nil {
		return fmt.Errorf("localpg: restart: %w", err)
	}
	defer unlock()
	if _, _, err := findRunning(ctx, s.DataDir); !errors.Is(err, ErrNotRunning) {
		if err == nil {
			err = errors.New("another process has started it: use Start or Attach to get hold of it")
		}
		return fmt.Errorf("localpg: restart: %w", err)
	}
	if err := s.launch(ctx, s.port); err != nil {
		return fmt.Errorf("localpg: restart: %w", err)
	}
	s.Attached = false
	return nil
}
