package cli

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// databaseURLVariable names the environment variable that names the database.
const databaseURLVariable = "DATABASE_URL"

// maxConns bounds what one run takes of the server's connections.
const maxConns = 6

func (a *app) url() (string, error) {
	url := a.databaseURL
	if url == "" {
		url, _ = a.LookupEnv(databaseURLVariable)
	}
	if url == "" {
		return "", usagef("daybook dev starts a local PostgreSQL and prints its URL", "no database: set DATABASE_URL or --database-url")
	}
	return url, nil
}

// withPool runs work with a pool of connections, and closes it.
func (a *app) withPool(ctx context.Context, work func(pool *pgxpool.Pool) error) error {
	url, err := a.url()
	if err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return &failure{code: ExitUsage, message: err.Error(), hint: "a URL looks like postgres://user@host:5432/database", cause: err}
	}
	config.MaxConns = maxConns
	// An operator who looks at pg_stat_activity sees what this is; a URL may say otherwise.
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "daybook"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	return work(pool)
}

// withConn runs work with one connection outside any pool.
func (a *app) withConn(ctx context.Context, work func(conn *pgx.Conn) error) error {
	return a.withPool(ctx, func(pool *pgxpool.Pool) error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		defer conn.Release()
		return work(conn.Conn())
	})
}
