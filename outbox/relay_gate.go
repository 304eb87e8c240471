package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// gate keeps lanes from running against a broker that is away. While it is, one of them tries again and again, with
// growing pauses, and the others wait for it.
type gate struct {
	longest time.Duration

	mu   sync.Mutex
	away *outage // nil: the broker is there
}

// outage is one absence of the broker.
type outage struct {
	over    chan struct{} // closed when it is back
	probe   chan struct{} // has room for the one that tries
	backOff *backoff.ExponentialBackOff
}

// enter waits until it makes sense to publish. The outage it returns is nil, or one that the caller is to try the end
// of, and must tell the gate about with succeed, fail or leave.
func (g *gate) enter(ctx context.Context) (*outage, error) {
	for {
		g.mu.Lock()
		o := g.away
		g.mu.Unlock()
		if o == nil {
			return nil, ctx.Err()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-o.over:
		case o.probe <- struct{}{}:
			pause(ctx, o.backOff.NextBackOff())
			if err := ctx.Err(); err != nil {
				g.leave(o)
				return nil, err
			}
			return o, nil
		}
	}
}

// succeed says that the broker has answered. Of those who did not try the outage's end it means nothing: their answer may
// be from before.
func (g *gate) succeed(o *outage) {
	if o == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.away = nil
	close(o.over)
}

// fail says that the broker could not be reached, and reports whether that is news.
func (g *gate) fail(o *outage) bool {
	if o != nil {
		g.leave(o)
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away != nil {
		return false
	}
	g.away = &outage{over: make(chan struct{}), probe: make(chan struct{}, 1), backOff: newBackOff(g.longest)}
	return true
}

// leave gives the attempt to somebody else.
func (g *gate) leave(o *outage) {
	if o != nil {
		<-o.probe
	}
}
