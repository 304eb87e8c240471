package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errLeaseLost says that another process has the relay by now, or may have it.
var errLeaseLost = errors.New("another process has taken the relay over")

// lease is the right to work alone under a name, for as long as one keeps saying so. The database's clock tells when it
// has run out for the others, and this process's own for itself, from before it last said so: so it always gives up first.
type lease struct {
	pool   *pgxpool.Pool
	name   string
	holder uuid.UUID
	length time.Duration
	logger *slog.Logger
}

// take takes the lease, or returns false where somebody else has it.
func (l *lease) take(ctx context.Context) (bool, error) {
	var held bool
	if err := l.pool.QueryRow(ctx, leaseFindSQL, l.name, l.holder).Scan(&held); err != nil {
		return false, fmt.Errorf("daybook: look for the lease of %s: %w", l.name, err)
	}
	if held {
		return false, nil
	}
	return l.write(ctx, leaseTakeSQL)
}

func (l *lease) write(ctx context.Context, statement string) (bool, error) {
	var name string
	err := l.pool.QueryRow(ctx, statement, l.name, l.holder, l.length.Milliseconds()).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("daybook: keep the lease of %s: %w", l.name, err)
	}
	return true, nil
}

// keep renews a lease that was taken, beginning at taken, until release is called. The context it returns ends when the
// lease is lost, with errLeaseLost as its cause, or with ctx.
func (l *lease) keep(ctx context.Context, taken time.Time) (held context.Context, release func()) {
	held, lose := context.WithCancelCause(ctx)
	var beating sync.WaitGroup
	beating.Go(func() {
		if !l.beat(held, taken) {
			lose(errLeaseLost)
		}
	})
	return held, func() {
		lose(context.Canceled)
		beating.Wait()
		// The end of the caller's context is no reason to keep the others waiting.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, err := l.pool.Exec(ctx, leaseReleaseSQL, l.name, l.holder); err != nil {
			l.logger.Warn("daybook: could not release a lease, it will run out", slog.String("lease", l.name), slog.Any("error", err))
		}
	}
}

// beat renews the lease until ctx ends, and returns false where it is lost.
func (l *lease) beat(ctx context.Context, renewed time.Time) bool {
	for {
		pause(ctx, l.length/3)
		if ctx.Err() != nil {
			return true
		}
		start := time.Now()
		// Less than what is left of the lease, so that a server that does not answer is noticed in time.
		bounded, cancel := context.WithTimeout(ctx, l.length/3)
		ok, err := l.write(bounded, leaseRenewSQL)
		cancel()
		switch {
		case ok:
			renewed = start
		case err == nil, ctx.Err() == nil && time.Since(renewed) >= l.length*2/3:
			return ctx.Err() != nil
		}
	}
}
