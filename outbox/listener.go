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

// listener wakes those who wait for events when positions were given out: it listens for what sequencers notify, and
// probes whether there is anything to sequence. It has one connection for both, outside the pool: one of the pool's,
// held for ever, would leave a small pool without the connection that reads.
type listener struct {
	listenerConfig

	// last is the last position that is known to be given; 0 where none is.
	last atomic.Int64
	// probing is set while the probe is at work; refused where it is not let, so that listening goes on without.
	probing, refused atomic.Bool

	mu     sync.Mutex
	wakes  map[chan struct{}]struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

type listenerConfig struct {
	pool     *pgxpool.Pool
	logger   *slog.Logger
	retry    time.Duration
	pollOnly bool
	probe    time.Duration // between two probes; negative: none
	longest  time.Duration // between two looks that find nothing
}

// newListener returns nil where there is nothing to do for one.
func newListener(config listenerConfig) *listener {
	if config.pollOnly && config.probe < 0 {
		return nil
	}
	return &listener{listenerConfig: config, wakes: map[chan struct{}]struct{}{}}
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
	if l == nil {
		return
	}
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
		err := l.attend(ctx)
		if ctx.Err() != nil {
			return
		}
		// Polling goes on meanwhile, so this costs time and nothing else.
		l.logger.WarnContext(ctx, "daybook: not listening for notifications, polling only", slog.Any("error", err))
		pause(ctx, l.retry)
	}
}

// attend listens and probes on one connection, until it breaks or ctx ends.
func (l *listener) attend(ctx context.Context) error {
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
	if !l.pollOnly {
		if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{ledger.NotifyChannel}.Sanitize()); err != nil {
			return err
		}
	}
	// What was notified before is lost, so everybody looks once.
	l.last.Store(0)
	l.wakeAll()
	p := newProbe(l, conn)
	defer l.probing.Store(false)
	for {
		notification, err := p.await(ctx)
		if notification != nil {
			if position, err := strconv.ParseInt(notification.Payload, 10, 64); err == nil {
				l.last.Store(position)
			}
			l.wakeAll()
		}
		if err == nil && p.due() {
			err = p.run(ctx)
			l.probing.Store(err == nil && !p.off())
		}
		if err != nil {
			return err
		}
	}
}

// sequences says whether readers may leave it to the probe to sequence.
func (l *listener) sequences() bool { return l != nil && l.probing.Load() }

// given says up to which position positions are given, and wakes everybody where that is news.
func (l *listener) given(last ledger.Position) {
	if l.last.Swap(int64(last)) != int64(last) {
		l.wakeAll()
	}
}

// connect makes a connection as the pool would make it.
func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	config := l.pool.Config()
	// It would be told of a statement every few milliseconds.
	config.ConnConfig.Tracer = nil
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
