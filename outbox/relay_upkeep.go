package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

const (
	// upkeepInterval is the pause between two passes of upkeep. While there is nothing to remove, one is a look into an index.
	upkeepInterval = time.Minute
	// forgetBatch is the limit that parked_forget.sql has written out.
	forgetBatch = 500
)

// keepUp removes the records of redriven events after their retention, now and every upkeepInterval, until ctx ends. It is
// the relay's own work and not Queue.Maintain's: the table is the relay's, its user may write it and the application's may
// not. Beside the pages and never between them: the relay does not wait for it.
func (r *relayRun) keepUp(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.forget(ctx); err != nil && ctx.Err() == nil {
			r.config.Logger.Warn("daybook: the relay's upkeep failed, the next one goes on", slog.Any("error", err))
		}
		pause(ctx, upkeepInterval)
	}
}

// forget does one whole pass, each batch in a transaction of its own.
func (r *relayRun) forget(ctx context.Context) error {
	for {
		forgotten, err := r.forgetBatch(ctx)
		if err != nil {
			return fmt.Errorf("daybook: remove the records of redriven events: %w", err)
		}
		if forgotten < forgetBatch {
			return nil
		}
	}
}

func (r *relayRun) forgetBatch(ctx context.Context) (int64, error) {
	conn, err := r.config.Pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	statement, done := withGrace(ctx)
	defer done()
	tag, err := conn.Exec(statement, parkedForgetSQL, r.config.Name, max(0, r.config.ParkedRetention).Milliseconds())
	return tag.RowsAffected(), err
}
