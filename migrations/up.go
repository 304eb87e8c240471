package migrations

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lockKey is the advisory lock under which migrations run: SHA-256("daybook.migrations"), first eight bytes.
const lockKey int64 = 0x5a1d6f0c2be94f37

// Result says what [Up] did.
type Result struct {
	// Applied are the migrations that this call applied, in order; empty where the schema was up to date.
	Applied []Migration
	// Version is the schema's version afterwards.
	Version int
}

// ChangedError says that a migration which is applied in the database is not the one that this build has: its text
// was altered after it was applied, or the database was migrated by a newer Daybook.
type ChangedError struct {
	Version int
	// Applied is the checksum in the database; Embedded this build's, "" where it has no such migration.
	Applied, Embedded string
}

// Error names the version and says what to do.
func (e *ChangedError) Error() string {
	if e.Embedded == "" {
		return fmt.Sprintf("daybook: the database has migration %d, which this build does not know; use the Daybook version that applied it, or a later one", e.Version)
	}
	return fmt.Sprintf("daybook: migration %d was applied with checksum %.12s, this build has %.12s; migrations never change, they are only added", e.Version, e.Applied, e.Embedded)
}

// Up applies all pending migrations in one transaction of its own on conn, and waits for another process that is at
// it. The connection's user must be a superuser, or have CREATEROLE and CREATE on the database; see the hint of the
// error where it has not. On error nothing is applied. It returns a [*ChangedError] where the database and this
// build disagree about a migration that is applied already.
func Up(ctx context.Context, conn *pgx.Conn) (Result, error) {
	all, err := All()
	if err != nil {
		return Result{}, err
	}
	var result Result
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, lockKey); err != nil {
			return fmt.Errorf("wait for other migrations: %w", err)
		}
		applied, err := appliedChecksums(ctx, tx)
		if err != nil {
			return err
		}
		pending, err := compare(all, applied)
		if err != nil {
			return err
		}
		for _, m := range pending {
			if _, err := tx.Exec(ctx, m.SQL); err != nil {
				return fmt.Errorf("migration %d (%s): %w", m.Version, m.Name, err)
			}
		}
		// The history lies in the schema that the first migrations make, so it is written after them.
		for _, m := range pending {
			if _, err := tx.Exec(ctx, recordSQL(m)); err != nil {
				return fmt.Errorf("record migration %d: %w", m.Version, err)
			}
		}
		result = Result{Applied: pending, Version: all[len(all)-1].Version}
		return nil
	})
	if err != nil {
		return Result{}, fmt.Errorf("daybook: migrate: %w", withHint(err))
	}
	return result, nil
}

// appliedChecksums returns the checksum of each applied migration; none where there is no schema yet.
func appliedChecksums(ctx context.Context, tx pgx.Tx) (map[int]string, error) {
	var exists bool
	if err := tx.QueryRow(ctx, `select to_regclass('daybook.migration') is not null`).Scan(&exists); err != nil {
		return nil, fmt.Errorf("look for the schema: %w", err)
	}
	applied := map[int]string{}
	if !exists {
		return applied, nil
	}
	rows, err := tx.Query(ctx, `select m.version, m.checksum from daybook.migration as m`)
	if err != nil {
		return nil, fmt.Errorf("read applied migrations: %w", err)
	}
	var (
		version  int
		checksum string
	)
	_, err = pgx.ForEachRow(rows, []any{&version, &checksum}, func() error {
		applied[version] = checksum
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read applied migrations: %w", err)
	}
	return applied, nil
}

// compare returns what is pending, or how the two histories disagree.
func compare(all []Migration, applied map[int]string) ([]Migration, error) {
	known := map[int]bool{}
	var pending []Migration
	for _, m := range all {
		known[m.Version] = true
		checksum, ok := applied[m.Version]
		switch {
		case !ok:
			pending = append(pending, m)
		case checksum != m.Checksum:
			return nil, &ChangedError{Version: m.Version, Applied: checksum, Embedded: m.Checksum}
		}
	}
	for version, checksum := range applied {
		if !known[version] {
			return nil, &ChangedError{Version: version, Applied: checksum}
		}
	}
	return pending, nil
}

// recordSQL has no parameters, so that Print can write it out.
func recordSQL(m Migration) string {
	return fmt.Sprintf("insert into daybook.migration (version, name, checksum)\nvalues (%d, '%s', '%s');\n", m.Version, m.Name, m.Checksum)
}

// withHint adds what to do to the errors that a user without the rights meets.
func withHint(err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "42501" {
		return fmt.Errorf("%w (migrate as a superuser, or as a user with CREATEROLE and CREATE on the database)", err)
	}
	return err
}

// Print writes all migrations as one SQL script, with the statements that record them, for those who apply migrations
// with a tool of their own. It must run in one transaction.
func Print(w io.Writer) error {
	all, err := All()
	if err != nil {
		return err
	}
	var script strings.Builder
	script.WriteString("-- Daybook's migrations. Run them in one transaction.\n\n")
	for _, m := range all {
		fmt.Fprintf(&script, "-- %04d %s\n\n%s\n", m.Version, m.Name, m.SQL)
	}
	for _, m := range all {
		script.WriteString(recordSQL(m))
	}
	if _, err := io.WriteString(w, script.String()); err != nil {
		return fmt.Errorf("daybook: print migrations: %w", err)
	}
	return nil
}
