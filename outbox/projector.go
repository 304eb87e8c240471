package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/daybook-go/daybook/ledger"
)

// instrumentation is the name under which this package traces.
const instrumentation = "github.com/daybook-go/daybook/outbox"

// RangeHandler is a projection as a Projector sees it: something that folds ranges of positions. Package projections
// has them; this package does not know what they do.
type RangeHandler interface {
	// Name is the projection's name.
	Name() string
	// Open returns the projection's cursor, and makes it where there is none.
	Open(ctx context.Context, db ledger.Querier) (ledger.Cursor, error)
	// Apply folds the events of the positions (from.Position, through] and moves the cursor from from to through, all
	// in tx, which the caller commits, or rolls back where Apply returns an error. [ledger.ErrCursorMoved] says that
	// another runner was faster; it is no failure.
	Apply(ctx context.Context, tx pgx.Tx, from ledger.Cursor, through ledger.Position) error
}

// ProjectorConfig is what a Projector is made of. Pool is required; the zero value of every other field is its
// documented default.
type ProjectorConfig struct {
	// Pool is where the projections are applied. Its user needs the rights of the role daybook_relay, and those to
	// the projections' tables. A projection holds one connection while it is applied, none while it waits, and never
	// waits for a second with one in hand: any size of pool will do. One more connection, outside the pool, listens;
	// see PollOnly.
	Pool *pgxpool.Pool
	// RangeSize is how many positions are folded in one transaction, at most: 1 to 100,000; default 1000. After a
	// failure the range is halved until the position that fails stands alone.
	RangeSize int
	// PollInterval is the longest time between two looks for events; see Config.PollInterval. At least 1 ms; default 100 ms.
	PollInterval time.Duration
	// ProbeInterval is how often it asks whether event ids were drawn; see Config.ProbeInterval. Negative is never;
	// otherwise at least 1 ms; default 4 ms.
	ProbeInterval time.Duration
	// RetryInterval is the pause after an error that may pass, such as a lost connection. Default 1 s.
	RetryInterval time.Duration
	// PollOnly makes the Projector do without LISTEN; see Config.PollOnly.
	PollOnly bool
	// Logger gets failed projections at Error, what is retried at Warn, and Watermill's own messages. Default: none.
	Logger *slog.Logger
	// TracerProvider; default: OpenTelemetry's global one. Each range that is folded is a span.
	TracerProvider trace.TracerProvider
}

// Validate returns what is wrong with the configuration; nil where nothing is. [NewProjector] calls it.
func (c ProjectorConfig) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Pool == nil:
		return errors.New("daybook: outbox.ProjectorConfig: Pool is required")
	case c.RangeSize < 1 || c.RangeSize > MaxRangeSize:
		return fmt.Errorf("daybook: outbox.ProjectorConfig: RangeSize is %d, must be 1 to %d", c.RangeSize, MaxRangeSize)
	case c.PollInterval < time.Millisecond:
		return fmt.Errorf("daybook: outbox.ProjectorConfig: PollInterval is %v, must be at least 1ms", c.PollInterval)
	case c.ProbeInterval > 0 && c.ProbeInterval < time.Millisecond:
		return fmt.Errorf("daybook: outbox.ProjectorConfig: ProbeInterval is %v, must be at least 1ms, or negative for none", c.ProbeInterval)
	case c.RetryInterval < 0:
		return errors.New("daybook: outbox.ProjectorConfig: RetryInterval must not be negative")
	}
	return nil
}

func (c ProjectorConfig) withDefaults() ProjectorConfig {
	c.RangeSize = orDefault(c.RangeSize, DefaultRangeSize)
	c.PollInterval = orDefault(c.PollInterval, DefaultPollInterval)
	c.ProbeInterval = orDefault(c.ProbeInterval, DefaultProbeInterval)
	c.RetryInterval = orDefault(c.RetryInterval, DefaultRetryInterval)
	c.Logger = loggerOrNone(c.Logger)
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	return c
}

// Projector runs projections on Watermill's Router. Two Projectors over the same projections, in one process or in
// many, are harmless: a projection is folded by one at a time, and its cursor is moved by compare-and-set in
// the transaction of the fold, so each event counts once.
type Projector struct {
	config   ProjectorConfig
	handlers []RangeHandler

	mu       sync.Mutex
	running  bool
	failures []*RangeError
}

// RangeError says that a projection has stopped, and where. Everything up to After is folded; Through is the position
// that could not be. Where both are 0, its cursor could not be opened.
type RangeError struct {
	Projection     string
	After, Through ledger.Position
	Err            error
}

// Error names the projection and the position.
func (e *RangeError) Error() string {
	if e.Through == 0 {
		return fmt.Sprintf("daybook: projection %s cannot begin: %v", e.Projection, e.Err)
	}
	return fmt.Sprintf("daybook: projection %s stopped at position %d: %v", e.Projection, e.Through, e.Err)
}

// Unwrap returns what the projection said.
func (e *RangeError) Unwrap() error { return e.Err }

// NewProjector checks the configuration and that there are handlers, with a name each. It does not touch the database.
func NewProjector(config ProjectorConfig, handlers ...RangeHandler) (*Projector, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if len(handlers) == 0 {
		return nil, errors.New("daybook: outbox.NewProjector: there is no projection to run")
	}
	names := map[string]bool{}
	for _, handler := range handlers {
		name := handler.Name()
		if name == "" || names[name] {
			return nil, fmt.Errorf("daybook: outbox.NewProjector: projection name %q is empty or there twice", name)
		}
		names[name] = true
	}
	return &Projector{config: config.withDefaults(), handlers: slices.Clone(handlers)}, nil
}

// Run folds what there is and what comes, until ctx ends; then it returns nil, or what has failed meanwhile. What is being
// folded when ctx ends is rolled back, and folded by the next Run.
//
// A projection whose fold fails is stopped, logged and in [Projector.Failed], while the others go on; when all have
// stopped, Run returns their errors, joined, each a [*RangeError]. Errors that may pass (a lost connection, a
// serialization failure, a server that starts up) do not stop it. Run can be called again, not twice at once: the
// failed projections then try again.
func (p *Projector) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.running {
		p.mu.Unlock()
		return errors.New("daybook: this Projector is running already")
	}
	p.running, p.failures = true, nil
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.running = false
		p.mu.Unlock()
	}()

	wake := newListener(listenerConfig{
		pool: p.config.Pool, logger: p.config.Logger, retry: p.config.RetryInterval,
		pollOnly: p.config.PollOnly, probe: p.config.ProbeInterval, longest: p.config.PollInterval,
	})
	defer wake.close()
	beats := newBeater(p.config.Pool, ledger.RunnerProjection, p.config.Logger)
	defer beats.close()
	router, err := message.NewRouter(message.RouterConfig{}, watermillLogger{p.config.Logger})
	if err != nil {
		return fmt.Errorf("daybook: make a router: %w", err)
	}
	for _, handler := range p.handlers {
		r := newRunner(p, handler, wake, beats)
		// A panic in a fold is a failure like any other. The runner hears of the outcome last, so its middleware
		// stands outside.
		router.AddConsumerHandler(handler.Name(), r.topic(), r, r.handle).
			AddMiddleware(r.observe, middleware.Recoverer)
	}
	if err := router.Run(ctx); err != nil {
		return fmt.Errorf("daybook: run projections: %w", err)
	}
	var failed []error
	for _, failure := range p.Failed() {
		failed = append(failed, failure)
	}
	return errors.Join(failed...)
}

// Failed returns the projections that have stopped, by name.
func (p *Projector) Failed() []*RangeError {
	p.mu.Lock()
	defer p.mu.Unlock()
	failures := slices.Clone(p.failures)
	slices.SortFunc(failures, func(a, b *RangeError) int { return strings.Compare(a.Projection, b.Projection) })
	return failures
}

func (p *Projector) failed(err *RangeError) {
	p.config.Logger.Error("daybook: a projection has stopped", slog.String("projection", err.Projection),
		slog.Int64("after", int64(err.After)), slog.Int64("through", int64(err.Through)), slog.Any("error", err.Err))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = append(p.failures, err)
}
