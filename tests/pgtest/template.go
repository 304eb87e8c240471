package pgtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/migrations"
)

// templateLock is the advisory lock held while a template is made. One for all of them: migrations of
// two versions would otherwise race for the roles, which belong to the whole cluster.
const templateLock = 0x64617962 // "dayb"

// keptTemplates is how many templates of other migrations stay: those of branches worked on in turns.
const keptTemplates = 4

// createEmpty does not depend on the server's own locale or template1, so a test can't either.
func createEmpty(name string) string {
	return "create database " + quote(name) + " template template0 encoding 'UTF8' locale_provider libc locale 'C'"
}

// migrated returns the name of the template, made now if this server does not have it.
func (s *source) migrated(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.template != "" {
		return s.template, nil
	}
	hash, err := migrations.Hash()
	if err != nil {
		return "", err
	}
	name := "daybook_tmpl_" + hash[:min(16, len(hash))]
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }() // which also unlocks
	if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", templateLock); err != nil {
		return "", err
	}
	var exists bool
	err = conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", name).Scan(&exists)
	if err != nil {
		return "", err
	}
	if !exists {
		if err := s.makeTemplate(ctx, conn, name); err != nil {
			return "", fmt.Errorf("make the template database: %w", err)
		}
	}
	s.template = name
	return name, nil
}

// makeTemplate gives the template its name last, so a process killed on the way leaves nothing that
// looks finished.
func (s *source) makeTemplate(ctx context.Context, conn *pgx.Conn, name string) error {
	const building = "daybook_tmpl_building"
	for _, statement := range []string{"drop database if exists " + quote(building) + " with (force)", createEmpty(building)} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	inside, err := pgx.Connect(ctx, s.databaseURL(building))
	if err != nil {
		return err
	}
	_, err = migrations.Up(ctx, inside)
	if err := errors.Join(err, inside.Close(ctx)); err != nil {
		return err
	}
	for _, statement := range []string{
		// A database that somebody is connected to can't be copied.
		"alter database " + quote(building) + " with allow_connections false",
		"alter database " + quote(building) + " rename to " + quote(name),
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	rows, err := conn.Query(ctx, `
		select datname from pg_database
		where datname ~ '^daybook_tmpl_[0-9a-f]+$' and datname <> $1
		order by oid desc offset $2`, name, keptTemplates)
	if err != nil {
		return err
	}
	old, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range old {
		if _, err := conn.Exec(ctx, "drop database if exists "+quote(name)); err != nil && !hasCode(err, "55006") {
			return err // 55006: being copied right now, so still wanted
		}
	}
	return nil
}
