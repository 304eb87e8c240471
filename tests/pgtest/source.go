package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// source makes databases on one server.
type source struct {
	url string // of a database to give orders in
	run string // the first part of the name of every database made here
	// lease is open for as long as this process lives. Its application name is run, which tells other
	// processes, also on other machines, that the databases of this name are in use.
	lease *pgx.Conn
	made  atomic.Int64

	mu       sync.Mutex
	template string // empty until the first database needs it
}

func newSource(ctx context.Context, serverURL string) (*source, error) {
	var random [3]byte
	_, _ = rand.Read(random[:]) // never fails
	s := &source{
		url: serverURL,
		// The time and pid are for people; the rest tells apart machines that share a server.
		run: fmt.Sprintf("daybook_test_%s_%d_%s",
			time.Now().UTC().Format("20060102150405"), os.Getpid(), hex.EncodeToString(random[:])),
	}
	cfg, err := pgx.ParseConfig(serverURL)
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	cfg.RuntimeParams["application_name"] = s.run
	if s.lease, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("pgtest: connect to the test server: %w", err)
	}
	if err := s.dropStale(ctx); err != nil {
		_ = s.lease.Close(ctx)
		return nil, fmt.Errorf("pgtest: drop what killed tests left behind: %w", err)
	}
	return s, nil
}

func (s *source) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = s.lease.Close(ctx)
}

// order runs statements one by one on a connection of their own: create and drop database can't be
// in a transaction, and a kept connection would not survive the restart of a test's own cluster.
func (s *source) order(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// dropStale drops test databases whose process no longer holds its lease.
func (s *source) dropStale(ctx context.Context) error {
	rows, err := s.lease.Query(ctx, `
		select datname from pg_database
		where datname ~ '^daybook_test_\d{14}_\d+_[0-9a-f]{6}_'
		and substring(datname from '^(daybook_test_\d{14}_\d+_[0-9a-f]{6})_') not in
			(select application_name from pg_stat_activity where application_name is not null)`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		_, err := s.lease.Exec(ctx, "drop database if exists "+quote(name)+" with (force)")
		// Another process starts at the same moment and drops it too.
		if err != nil && !hasCode(err, "3D000", "55006", "XX000") {
			return err
		}
	}
	return nil
}

// create makes a database and returns its name: a copy of the template, or with nothing in it.
func (s *source) create(ctx context.Context, empty bool) (string, error) {
	name := fmt.Sprintf("%s_%d", s.run, s.made.Add(1))
	if empty {
		return name, s.order(ctx, createEmpty(name))
	}
	for retried := false; ; retried = true {
		template, err := s.migrated(ctx)
		if err != nil {
			return "", err
		}
		err = s.order(ctx, "create database "+quote(name)+" template "+quote(template))
		if !retried && hasCode(err, "3D000") {
			// A process with other migrations has tidied the template away meanwhile.
			s.mu.Lock()
			s.template = ""
			s.mu.Unlock()
			continue
		}
		return name, err
	}
}

func (s *source) drop(ctx context.Context, name string) error {
	return s.order(ctx, "drop database if exists "+quote(name)+" with (force)")
}

// databaseURL returns the URL of another database of the same server.
func (s *source) databaseURL(name string) string {
	if !strings.HasPrefix(s.url, "postgres://") && !strings.HasPrefix(s.url, "postgresql://") {
		return s.url + " dbname=" + name // key=value form, where the last one counts
	}
	u, err := url.Parse(s.url)
	if err != nil {
		return s.url // pgx has parsed it before: there is no such case
	}
	u.Path = "/" + name
	query := u.Query()
	for _, other := range []string{"dbname", "database"} { // a parameter would outrank the path
		query.Del(other)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

func quote(name string) string {
	return pgx.Identifier{name}.Sanitize()
}

func hasCode(err error, codes ...string) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	for _, code := range codes {
		if pgErr.Code == code {
			return true
		}
	}
	return false
}
