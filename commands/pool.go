package commands

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// poolTx runs each statement in a transaction of its own. A pool's QueryRow does too, but does not tell an error from
// before there was a connection, when nothing can have happened, from one after.
type poolTx struct{ pool *pgxpool.Pool }

func (p poolTx) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return failedRow{notSentError{err}}
	}
	return poolRow{conn: conn, row: conn.QueryRow(ctx, query, args...)}
}

type poolRow struct {
	conn *pgxpool.Conn
	row  pgx.Row
}

func (r poolRow) Scan(dest ...any) error {
	defer r.conn.Release()
	return r.row.Scan(dest...)
}

// notSentError is an error from before anything was sent.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

// SafeToRetry is what pgconn.SafeToRetry asks for.
func (notSentError) SafeToRetry() bool { return true }
