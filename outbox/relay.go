package outbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/ledger"
)

// Relay moves events to a broker: any Watermill message.Publisher. Delivery is at least once; events of one key, or
// without a key of one job, are published in the order of their positions.
//
// It reads a page of events outside any transaction, publishes them, up to RelayConfig.Lanes at once, and moves its
// cursor by compare-and-set when each event of the page is published or parked. While it publishes it holds no
// transaction, no lock and no connection, however slow the broker is.
//
// An event that the broker refuses again and again is parked, see [ListParked], and so are the later events of its key;
// all others go on. [Redrive] publishes them when the cause is gone, [Discard] decides that one is never published.
//
// What a broker gets twice it recognises by the message's UUID, which is the same whenever an event is published.
type Relay struct {
	config    RelayConfig
	telemetry *relayTelemetry

	mu      sync.Mutex
	running bool
	// parkedInARow counts the events parked since one was published.
	parkedInARow int
}

// NewRelay checks the configuration. It does not touch the database or the broker; Run does.
func NewRelay(config RelayConfig) (*Relay, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	telemetry, err := newRelayTelemetry(config.MeterProvider, config.Name)
	if err != nil {
		return nil, err
	}
	config.Logger = config.Logger.With(slog.String("relay", config.Name))
	return &Relay{config: config, telemetry: telemetry}, nil
}

// Run relays what there is and what comes, until ctx ends; then it returns nil. Messages that are being published at
// that moment get CloseGrace to be acknowledged, and the cursor moves over what was: then a graceful end repeats
// nothing. Whatever is not acknowledged by then is published again by the next Run.
//
// Where the broker is away Run waits, tries again with growing pauses, and goes on when it is back; likewise where the
// database is away. While another process works under the same name, Run stands by and takes over when that one ends
// or is not heard of for the time of a lease. A Run that is replaced so stops publishing, does not move the cursor any
// more, and stands by.
//
// It returns an error where going on is of no use: a [*ledger.EpochError] after a restore, or whatever the database
// refuses. Run can be called again, not twice at once.
func (r *Relay) Run(ctx context.Context) error {
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return errors.New("daybook: this Relay is running already")
	}
	r.running = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.running = false
		r.mu.Unlock()
	}()

	wake := newListener(listenerConfig{
		pool: r.config.Pool, logger: r.config.Logger, retry: r.config.RetryInterval,
		pollOnly: r.config.PollOnly, probe: r.config.ProbeInterval, longest: r.config.PollInterval,
	})
	defer wake.close()
	beats := newBeater(r.config.Pool, ledger.RunnerRelay, r.config.Logger)
	defer beats.close()
	// One that stands by is there as well.
	beats.add(RelayCursorName(r.config.Name))
	run := &relayRun{
		Relay:  r,
		waiter: newWaiter(wake, r.config.PollInterval),
		gate:   &gate{longest: r.config.MaxBackOff},
		lease: &lease{
			pool: r.config.Pool, name: RelayCursorName(r.config.Name), holder: uuid.New(), length: r.config.Lease,
			logger: r.config.Logger,
		},
	}
	defer run.waiter.leave()
	for ctx.Err() == nil {
		err := run.work(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errLeaseLost), errors.Is(err, ledger.ErrCursorMoved):
			r.config.Logger.Warn("daybook: another process works under this relay's name", slog.Any("error", err))
		case err != nil && mayPassOutside(err):
			r.config.Logger.Warn("daybook: the relay could not go on, trying again", slog.Any("error", err))
			pause(ctx, r.config.RetryInterval)
		case err != nil:
			return err
		}
	}
	return nil
}

// relayRun is one call of Run.
type relayRun struct {
	*Relay
	waiter *waiter
	gate   *gate
	lease  *lease

	cursor ledger.Cursor
	source Source
	head   ledger.Position // the last position given, when it was last looked at
}

// work waits for the lease, and relays while it holds it.
func (r *relayRun) work(ctx context.Context) error {
	for {
		began := time.Now()
		taken, err := r.lease.take(ctx)
		if err != nil {
			return err
		}
		if taken {
			held, release := r.lease.keep(ctx, began)
			defer release()
			return r.relay(ctx, held)
		}
		pause(ctx, min(r.config.Lease/3, time.Second))
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// relay publishes page after page. Its first context is that of Run, the second one ends with the lease as well.
func (r *relayRun) relay(ctx, held context.Context) error {
	start, err := r.config.Start.resolve(held, r.config.Pool)
	if err != nil {
		return r.reason(held, err)
	}
	if r.cursor, err = ledger.OpenCursor(held, r.config.Pool, RelayCursorName(r.config.Name), start); err != nil {
		return r.reason(held, err)
	}
	if r.source, err = ReadSource(held, r.config.Pool); err != nil {
		return r.reason(held, err)
	}
	keeping, stop := context.WithCancel(held)
	var upkeep sync.WaitGroup
	upkeep.Go(func() { r.keepUp(keeping) })
	defer upkeep.Wait()
	defer stop()
	r.head = 0
	for {
		if err := r.turn(ctx, held); err != nil {
			return r.reason(held, err)
		}
		if held.Err() != nil {
			return context.Cause(held)
		}
	}
}

// reason returns what is behind an error: that of a statement which was cancelled with the lease is the loss of the lease.
func (r *relayRun) reason(held context.Context, err error) error {
	if held.Err() != nil {
		return errors.Join(context.Cause(held), err)
	}
	return err
}

// turn publishes one page and moves the cursor over it, or waits where there is none.
func (r *relayRun) turn(ctx, held context.Context) error {
	pool := r.config.Pool
	if r.cursor.Position >= r.head && r.waiter.sequence() {
		if _, err := ledger.Sequence(held, pool); err != nil {
			return err
		}
	}
	var err error
	if r.head, err = ledger.Head(held, pool); err != nil {
		return err
	}
	r.telemetry.at(held, r.cursor.Position, r.head)
	if r.cursor.Position >= r.head {
		r.waiter.wait(held, r.head)
		return nil
	}
	events, through, err := ledger.Read(held, pool, r.cursor.Position, r.config.PageSize, r.config.Kinds...)
	if err != nil {
		return err
	}
	r.waiter.found()
	done, failed := r.publishPage(ctx, held, events, through)
	if done > r.cursor.Position {
		// Also where ctx has ended: what was published need not be published again.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		if err := ledger.MoveCursor(bounded, pool, RelayCursorName(r.config.Name), r.cursor, done); err != nil {
			return errors.Join(err, failed)
		}
		r.cursor.Position = done
		r.telemetry.at(bounded, r.cursor.Position, r.head)
	}
	return failed
}

// mayPark says whether one more event may be parked: a broker that refuses everything is no reason to park everything.
func (r *Relay) mayPark() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parkedInARow >= r.config.ParkLimit {
		return false
	}
	r.parkedInARow++
	return true
}

func (r *Relay) published() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parkedInARow = 0
}
