package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
)

// maxWriters bounds the callers of a case: each of its contenders has a pool of that size.
const maxWriters = 48

// serverSettings are durable in every respect. Checkpoints and vacuums come between the cases and never inside
// one, where they would hit whoever happens to run.
var serverSettings = map[string]string{
	"fsync":              "on",
	"synchronous_commit": "on",
	"full_page_writes":   "on",
	"shared_buffers":     "1GB",
	"max_connections":    "250",
	"max_wal_size":       "16GB",
	"checkpoint_timeout": "1h",
	"autovacuum":         "off",
	"wal_compression":    "off",
	"timezone":           "UTC",
}

// shownSettings are those that a reader of the numbers needs.
var shownSettings = []string{
	"server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "wal_level", "wal_compression",
	"data_checksums", "shared_buffers", "max_wal_size", "checkpoint_timeout", "autovacuum", "jit", "max_connections",
}

// patience bounds what must end although the run was interrupted.
const patience = 30 * time.Second

// Bench is a server with the two schemas as templates, and what the run was asked for.
type Bench struct {
	Options

	server  *localpg.Server // nil where the environment names a server
	dataDir string
	config  *pgxpool.Config // of the server's maintenance database
	admin   *pgxpool.Pool
	prefix  string
	made    []string // databases, to be dropped
	clones  int
	filled  string // the database with Options.Bindings expired bindings, once a case has made it
	ledger  string // likewise the one with Options.Events events
}

// openBench finds or starts the server and migrates the templates.
func openBench(ctx context.Context, options Options, url string) (_ *Bench, err error) {
	b := &Bench{Options: options, prefix: fmt.Sprintf("daybook_bench_%d", os.Getpid())}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if url == "" {
		if url, err = b.startServer(ctx); err != nil {
			return nil, err
		}
	}
	if b.config, err = pgxpool.ParseConfig(url); err != nil {
		return nil, fmt.Errorf("read %s: %w", databaseURLVariable, err)
	}
	if b.admin, err = pgxpool.NewWithConfig(ctx, b.config); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if err = b.makeTemplate(ctx, b.daybookTemplate(), migrateDaybook); err != nil {
		return nil, err
	}
	return b, b.makeTemplate(ctx, b.riverTemplate(), migrateRiver)
}

func (b *Bench) daybookTemplate() string { return b.prefix + "_daybook" }
func (b *Bench) riverTemplate() string   { return b.prefix + "_river" }

// startServer starts a cluster that goes with this process. Its folder is where temporary files survive a restart,
// because /tmp is memory on many systems, and an fsync to memory costs nothing.
func (b *Bench) startServer(ctx context.Context) (url string, err error) {
	parent := "/var/tmp"
	if _, err := os.Stat(parent); err != nil {
		parent = os.TempDir()
	}
	if b.dataDir, err = os.MkdirTemp(parent, "daybook-bench-"); err != nil {
		return "", fmt.Errorf("make a folder for the cluster: %w", err)
	}
	b.server, err = localpg.Start(ctx, localpg.Config{DataDir: b.dataDir, Settings: serverSettings})
	if err != nil {
		return "", err
	}
	return b.server.URL(), nil
}

// close drops what was made, or stops the server and removes its folder.
func (b *Bench) close() error {
	// The run's context may have been cancelled, and cleaning up must not be.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var errs []error
	if b.admin != nil {
		if b.server == nil {
			for _, name := range b.made {
				errs = append(errs, b.drop(ctx, name))
			}
		}
		b.admin.Close()
	}
	if b.server != nil {
		errs = append(errs, b.server.Stop(ctx, localpg.Immediate))
	}
	if b.dataDir != "" {
		errs = append(errs, os.RemoveAll(b.dataDir))
	}
	return errors.Join(errs...)
}

func (b *Bench) makeTemplate(ctx context.Context, name string, migrate func(context.Context, *pgxpool.Pool) error) error {
	if err := b.create(ctx, name, "template0"); err != nil {
		return err
	}
	pool, err := b.pool(ctx, name, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrate(ctx, pool); err != nil {
		return fmt.Errorf("migrate %s: %w", name, err)
	}
	return nil
}

func (b *Bench) create(ctx context.Context, name, template string) error {
	_, err := b.admin.Exec(ctx, fmt.Sprintf("create database %s encoding 'UTF8' template %s",
		pgx.Identifier{name}.Sanitize(), pgx.Identifier{template}.Sanitize()))
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	b.made = append(b.made, name)
	return nil
}

func (b *Bench) drop(ctx context.Context, name string) error {
	_, err := b.admin.Exec(ctx, "drop database if exists "+pgx.Identifier{name}.Sanitize())
	if err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

// pool returns a pool of exactly that many connections, all of them open. pgx prepares each statement once for each
// connection, for every contender alike.
func (b *Bench) pool(
	ctx context.Context, database string, conns int, change ...func(*pgxpool.Config),
) (*pgxpool.Pool, error) {
	config := b.config.Copy()
	config.ConnConfig.Database = database
	config.MinConns, config.MaxConns = int32(conns), int32(conns)
	for _, f := range change {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", database, err)
	}
	return pool, nil
}

// Field is where one case runs: new databases, and a pool of the same size for each contender.
type Field struct {
	Daybook *pgxpool.Pool
	River   *pgxpool.Pool
	// Hand is for the hand-written SQL and for bare statements, in the database of Daybook.
	Hand *pgxpool.Pool
}

// onField runs work on new databases, so that no case inherits the rows, the dead rows or the dirty pages of another.
func (b *Bench) onField(ctx context.Context, writers int, work func(f Field) error) (err error) {
	b.clones++
	suffix := "_" + strconv.Itoa(b.clones)
	daybook, river := b.daybookTemplate()+suffix, b.riverTemplate()+suffix
	if err := b.create(ctx, daybook, b.daybookTemplate()); err != nil {
		return err
	}
	if err := b.create(ctx, river, b.riverTemplate()); err != nil {
		return err
	}
	var (
		f     Field
		pools []*pgxpool.Pool
	)
	defer func() {
		for _, pool := range pools {
			pool.Close()
		}
		for _, name := range []string{daybook, river} {
			err = errors.Join(err, b.drop(context.WithoutCancel(ctx), name))
		}
	}()
	for _, p := range []struct {
		pool     **pgxpool.Pool
		database string
	}{{&f.Daybook, daybook}, {&f.River, river}, {&f.Hand, daybook}} {
		if *p.pool, err = b.pool(ctx, p.database, writers); err != nil {
			return err
		}
		pools = append(pools, *p.pool)
	}
	return work(f)
}

// settle makes every contender begin alike: rows vacuumed and analysed, pages on disk.
func (b *Bench) settle(ctx context.Context, f Field) error {
	return b.settlePools(ctx, f.Daybook, f.River)
}

func (b *Bench) settlePools(ctx context.Context, pools ...*pgxpool.Pool) error {
	for _, pool := range pools {
		if err := vacuum(ctx, pool); err != nil {
			return err
		}
	}
	if _, err := b.admin.Exec(ctx, "checkpoint"); err != nil {
		return fmt.Errorf("checkpoint (it takes a superuser, or pg_checkpoint): %w", err)
	}
	return nil
}

func vacuum(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, "vacuum (analyze)"); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	return nil
}

// walPosition is how many bytes of WAL the cluster has ever written.
func (b *Bench) walPosition(ctx context.Context) (bytes int64, err error) {
	err = b.admin.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&bytes)
	if err != nil {
		return 0, fmt.Errorf("read the WAL position: %w", err)
	}
	return bytes, nil
}

// settings are the machine's, the server's and the peers' versions.
func (b *Bench) settings(ctx context.Context) ([]Setting, error) {
	all := []Setting{
		{"machine", fmt.Sprintf("%s/%s, %d cores, shared by client and server", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())},
		{"go", runtime.Version()},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "github.com/riverqueue/river" || dep.Path == "github.com/jackc/pgx/v5" {
				all = append(all, Setting{dep.Path, dep.Version})
			}
		}
	}
	for _, name := range shownSettings {
		s := Setting{Name: name}
		if err := b.admin.QueryRow(ctx, "select current_setting($1)", name).Scan(&s.Value); err != nil {
			return nil, fmt.Errorf("read setting %s: %w", name, err)
		}
		all = append(all, s)
	}
	return all, nil
}
