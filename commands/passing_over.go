package commands

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// passes is how often a function that passes over what others hold is called, at most.
const passes = 10

// passingOver calls such a function, in a transaction of its own. Its SKIP LOCKED waits now and then all the same: where
// a row gets a new version at that very moment, PostgreSQL follows it to the newest one and waits for whoever holds that.
// Then the function's lock_timeout ends the wait, nothing was done, and it is called again.
func (q *Queue) passingOver(ctx context.Context, query string, args []any, dest ...any) error {
	for pass := 1; ; pass++ {
		err := (poolTx{q.pool}).QueryRow(ctx, query, args...).Scan(dest...)
		var fromServer *pgconn.PgError
		if pass == passes || !errors.As(err, &fromServer) || fromServer.Code != "55P03" {
			return err
		}
	}
}
