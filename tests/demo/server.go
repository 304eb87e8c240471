package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
	"github.com/daybook-go/daybook/migrations"
)

// world is a PostgreSQL of its own with the ledger in it, and how each of the people of the story connects to it.
type world struct {
	server *localpg.Server
	// admin is the superuser, who migrates and counts; nobody else is more than he needs to be.
	admin *pgxpool.Pool
	// shop owns its own tables and may enqueue.
	shop *pgxpool.Pool
	// relay sequences, subscribes and projects.
	relay *pgxpool.Pool
	// operator looks.
	operator *pgxpool.Pool
}

// openWorld starts the server in a temporary folder and migrates it. Whatever happens, close removes all of it.
func openWorld(ctx context.Context) (*world, error) {
	folder, err := os.MkdirTemp("", "daybook-demo-")
	if err != nil {
		return nil, err
	}
	w := &world{}
	if err := w.open(ctx, folder); err != nil {
		w.close(ctx)
		_ = os.RemoveAll(folder)
		return nil, err
	}
	return w, nil
}

func (w *world) open(ctx context.Context, folder string) (err error) {
	w.server, err = localpg.Start(ctx, localpg.Config{DataDir: folder, Settings: map[string]string{
		// Everything is thrown away at the end.
		"fsync": "off",
		// Nothing outside of the folder, which may be all that is left to remove.
		"dynamic_shared_memory_type": "mmap",
		// Each statement with its parameters goes to the log, which is searched for keys at the end.
		"log_statement": "all", "log_min_duration_statement": "0", "log_parameter_max_length_on_error": "-1",
	}})
	if err != nil {
		return err
	}
	if w.admin, err = pgxpool.New(ctx, w.server.URL()); err != nil {
		return err
	}
	if err := w.migrate(ctx); err != nil {
		return err
	}
	for role, pool := range map[string]**pgxpool.Pool{"shop": &w.shop, "relay": &w.relay, "operator": &w.operator} {
		config, err := pgxpool.ParseConfig(w.server.URL())
		if err != nil {
			return err
		}
		config.ConnConfig.User = role
		config.MaxConns = 10
		config.ConnConfig.RuntimeParams["application_name"] = "demo " + role
		if *pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) migrate(ctx context.Context) error {
	conn, err := w.admin.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := migrations.Up(ctx, conn.Conn()); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, statement := range []string{
			`create role shop login in role daybook_app`,
			`create role relay login in role daybook_relay`,
			`create role operator login in role daybook_operator`,
			`create schema shop authorization shop`,
			`alter role shop set search_path = shop`,
			`set local role shop`,
			`set local search_path = shop`,
			shopSchemaSQL,
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("set the shop up: %w", err)
			}
		}
		return nil
	})
}

// closePools ends all connections.
func (w *world) closePools() {
	for _, pool := range []*pgxpool.Pool{w.operator, w.relay, w.shop, w.admin} {
		if pool != nil {
			pool.Close()
		}
	}
}

// close stops the server and removes its folder. It works after an interrupt too.
func (w *world) close(ctx context.Context) {
	w.closePools()
	if w.server == nil {
		return
	}
	if err := w.server.Stop(context.WithoutCancel(ctx), localpg.Fast); err != nil {
		fmt.Fprintln(os.Stderr, "demo: stop the server:", err)
	}
	if err := os.RemoveAll(w.server.DataDir); err != nil {
		fmt.Fprintln(os.Stderr, "demo: remove its folder:", err)
	}
}
