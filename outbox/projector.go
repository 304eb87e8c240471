package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/daybook-go/daybook/ledger"
)

// instrumentation is the name under which this package traces.
const instrumentation = "github.com/daybook-go/daybook/outbox"

// Projector runs projections on Watermill's Router. Two Projectors over the same projections, in one process or in
// many, are harmless: a projection is folded by one at a time, and its cursor is moved by compare-and-set in
// the transaction of the fold, so each event counts once.
type Projector struct {
	config ProjectorConfig
	groups []RangeGroup

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

// NewProjector returns a Projector that folds each projection for itself, in transactions of its own, all at once. It checks
// the configuration and that there are handlers, with a name each. It does not touch the database.
//
// For several projections [NewGroupProjector] does less work: see there.
func NewProjector(config ProjectorConfig, handlers ...RangeHandler) (*Projector, error) {
	groups := make([]RangeGroup, len(handlers))
	for i, handler := range handlers {
		groups[i] = alone{handler}
	}
	return newProjector("NewProjector", config, groups)
}

// NewGroupProjector returns a Projector that folds the projections of a group together: the ledger is read once for all
// of them, and a range is one transaction with one commit. Of several groups each is folded for itself. It checks the
// configuration and that no projection is there twice. It does not touch the database.
//
// What a projection promises is the same as with [NewProjector]. One whose fold fails stops alone. One that is further
// behind than the others, because it is new, was rebuilt, or had failed, is folded by itself, meanwhile and in other
// transactions, and goes with the others when it is no more than ProjectorConfig.RangeSize behind them.
//
// One transaction takes less of the processors than several, but only one of them at a time; where many events are to
// be caught up on and processors idle, NewProjector may be faster.
func NewGroupProjector(config ProjectorConfig, groups ...RangeGroup) (*Projector, error) {
	return newProjector("NewGroupProjector", config, slices.Clone(groups))
}

func newProjector(constructor string, config ProjectorConfig, groups []RangeGroup) (*Projector, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, group := range groups {
		if len(group.Names()) == 0 {
			return nil, fmt.Errorf("daybook: outbox.%s: a group has no projection", constructor)
		}
		for _, name := range group.Names() {
			if name == "" || names[name] {
				return nil, fmt.Errorf("daybook: outbox.%s: projection name %q is empty or there twice", constructor, name)
			}
			names[name] = true
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("daybook: outbox.%s: there is no projection to run", constructor)
	}
	return &Projector{config: config.withDefaults(), groups: groups}, nil
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
	for _, group := range p.groups {
		for _, r := range newFormation(p, group, wake, beats).runners {
			// A panic in a fold is a failure like any other. The runner hears of the outcome last, so its middleware
			// stands outside.
			router.AddConsumerHandler(r.topic, r.topic, r, r.handle).AddMiddleware(r.observe, middleware.Recoverer)
		}
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
