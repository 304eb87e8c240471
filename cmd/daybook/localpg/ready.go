package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// errExited says that the server ended while it was starting.
var errExited = errors.New("the server ended while starting")

// urlOf is the URL of a database, as the superuser that initdb made.
func urlOf(port int, database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", port, database)
}

// serves asks whoever listens on a port which data folder it serves. Between choosing a port
// and using it another server can take it, and a connection alone would not tell the two apart.
func serves(ctx context.Context, port int, dataDir string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, urlOf(port, "postgres"))
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(ctx) }()
	var dir string
	if err := conn.QueryRow(ctx, "select current_setting('data_directory')").Scan(&dir); err != nil {
		return false, err
	}
	// By identity, not by name: either may have gone through a link.
	a, aErr := os.Stat(dir)
	b, bErr := os.Stat(dataDir)
	if err := errors.Join(aErr, bErr); err != nil {
		return false, err
	}
	return os.SameFile(a, b), nil
}

// awaitReady returns when the server answers on its port. It gives up with errExited when the
// process ends, and at the context's end with what the last attempt to connect said.
func awaitReady(ctx context.Context, proc *process, port int, dataDir string) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		if !proc.alive() {
			return errExited
		}
		// Asked before it says so itself, it would log a FATAL for every attempt.
		file, err := readPidFile(dataDir)
		if err == nil && file.pid == proc.pid && file.ready {
			var ours bool
			ours, err = serves(ctx, port, dataDir)
			if ours {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("another server listens on port %d", port)
			}
		}
		select {
		case <-tick.C:
		case <-proc.exited:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// findRunning finds the server that runs in a folder, waiting for one that is still starting. The
// error is ErrNotRunning when there is none, also where a killed one has left its postmaster.pid
// behind.
func findRunning(ctx context.Context, dataDir string) (*process, pidFile, error) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		file, err := readPidFile(dataDir)
		switch {
		case os.IsNotExist(err):
			return nil, file, ErrNotRunning
		case err != nil:
			// Read while it was being written, unless it stays so.
		case !isPostgres(file.pid) || !servesFrom(file.pid, dataDir):
			return nil, file, ErrNotRunning
		case file.ready:
			var ours bool
			ours, err = serves(ctx, file.port, dataDir)
			if ours {
				return &process{pid: file.pid}, file, nil
			}
			if err == nil {
				return nil, file, ErrNotRunning
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, file, fmt.Errorf("process %d holds %s but does not answer: %w", file.pid, dataDir, errors.Join(ctx.Err(), err))
		}
	}
}
