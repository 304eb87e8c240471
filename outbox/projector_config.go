package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

// ProjectorConfig is what a Projector is made of. Pool is required; the zero value of every other field is its
// documented default.
type ProjectorConfig struct {
	// Pool is where the projections are applied. Its user needs the rights of the role daybook_relay, and those to
	// the projections' tables. A projection, or a group of them, holds one connection while it is applied, none while it
	// waits, and never waits for a second with one in hand: any size of pool will do. One more connection, outside the
	// pool, listens; see PollOnly.
	Pool *pgxpool.Pool
	// RangeSize is how many positions are folded in one transaction, at most: 1 to 100,000; default 1000. After a
	// failure the range is halved until the position that fails stands alone. It is also how far a projection of a group may be
	// behind the others and still be folded with them.
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
