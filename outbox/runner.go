package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/daybook-go/daybook/ledger"
)

// positions is the payload of a message that names a range: the positions (After, Through], in an epoch.
type positions struct {
	Epoch   int64           `json:"epoch"`
	After   ledger.Position `json:"after"`
	Through ledger.Position `json:"through"`
}

// runner is one projection on the router: the message.Subscriber of its ranges, and their handler.
//
// It does not rest on watermill-sql, which would hold its own transaction open around the fold: a second connection
// for each projection, and a transaction that Close or a deadline commits with half a fold in it. A message here
// only names positions, so none has to be read or locked to make one; the fold has a transaction of its own for
// each attempt, and the cursor's compare-and-set in it. So whatever happens to the message (nack, close, a crash, a
// second runner), the fold either counts once or not at all.
type runner struct {
	projector *Projector
	handler   RangeHandler
	listener  *listener
	beats     *beater
	waiter    *waiter
	tracer    trace.Tracer
	logger    *slog.Logger

	stop    context.CancelFunc
	stopped sync.WaitGroup

	cursor   ledger.Cursor
	opened   bool            // cursor is known; otherwise it has to be read
	head     ledger.Position // the last position that is known to be given
	size     int             // of the next range, at most
	outcome  error           // of the last message, set before it is acked or nacked
	conflict bool            // the last message found another runner at work
}

// projectionRunnerPrefix begins the name under which a projection is heard of: that of its cursor, as package projections
// gives it.
const projectionRunnerPrefix = "projection:"

func newRunner(p *Projector, handler RangeHandler, l *listener, beats *beater) *runner {
	return &runner{
		projector: p,
		handler:   handler,
		listener:  l,
		beats:     beats,
		tracer:    p.config.TracerProvider.Tracer(instrumentation),
		logger:    p.config.Logger.With(slog.String("projection", handler.Name())),
		size:      p.config.RangeSize,
	}
}

func (r *runner) topic() string { return "daybook.ranges." + r.handler.Name() }

// Subscribe returns the ranges of the projection, one after another, each when the last has been folded.
func (r *runner) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	ctx, r.stop = context.WithCancel(ctx)
	r.waiter = newWaiter(r.listener, r.projector.config.PollInterval)
	quiet := r.beats.add(projectionRunnerPrefix + r.handler.Name())
	ranges := make(chan *message.Message)
	r.stopped.Go(func() {
		defer close(ranges)
		defer r.waiter.leave()
		defer quiet()
		for ctx.Err() == nil && r.turn(ctx, ranges) {
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

// turn finds a range, hands it over and waits for what becomes of it. It returns false where the projection has failed.
func (r *runner) turn(ctx context.Context, ranges chan<- *message.Message) bool {
	through, err := r.next(ctx)
	if err != nil {
		return r.failedToBegin(ctx, err)
	}
	if through == r.cursor.Position {
		r.waiter.wait(ctx, r.head)
		return true
	}
	msg, err := r.message(ctx, through)
	if err != nil {
		return r.failedToBegin(ctx, err)
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
	return r.conclude(ctx, through)
}

// next returns the end of the next range; the cursor's own position where there is nothing new.
func (r *runner) next(ctx context.Context) (ledger.Position, error) {
	pool := r.projector.config.Pool
	if !r.opened {
		cursor, err := r.handler.Open(ctx, pool)
		if err != nil {
			return 0, err
		}
		r.cursor, r.opened = cursor, true
	}
	if r.cursor.Position >= r.head {
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
	return max(r.cursor.Position, min(r.cursor.Position+ledger.Position(r.size), r.head)), nil
}

func (r *runner) message(ctx context.Context, through ledger.Position) (*message.Message, error) {
	payload, err := json.Marshal(positions{r.cursor.Epoch, r.cursor.Position, through})
	if err != nil {
		return nil, fmt.Errorf("daybook: name a range: %w", err)
	}
	id := fmt.Sprintf("%s/%d/%d-%d", r.handler.Name(), r.cursor.Epoch, r.cursor.Position, through)
	return message.NewMessageWithContext(ctx, id, payload), nil
}

// observe is the middleware that tells the runner what became of a message.
func (r *runner) observe(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		r.outcome, r.conflict = nil, false
		produced, err := next(msg)
		r.outcome = err
		return produced, err
	}
}

// handle folds the range that a message names, in one transaction.
func (r *runner) handle(msg *message.Message) error {
	var p positions
	if err := json.Unmarshal(msg.Payload, &p); err != nil {
		return fmt.Errorf("daybook: message %s names no range: %w", msg.UUID, err)
	}
	ctx, span := r.tracer.Start(msg.Context(), "daybook.project", trace.WithAttributes(
		attribute.String("daybook.projection", r.handler.Name()),
		attribute.Int64("daybook.after", int64(p.After)),
		attribute.Int64("daybook.through", int64(p.Through)),
	))
	defer span.End()
	err := r.apply(ctx, p)
	if errors.Is(err, errBusy) || errors.Is(err, ledger.ErrCursorMoved) {
		// No failure: the message is done with, because another runner does, or has done, what it asks for.
		r.conflict = true
		return nil
	}
	if err != nil {
		span.SetStatus(codes.Error, fmt.Sprintf("%T", err))
	}
	return err
}

func (r *runner) apply(ctx context.Context, p positions) error {
	tx, err := r.projector.config.Pool.Begin(ctx)
	if err != nil {
		return passing{fmt.Errorf("daybook: begin a fold: %w", err)}
	}
	// After the commit it does nothing. Without the caller's end, or the connection would be thrown away.
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()

	var locked bool
	if err := tx.QueryRow(ctx, lockProjectionSQL, r.handler.Name()).Scan(&locked); err != nil {
		return passing{fmt.Errorf("daybook: take the projection: %w", err)}
	}
	if !locked {
		return errBusy
	}
	from := ledger.Cursor{Epoch: p.Epoch, Position: p.After}
	if err := r.handler.Apply(ctx, tx, from, p.Through); err != nil {
		if tx.Conn().IsClosed() {
			return passing{err}
		}
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		// Whether it has committed is not known where the connection broke; the cursor, read again, will tell.
		if tx.Conn().IsClosed() {
			return passing{err}
		}
		return fmt.Errorf("daybook: commit a fold: %w", err)
	}
	return nil
}

// conclude draws the consequences of a message that is done with.
func (r *runner) conclude(ctx context.Context, through ledger.Position) bool {
	config := r.projector.config
	err := r.outcome
	switch {
	case r.conflict:
		// The other one will be at it for a while: look again when it is time to poll.
		r.opened = false
		pause(ctx, config.PollInterval)
	case err == nil:
		r.cursor.Position = through
		r.size = min(2*r.size, config.RangeSize)
		r.waiter.found()
	case ctx.Err() != nil:
	case mayPass(err):
		r.logger.Warn("daybook: could not fold, trying again", slog.Any("error", err))
		r.opened, r.head = false, 0
		pause(ctx, config.RetryInterval)
	case through-r.cursor.Position > 1:
		// One of these cannot be folded. Halving finds which, and folds what lies before it.
		r.size = max(1, int(through-r.cursor.Position)/2)
	default:
		r.projector.failed(&RangeError{Projection: r.handler.Name(), After: r.cursor.Position, Through: through, Err: err})
		return false
	}
	return true
}

func (r *runner) failedToBegin(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	if mayPassOutside(err) {
		r.logger.Warn("daybook: could not look for events, trying again", slog.Any("error", err))
		r.opened, r.head = false, 0
		pause(ctx, r.projector.config.RetryInterval)
		return true
	}
	r.projector.failed(&RangeError{Projection: r.handler.Name(), Err: err})
	return false
}

var _ message.Subscriber = (*runner)(nil)
