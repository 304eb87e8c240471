package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

// page is a page of events being published. It is made of chains, one for each key, and workers take chains: so the
// order of a key holds without a lane that waits while others have work.
type page struct {
	*relayRun
	sender sender
	// gate and source are the run's as they were when the page began: who is left behind in it must not touch a later one's.
	gate   *gate
	source Source
	// ready holds the chains that nobody works at and that need not wait. It has room for all.
	ready chan *chain
	stop  context.CancelFunc // ends the work on it
	// inFlight is the context of the messages; it ends a while after that of the relay.
	inFlight context.Context //nolint:containedctx // as long as the page

	mu     sync.Mutex
	left   int    // chains that are not at their end
	done   []bool // by place in the page
	failed error  // why the page ended early
	over   chan struct{}
}

// chain is the events of one key in a page, in their order.
type chain struct {
	key    string
	events []placed
	// attempts of the first of events to publish it, and the pauses between them.
	attempts int
	backOff  *backoff.ExponentialBackOff
	// held: an event of the key was parked when it was last looked.
	held bool
}

type placed struct {
	ledger.Event
	place int
}

// publishPage publishes the events of a page and returns the position up to which everything is published or parked: the
// page's end, or less where it ended early, with the reason. Where the lease is lost that is where the page began.
func (r *relayRun) publishPage(ctx, held context.Context, events []ledger.Event, through ledger.Position) (ledger.Position, error) {
	chains, err := r.chains(held, events)
	if err != nil {
		return r.cursor.Position, err
	}
	if len(chains) == 0 {
		return through, nil
	}
	working, stop := context.WithCancel(held)
	defer stop()
	inFlight, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	p := &page{
		relayRun: r,
		sender:   sender{publisher: r.config.Publisher, topic: r.config.Topic, format: r.config.Format, poison: r.config.Poison},
		gate:     r.gate,
		source:   r.source,
		ready:    make(chan *chain, len(chains)),
		stop:     stop,
		inFlight: inFlight,
		left:     len(chains),
		done:     passedOver(events, chains),
		over:     make(chan struct{}),
	}
	for _, c := range chains {
		p.ready <- c
	}
	var workers sync.WaitGroup
	for range min(r.config.Lanes, len(chains)) {
		workers.Go(func() { p.work(working) })
	}
	stopped := make(chan struct{})
	go func() {
		workers.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-held.Done():
		// A publisher may hang, and nothing but its own time-out ends it. Such a worker is left behind: it publishes
		// nothing more, and nobody asks it any more.
		timer := time.NewTimer(r.config.CloseGrace)
		defer timer.Stop()
		select {
		case <-stopped:
		case <-timer.C:
			r.gate = &gate{longest: r.config.MaxBackOff} // whoever hangs may be the one that tries the end of an outage
			r.config.Logger.Warn("daybook: the relay stops while messages are being published; they come again")
		}
	}
	if err := context.Cause(held); errors.Is(err, errLeaseLost) {
		// The cursor is the other one's to move.
		return r.cursor.Position, err
	}
	return p.conclude(held, events, through)
}

// chains arranges a page by key, and marks the keys that are held up.
func (r *relayRun) chains(ctx context.Context, events []ledger.Event) ([]*chain, error) {
	byKey := make(map[string]*chain, len(events))
	var all []*chain
	for i, event := range events {
		key := orderKey(event)
		c := byKey[key]
		if c == nil {
			c = &chain{key: key}
			byKey[key] = c
			all = append(all, c)
		}
		c.events = append(c.events, placed{event, i})
	}
	if len(all) == 0 {
		return nil, nil
	}
	keys := make([][]byte, 0, len(all))
	for _, c := range all {
		keys = append(keys, []byte(c.key))
	}
	rows, err := r.config.Pool.Query(ctx, parkedKeysSQL, r.config.Name, keys,
		int64(events[0].Position), int64(events[len(events)-1].Position))
	if err != nil {
		return nil, fmt.Errorf("daybook: look for parked events: %w", err)
	}
	var (
		key       []byte
		position  *int64
		discarded = map[ledger.Position]bool{}
	)
	_, err = pgx.ForEachRow(rows, []any{&key, &position}, func() error {
		if position != nil {
			discarded[ledger.Position(*position)] = true
		} else {
			byKey[string(key)].held = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("daybook: look for parked events: %w", err)
	}
	if len(discarded) > 0 {
		for _, c := range all {
			c.events = slices.DeleteFunc(c.events, func(e placed) bool { return discarded[e.Position] })
		}
	}
	return all, nil
}

// passedOver marks the events of a page that are in no chain: they were discarded.
func passedOver(events []ledger.Event, chains []*chain) []bool {
	done := make([]bool, len(events))
	for i := range done {
		done[i] = true
	}
	for _, c := range chains {
		for _, e := range c.events {
			done[e.place] = false
		}
	}
	return done
}

// work takes one chain after another until there is none, or the page ends.
func (p *page) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.over:
			return
		case c := <-p.ready:
			wait, err := p.advance(ctx, c)
			switch {
			case err != nil:
				p.end(err)
				return
			case ctx.Err() != nil:
				return
			case wait > 0:
				// The worker takes another chain meanwhile. There is room for each, so nothing blocks where the page has ended.
				time.AfterFunc(wait, func() { p.ready <- c })
			default:
				p.end(nil)
			}
		}
	}
}

// end says that a chain is at its end, or that the page has to end.
func (p *page) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return // the first one counts
	}
	p.failed = err
	p.left--
	if err != nil {
		p.stop()
	} else if p.left == 0 {
		close(p.over)
	}
}

// advance publishes the events of a chain until all are, or until it has to wait.
func (p *page) advance(ctx context.Context, c *chain) (wait time.Duration, err error) {
	for len(c.events) > 0 && ctx.Err() == nil {
		event := c.events[0]
		if c.held {
			done, err := p.parkBehind(ctx, c, event.Event)
			if err != nil {
				return 0, err
			}
			if done {
				p.finish(c)
				continue
			}
		}
		outage, err := p.gate.enter(ctx)
		if err != nil {
			return 0, nil
		}
		err = p.sender.publish(p.inFlight, event.Event, p.source)
		if err == nil {
			p.gate.succeed(outage)
			p.published()
			p.telemetry.published(ctx, event.Event)
			p.finish(c)
			continue
		}
		if ctx.Err() != nil {
			// At the end anything may be shut down, the publisher too.
			p.gate.leave(outage)
			return 0, nil
		}
		fault, final := p.sender.eventsFault(err)
		if !fault {
			if p.gate.fail(outage) {
				p.config.Logger.Warn("daybook: the broker cannot be reached, trying again", slog.Any("error", err))
			}
			p.telemetry.failed(ctx, event.Event)
			continue
		}
		// A refusal is an answer: the broker is there.
		p.gate.succeed(outage)
		p.telemetry.failed(ctx, event.Event)
		if wait, err = p.refused(ctx, c, event.Event, final, err); wait > 0 || err != nil {
			return wait, err
		}
	}
	return 0, nil
}

// refused decides what becomes of an event that could not be published and whose own fault that is.
func (p *page) refused(ctx context.Context, c *chain, event ledger.Event, final bool, cause error) (wait time.Duration, err error) {
	if c.backOff == nil {
		c.backOff = newBackOff(p.config.MaxBackOff)
	}
	c.attempts++
	if c.attempts < p.config.MaxAttempts && !final {
		return max(1, c.backOff.NextBackOff()), nil
	}
	if !p.mayPark() {
		p.config.Logger.Error("daybook: too many events in a row could not be published; nothing more is parked until one can be",
			slog.Int64("position", int64(event.Position)), slog.Any("error", cause))
		return max(1, c.backOff.NextBackOff()), nil
	}
	if err := p.park(ctx, c, event, cause); err != nil {
		return 0, err
	}
	p.telemetry.parked(ctx, event)
	p.config.Logger.Warn("daybook: an event could not be published and is parked, with the later ones of its key",
		slog.Int64("position", int64(event.Position)), slog.String("kind", string(event.Kind)),
		slog.String("key_digest", string(event.KeyDigest())), slog.Int("attempts", c.attempts), slog.Any("error", cause))
	c.held = true
	p.finish(c)
	return 0, nil
}

// finish takes the first event off a chain: it is published or parked.
func (p *page) finish(c *chain) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[c.events[0].place] = true
	c.events, c.attempts, c.backOff = c.events[1:], 0, nil
}

// conclude returns how far everything is done.
func (p *page) conclude(held context.Context, events []ledger.Event, through ledger.Position) (ledger.Position, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := slices.Index(p.done, false)
	if first < 0 {
		return through, nil
	}
	failed := p.failed
	if failed == nil {
		failed = context.Cause(held)
	}
	// What lies between two events of the page is of kinds that are not relayed.
	return events[first].Position - 1, failed
}
