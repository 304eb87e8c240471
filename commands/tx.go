package commands

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Tx is the caller's transaction: a pgx.Tx as it is, or a *sql.Tx through [SQLTx]. Daybook runs one statement in it and
// never ends it.
type Tx interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SQLTx makes a Tx of a database/sql transaction, and so of one of sqlx, GORM, bun or ent, with any PostgreSQL driver
// (pgx/stdlib and lib/pq are tested).
func SQLTx(tx *sql.Tx) Tx { return &sqlTx{tx: tx, types: pgtype.NewMap()} }

type sqlTx struct {
	tx    *sql.Tx
	types *pgtype.Map
}

// QueryRow sends arrays as their text: database/sql knows none, and drivers disagree about them.
func (t *sqlTx) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	sent := make([]any, len(args))
	for i, arg := range args {
		var err error
		if sent[i], err = t.encode(arg); err != nil {
			return failedRow{fmt.Errorf("encode argument %d: %w", i+1, err)}
		}
	}
	return sqlRow{row: t.tx.QueryRowContext(ctx, query, sent...), types: t.types}
}

func (t *sqlTx) encode(arg any) (any, error) {
	var oid uint32
	switch arg.(type) {
	case []string, []*string:
		oid = pgtype.TextArrayOID
	case []int32:
		oid = pgtype.Int4ArrayOID
	case []int64, []*int64:
		oid = pgtype.Int8ArrayOID
	case []uuid.UUID:
		oid = pgtype.UUIDArrayOID
	case []*bool:
		oid = pgtype.BoolArrayOID
	case [][]byte:
		oid = pgtype.ByteaArrayOID
	case []pgtype.Timestamptz:
		oid = pgtype.TimestamptzArrayOID
	default:
		return arg, nil
	}
	text, err := t.types.Encode(oid, pgtype.TextFormatCode, arg, nil)
	if err != nil || text == nil {
		return nil, err
	}
	return string(text), nil
}

type sqlRow struct {
	row   *sql.Row
	types *pgtype.Map
}

// Scan leaves single values to database/sql, which knows how, and reads arrays, which it does not know, from their text.
func (r sqlRow) Scan(dest ...any) error {
	wrapped := make([]any, len(dest))
	for i, d := range dest {
		wrapped[i] = d
		switch d.(type) {
		case *[]string, *[]answerText:
			wrapped[i] = &sqlArray{pgtype.TextArrayOID, d, r.types}
		case *[]answerID:
			wrapped[i] = &sqlArray{pgtype.UUIDArrayOID, d, r.types}
		case *[]answerTime:
			wrapped[i] = &sqlArray{pgtype.TimestamptzArrayOID, d, r.types}
		}
	}
	return r.row.Scan(wrapped...)
}

type sqlArray struct {
	oid   uint32
	dest  any
	types *pgtype.Map
}

// Scan implements sql.Scanner.
func (a *sqlArray) Scan(source any) error {
	var text []byte
	switch source := source.(type) {
	case nil:
	case string:
		text = []byte(source)
	case []byte:
		text = source
	default:
		return fmt.Errorf("the driver gives a %T for an array", source)
	}
	return a.types.Scan(a.oid, pgtype.TextFormatCode, text, a.dest)
}

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }
