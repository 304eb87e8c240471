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
	retention := max(0, r.config.ParkedRetention)
	for {
		tag, err := r.config.Pool.Exec(ctx, parkedForgetSQL, r.config.Name, retention.Milliseconds())
		if err != nil {
			return fmt.Errorf("daybook: remove the records of redriven events: %w", err)
		}
		if tag.RowsAffected() < forgetBatch {
			return nil
		}
	}
}
