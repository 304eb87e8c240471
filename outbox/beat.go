package outbox

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
)

// beater says every now and then that the runners of this process are there, all of them in one statement. A lag of 0 with
// nobody running looks like health to everybody who has only cursors to look at.
//
// It has its own goroutine: a handler may take minutes for one message, and its runner is not dead meanwhile. One that is stuck shows by
// its lag.
type beater struct {
	pool   *pgxpool.Pool
	kind   ledger.RunnerKind
	logger *slog.Logger
	host   string

	mu     sync.Mutex
	names  map[string]int // how many runners have each name
	fresh  chan struct{}
	cancel context.CancelFunc
	done   chan struct{}
}

func newBeater(pool *pgxpool.Pool, kind ledger.RunnerKind, logger *slog.Logger) *beater {
	// Without a name it is told by its pid alone.
	host, _ := os.Hostname()
	return &beater{pool: pool, kind: kind, logger: logger, host: host, names: map[string]int{}, fresh: make(chan struct{}, 1)}
}

// add says at once, and then every ledger.BeatInterval, that a runner is there, until the function it returns is called. The first
// one starts the goroutine.
func (b *beater) add(name string) (remove func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names[name]++
	if b.cancel == nil {
		var ctx context.Context
		ctx, b.cancel = context.WithCancel(context.Background())
		b.done = make(chan struct{})
		go b.run(ctx, b.done)
	}
	select {
	case b.fresh <- struct{}{}:
	default: // it is about to beat anyway
	}
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.names[name]--; b.names[name] == 0 {
			delete(b.names, name)
		}
	})
}

func (b *beater) close() {
	b.mu.Lock()
	cancel, done := b.cancel, b.done
	b.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
}

func (b *beater) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	ticker := time.NewTicker(ledger.BeatInterval)
	defer ticker.Stop()
	warned := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.fresh:
		case <-ticker.C:
		}
		err := b.beat(ctx)
		if err != nil && ctx.Err() == nil && !mayPass(err) && !warned {
			// Whoever watches the beats takes these runners for dead; the runners themselves do not need it.
			warned = true
			b.logger.Warn("daybook: cannot say that a runner is there", slog.Any("error", err))
		}
	}
}

func (b *beater) beat(ctx context.Context) error {
	b.mu.Lock()
	names := slices.Sorted(maps.Keys(b.names))
	b.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ledger.BeatInterval)
	defer cancel()
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	statement, done := withGrace(ctx)
	defer done()
	return ledger.Beat(statement, conn, b.kind, b.host, os.Getpid(), names...)
}
