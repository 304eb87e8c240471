package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// DB is a database of one test. Its user is a superuser.
type DB struct {
	// URL to connect to it, as a superuser.
	URL string
	// Name of the database.
	Name string
	// Pool of connections to it. Closing the database closes it.
	Pool *pgxpool.Pool

	source *source
	kept   bool // not worth dropping: its whole cluster goes

	mu    sync.Mutex
	pools []*pgxpool.Pool // made by AsRole
	clock clock
}

// Option changes what New makes.
type Option func(*options)

type options struct {
	empty    bool
	maxConns int32
	appName  string
	pool     func(*pgxpool.Config)
}

// MaxConns sets how many connections DB.Pool may have. The default is 10.
func MaxConns(n int) Option {
	return func(o *options) { o.maxConns = int32(n) }
}

// Empty makes a database without the migrations in it.
func Empty() Option {
	return func(o *options) { o.empty = true }
}

// PoolConfig lets the function change the configuration of DB.Pool before it is made.
func PoolConfig(change func(*pgxpool.Config)) Option {
	return func(o *options) { o.pool = change }
}

// New returns a fresh database with the migrations applied. It is dropped, and its pool closed,
// when the test ends; connections that the test has not given back by then fail it.
func New(t testing.TB, opts ...Option) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	source, err := commonSource(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return newDB(ctx, t, source, false, opts)
}

// Open is New for an Example, which has no testing.TB. The caller closes the database.
func Open(ctx context.Context, opts ...Option) (*DB, error) {
	source, err := commonSource(ctx)
	if err != nil {
		return nil, err
	}
	return open(ctx, source, opts)
}

func newDB(ctx context.Context, t testing.TB, source *source, kept bool, opts []Option) *DB {
	t.Helper()
	// Seen in pg_stat_activity and the log, it tells which test a connection belongs to.
	name := strings.ToValidUTF8(t.Name()[:min(63, len(t.Name()))], "")
	db, err := open(ctx, source, append([]Option{func(o *options) { o.appName = name }}, opts...))
	if err != nil {
		t.Fatal(err)
	}
	db.kept = kept
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := db.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return db
}

func open(ctx context.Context, source *source, opts []Option) (*DB, error) {
	o := options{maxConns: 10, appName: "pgtest"}
	for _, opt := range opts {
		opt(&o)
	}
	name, err := source.create(ctx, o.empty)
	if err != nil {
		return nil, fmt.Errorf("pgtest: create a database: %w", err)
	}
	db := &DB{URL: source.databaseURL(name), Name: name, source: source}
	var cfg *pgxpool.Config
	if !o.empty {
		err = mutate(ctx, db.URL)
	}
	if err == nil {
		cfg, err = pgxpool.ParseConfig(db.URL)
	}
	if err == nil {
		cfg.MaxConns = o.maxConns
		cfg.ConnConfig.RuntimeParams["application_name"] = o.appName
		if o.pool != nil {
			o.pool(cfg)
		}
		db.Pool, err = pgxpool.NewWithConfig(ctx, cfg)
	}
	if err != nil {
		_ = source.drop(ctx, name)
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	return db, nil
}

// Close closes the pools and drops the database. It reports connections that were never given back.
func (db *DB) Close(ctx context.Context) error {
	db.mu.Lock()
	pools := slices.Concat(db.pools, []*pgxpool.Pool{db.Pool})
	db.pools = nil
	db.mu.Unlock()
	var leaked error
	for _, pool := range pools {
		if err := closePool(pool); err != nil {
			leaked = err
		}
	}
	if !db.kept {
		if err := db.source.drop(ctx, db.Name); err != nil {
			return fmt.Errorf("pgtest: %w", err)
		}
	}
	return leaked
}

// closePool closes a pool that should be idle. Close waits for every connection to come back, for
// ever if one was forgotten, which would look like a hanging test.
func closePool(pool *pgxpool.Pool) error {
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("pgtest: %d connections were never given back to the pool: a transaction or rows left open",
			pool.Stat().AcquiredConns())
	}
}

// Exec executes one statement, or several without arguments, and fails the test if it can't.
func (db *DB) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := db.Pool.Exec(ctx, sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// RoleURL returns a URL whose connections have the rights of a role, such as daybook_app, which
// itself has no login. A program under test can be given it.
func (db *DB) RoleURL(role string) string {
	options := "-c role=" + role
	if u, err := url.Parse(db.URL); err == nil && u.Scheme != "" {
		query := u.Query()
		query.Set("options", options)
		// Encode writes a blank as +, which in a connection URL stands for itself.
		u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
		return u.String()
	}
	return db.URL + " options='" + options + "'"
}

// AsRole returns a pool whose connections have the rights of a role. It is closed with the database.
func (db *DB) AsRole(t testing.TB, role string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), db.RoleURL(role))
	if err != nil {
		t.Fatal(err)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.pools = append(db.pools, pool)
	return pool
}
