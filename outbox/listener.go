package outbox

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
)

// listener wakes those who wait for events when the sequencer has given out positions. It has one connection, outside
// the pool: one of the pool's, held for ever, would leave a small pool without the connection that reads.
type listener struct {
	pool   *pgxpool.Pool
	logger *slog.Logger
	retry  time.Duration

	// last is the last position that was notified; 0 where that is not known.
	last atomic.Int64

	mu     sync.Mutex
	wakes  map[chan struct{}]struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

func newListener(pool *pgxpool.Pool, retry time.Duration, logger *slog.Logger) *listener {
	return &listener{pool: pool, retry: retry, logger: logger, wakes: map[chan struct{}]struct{}{}}
}

// register returns a channel that gets something, now or soon, for every notification, and the function that ends
// it. The first registration opens the connection.
func (l *listener) register() (wake <-chan struct{}, unregister func()) {
	c := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakes[c] = struct{}{}
	if l.cancel == nil {
		var ctx context.Context
		ctx, l.cancel = context.WithCancel(context.Background())
		l.done = make(chan struct{})
		go l.run(ctx, l.done)
	}
	return c, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.wakes, c)
	}
}

func (l *listener) close() {
	l.mu.Lock()
	cancel, done := l.cancel, l.done
	l.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
}

func (l *listener) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	for ctx.Err() == nil {
		err := l.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		// Polling goes on meanwhile, so this costs time and nothing else.
		l.logger.WarnContext(ctx, "daybook: not listening for notifications, polling only", slog.Any("error", err))
		pause(ctx, l.retry)
	}
}

func (l *listener) listen(ctx context.Context) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// Bounded, because the server may be what has gone.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{ledger.NotifyChannel}.Sanitize()); err != nil {
		return err
	}
	// What was notified before is lost, so everybody looks once.
	l.last.Store(0)
	l.wakeAll()
	for {
		notification, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if position, err := strconv.ParseInt(notification.Payload, 10, 64); err == nil {
			l.last.Store(position)
		}
		l.wakeAll()
	}
}

// connect makes a connection as the pool would make it.
func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	config := l.pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	if config.AfterConnect != nil {
		if err := config.AfterConnect(ctx, conn); err != nil {
			_ = conn.Close(ctx)
			return nil, err
		}
	}
	return conn, nil
}

func (l *listener) wakeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for wake := range l.wakes {
		select {
		case wake <- struct{}{}:
		default: // it has not looked since the last time
		}
	}
}
