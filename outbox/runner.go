package outbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/trace"

	"github.com/daybook-go/daybook/ledger"
)

// runner is what folds projections on the router: the message.Subscriber of their ranges, and the handler of these. Which
// projections of its group they are, its formation says; often it is none.
//
// It does not rest on watermill-sql, which would hold its own transaction open around the fold: a second connection
// for each runner, and a transaction that Close or a deadline commits with half a fold in it. A message here
// only names positions, so none has to be read or locked to make one; the fold has a transaction of its own for
// each attempt, and the cursors' compare-and-set in it. So whatever happens to the message (nack, close, a crash, a
// second runner), the fold either counts once or not at all.
type runner struct {
	projector *Projector
	group     RangeGroup
	formation *formation
	topic     string
	listener  *listener
	waiter    *waiter
	tracer    trace.Tracer
	logger    *slog.Logger

	stop    context.CancelFunc
	stopped sync.WaitGroup

	members []*member
	head    ledger.Position // the last position that is known to be given
	outcome outcome         // of the last message, set before it is acked or nacked

	// called gets something when a member was sent.
	called chan struct{}
	index  int
	// Of the formation, and under its lock.
	sent   []*member
	manned bool            // it has members, or is sent some
	place  ledger.Position // of its foremost member
}

// projectionRunnerPrefix begins the name under which a projection is heard of: that of its cursor, as package projections
// gives it.
const projectionRunnerPrefix = "projection:"

// call wakes the runner.
func (r *runner) call() {
	select {
	case r.called <- struct{}{}:
	default: // it is awake, or about to be
	}
}

// Subscribe returns the ranges of the runner's members, one after another, each when the last has been folded.
func (r *runner) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	ctx, r.stop = context.WithCancel(ctx)
	ranges := make(chan *message.Message)
	r.stopped.Go(func() {
		defer close(ranges)
		for ctx.Err() == nil && r.turn(ctx, ranges) {
		}
		if r.waiter != nil {
			r.waiter.leave()
		}
	})
	return ranges, nil
}

// Close ends the ranges; the router calls it.
func (r *runner) Close() error {
	r.stop()
	r.stopped.Wait()
	return nil
}

// turn finds a range, hands it over and waits for what becomes of it. It returns false where no projection is left.
func (r *runner) turn(ctx context.Context, ranges chan<- *message.Message) bool {
	r.formation.muster(r)
	if len(r.members) == 0 {
		select {
		case <-r.called:
		case <-r.formation.done:
			return false
		case <-ctx.Done():
		}
		return true
	}
	if r.waiter == nil {
		r.waiter = newWaiter(r.listener, r.projector.config.PollInterval)
		r.waiter.called = r.called
	}
	r.open(ctx)
	r.formation.arrange(r)
	ready := r.ready()
	if len(ready) == 0 {
		r.rest(ctx)
		return true
	}
	through, err := r.next(ctx, ready)
	if err != nil {
		r.couldNotLook(ctx, ready, err)
		return true
	}
	folded := slices.DeleteFunc(slices.Clone(ready), func(m *member) bool { return m.cursor.Position >= through })
	if len(folded) == 0 {
		r.waiter.wait(ctx, r.head)
		return true
	}
	msg, err := rangeMessage(ctx, folded, through)
	if err != nil {
		r.couldNotLook(ctx, folded, err)
		return true
	}
	select {
	case ranges <- msg:
	case <-ctx.Done():
		return true
	}
	select {
	case <-msg.Acked():
	case <-msg.Nacked():
	case <-ctx.Done():
		return true
	}
	r.conclude(ctx, folded, through)
	return true
}

// open reads the cursors that are not known.
func (r *runner) open(ctx context.Context) {
	now := time.Now()
	for _, m := range slices.Clone(r.members) {
		if m.opened || now.Before(m.rest) {
			continue
		}
		cursor, err := r.group.Open(ctx, r.projector.config.Pool, m.name)
		if err != nil {
			r.couldNotLook(ctx, []*member{m}, err)
			continue
		}
		m.cursor, m.opened = cursor, true
	}
}

// couldNotLook: the members stop, or try again where that may help.
func (r *runner) couldNotLook(ctx context.Context, members []*member, err error) {
	switch {
	case ctx.Err() != nil:
	case mayPassOutside(err):
		r.logger.Warn("daybook: could not look for events, trying again", about(members), slog.Any("error", err))
		r.tryAgain(members...)
	default:
		for _, m := range members {
			r.formation.stop(r, m, &RangeError{Projection: m.name, Err: err})
		}
	}
}

// tryAgain lets members rest after something that may pass.
func (r *runner) tryAgain(members ...*member) {
	r.head = 0
	for _, m := range members {
		m.opened, m.rest = false, time.Now().Add(r.projector.config.RetryInterval)
	}
}

// ready returns those that can go on, the hindmost first.
func (r *runner) ready() []*member {
	now := time.Now()
	ready := slices.DeleteFunc(slices.Clone(r.members), func(m *member) bool { return !m.ready(now) })
	slices.SortFunc(ready, func(a, b *member) int { return cmp.Compare(a.cursor.Position, b.cursor.Position) })
	return ready
}

// rest waits until the first member has rested, or another one is sent.
func (r *runner) rest(ctx context.Context) {
	if len(r.members) == 0 {
		return
	}
	first := slices.MinFunc(r.members, func(a, b *member) int { return a.rest.Compare(b.rest) })
	timer := time.NewTimer(time.Until(first.rest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.called:
	case <-ctx.Done():
	}
}

// next returns the end of the next range; the place of the hindmost where there is nothing new.
func (r *runner) next(ctx context.Context, ready []*member) (ledger.Position, error) {
	pool, hindmost := r.projector.config.Pool, ready[0].cursor.Position
	if hindmost >= r.head {
		if r.waiter.sequence() {
			if _, err := ledger.Sequence(ctx, pool); err != nil {
				return 0, passing{err}
			}
		}
		head, err := ledger.Head(ctx, pool)
		if err != nil {
			return 0, passing{err}
		}
		r.head = head
	}
	size := slices.MinFunc(ready, func(a, b *member) int { return cmp.Compare(a.size, b.size) }).size
	return max(hindmost, min(hindmost+ledger.Position(size), r.head)), nil
}

// conclude draws the consequences of a message that is done with.
func (r *runner) conclude(ctx context.Context, folded []*member, through ledger.Position) {
	config, out := r.projector.config, r.outcome
	switch {
	case out.err == nil:
	case ctx.Err() != nil:
		return
	case mayPass(out.err):
		r.logger.Warn("daybook: could not fold, trying again", about(folded), slog.Any("error", out.err))
		r.tryAgain(folded...)
		return
	default:
		// Of several, nobody can say whose fault it is. Each by itself will show.
		for _, m := range folded {
			r.refused(m, through, out.err, len(folded) == 1)
		}
		return
	}
	for _, m := range folded {
		err := out.failed[m.name]
		switch {
		case slices.Contains(out.busy, m.name), errors.Is(err, ledger.ErrCursorMoved):
			// The other one will be at it for a while: look again when it is time to poll.
			m.opened, m.rest = false, time.Now().Add(config.PollInterval)
		case err == nil:
			m.cursor.Position = through
			m.size = min(2*m.size, config.RangeSize)
			r.waiter.found()
		case ctx.Err() != nil:
		case mayPass(err):
			r.logger.Warn("daybook: could not fold, trying again", about([]*member{m}), slog.Any("error", err))
			r.tryAgain(m)
		default:
			r.refused(m, through, err, true)
		}
	}
}

// refused: one of the positions up to through cannot be folded. Halving finds which, and folds what lies before it.
func (r *runner) refused(m *member, through ledger.Position, err error, blamed bool) {
	rest := through - m.cursor.Position
	if rest == 1 && blamed {
		r.formation.stop(r, m, &RangeError{Projection: m.name, After: m.cursor.Position, Through: through, Err: err})
		return
	}
	m.opened, m.size, m.suspect = false, max(1, int(rest)/2), max(m.suspect, through)
}

var _ message.Subscriber = (*runner)(nil)
