package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/cmd/daybook/localpg"
	"github.com/daybook-go/daybook/migrations"
)

// devDatabase is the database that dev makes and migrates.
const devDatabase = "daybook"

// stopTimeout bounds how long the server may take to shut down.
const stopTimeout = time.Minute

type devFlags struct {
	dataDir      string
	port         int
	detach, stop bool
}

func (a *app) devCommand() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:     "dev",
		Short:   "Run a local PostgreSQL, migrated, to try things on",
		GroupID: groupSetUp,
		Long: `Starts a PostgreSQL server on the loopback interface from the binaries of this machine, migrates a database in it,
prints its URL, and keeps it until it is interrupted. What is in it stays for the next time.

With --detach it returns and leaves the server running; --stop stops that. Where one runs in the folder already, its
URL is printed and nothing is started. Whoever can connect to the loopback interface is a superuser there: it is not
meant for production.`,
		Example: `  export DATABASE_URL=$(daybook dev --detach)`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.stop && f.detach {
				return usagef("", "use either --detach or --stop")
			}
			if f.dataDir == "" {
				var err error
				if f.dataDir, err = localpg.DefaultDataDir(); err != nil {
					return err
				}
			}
			if f.stop {
				return a.devStop(cmd.Context(), f)
			}
			return a.dev(cmd.Context(), f)
		},
	}
	cmd.Flags().StringVar(&f.dataDir, "data-dir", "", "folder of the data (default: one of the user's cache)")
	cmd.Flags().IntVar(&f.port, "port", 0, "port to listen on (default: a free one)")
	cmd.Flags().BoolVar(&f.detach, "detach", false, "return, and leave the server running")
	cmd.Flags().BoolVar(&f.stop, "stop", false, "stop the server that was left running")
	return cmd
}

func (a *app) dev(ctx context.Context, f devFlags) (err error) {
	server, err := localpg.Start(ctx, localpg.Config{
		DataDir: f.dataDir, Port: f.port, Detached: f.detach,
		// In the folder: whoever tidies up /dev/shm, as systemd does when a user logs out, would take half of a server.
		Settings: map[string]string{"dynamic_shared_memory_type": "mmap"},
	})
	if err != nil {
		return err
	}
	keep := f.detach || server.Attached
	// Stopped unless it is to stay, and also where what follows fails.
	defer func() {
		if keep && (err == nil || server.Attached) {
			return
		}
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if stopErr := server.Stop(stopping, localpg.Fast); stopErr != nil {
			err = errors.Join(err, stopErr)
		} else if err == nil {
			fmt.Fprintln(a.Stderr, "stopped")
		}
	}()
	if err := prepareDev(ctx, server); err != nil {
		return err
	}
	if err := a.showDev(server); err != nil {
		return err
	}
	switch {
	case server.Attached:
		fmt.Fprintf(a.Stderr, "it was running already (process %d); daybook dev --stop stops it\n", server.Pid())
	case f.detach:
		fmt.Fprintf(a.Stderr, "it keeps running (process %d); daybook dev --stop stops it\n", server.Pid())
	default:
		fmt.Fprintln(a.Stderr, "running until interrupted")
		<-ctx.Done()
	}
	return nil
}

// prepareDev makes the database where it is not there yet, and migrates it.
func prepareDev(ctx context.Context, server *localpg.Server) error {
	admin, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	err = admin.QueryRow(ctx, `select exists (select from pg_database where datname = $1)`, devDatabase).Scan(&exists)
	if err == nil && !exists {
		_, err = admin.Exec(ctx, `create database daybook encoding 'UTF8' template template0`)
	}
	if err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	conn, err := pgx.Connect(ctx, server.DatabaseURL(devDatabase))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = migrations.Up(ctx, conn)
	return err
}

// showDev prints the URL alone, so that a shell can take it.
func (a *app) showDev(server *localpg.Server) error {
	url := server.DatabaseURL(devDatabase)
	if a.json {
		return show.Document(a.Stdout, struct {
			DatabaseURL string `json:"database_url"`
			DataDir     string `json:"data_dir"`
			Pid         int    `json:"pid"`
			Version     string `json:"postgres_version"`
		}{url, server.DataDir, server.Pid(), server.Binaries.Version})
	}
	_, err := fmt.Fprintln(a.Stdout, url)
	return err
}

func (a *app) devStop(ctx context.Context, f devFlags) error {
	server, err := localpg.Attach(ctx, f.dataDir)
	if errors.Is(err, localpg.ErrNotRunning) {
		fmt.Fprintln(a.Stderr, "nothing was running")
		return nil
	}
	if err != nil {
		return err
	}
	stopping, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := server.Stop(stopping, localpg.Fast); err != nil {
		return err
	}
	fmt.Fprintln(a.Stderr, "stopped")
	return nil
}
