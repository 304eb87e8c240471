package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
)

// Defaults of a [Config] and a [ProjectorConfig].
const (
	DefaultPollInterval   = 100 * time.Millisecond
	DefaultProbeInterval  = 4 * time.Millisecond
	DefaultRetryInterval  = time.Second
	DefaultResendInterval = 100 * time.Millisecond
	DefaultAckDeadline    = 10 * time.Minute
	DefaultPageSize       = 500
	DefaultRangeSize      = 1000
)

// MaxPageSize bounds Config.PageSize; MaxRangeSize bounds ProjectorConfig.RangeSize.
const (
	MaxPageSize  = 10_000
	MaxRangeSize = ledger.MaxPage
)

// MaxGroupBytes bounds Config.ConsumerGroup.
const MaxGroupBytes = 200

// Config is what a Subscriber is made of. Pool and ConsumerGroup are required; the zero value of every other field is
// its documented default.
type Config struct {
	// Pool is where the Subscriber reads and keeps its cursors. Its user needs the rights of the role daybook_relay,
	// and it needs room for at least two connections. While a page of messages is being handled, its subscription
	// holds one of them; the Subscriber leaves at least one free, so that handlers can use the same pool. One more
	// connection, outside the pool, listens; see PollOnly.
	Pool *pgxpool.Pool
	// ConsumerGroup names who reads. Each group gets every event, and has a cursor for each topic that it subscribes
	// to, named "group/topic". Of several members of one group, in one process or many, one is served at a
	// time; the others wait, without a connection, to take over. 1–200 bytes, printable, without "/".
	ConsumerGroup string
	// Start is where a group begins that has no cursor yet. It has no effect on one that has. Default: the beginning.
	Start Start
	// PollInterval is the longest time between two looks for events, each of which sequences first. So it bounds how
	// long an event waits whatever else fails. After an event the next looks come sooner, at intervals that double, and
	// a notification that somebody has sequenced ends the wait at once. At least 1 ms; default 100 ms.
	PollInterval time.Duration
	// ProbeInterval is how often the Subscriber asks, on the connection that listens, which event id was drawn last,
	// once for all its subscriptions. Where that has moved, it sequences, so that an event on an idle ledger waits for
	// this and not for PollInterval. What was drawn may commit late or never: while there is nothing to sequence, the next
	// attempts come at growing intervals, up to PollInterval.
	//
	// At 4 ms that is 250 statements a second, which read no table, take no xid and hold no transaction between two of
	// them. On a small virtual machine an idle process took 7 % of a core for it, and its server 4 %. They show in the
	// server's statistics, and in a log of all statements. At least 1 ms; default 4 ms; negative switches it off.
	ProbeInterval time.Duration
	// PageSize is how many events are read at once, at most: 1 to 10,000; default 500. A page grows from 16 up to it
	// as long as handlers are quick, and shrinks so that one page takes about a second: that bounds how long a
	// transaction stays open. What comes again after a kill does not depend on it; what does
	// when the server ends may. See Subscriber.
	PageSize int
	// AckDeadline is how long a handler may take for one message. After it the message's context is cancelled and the
	// message is delivered again. It also ends the page, whose transaction migrations have to wait for; see Subscriber.
	// Default 10 minutes; there is no way to switch it off, so that a handler that hangs does not hold its group for ever.
	AckDeadline time.Duration
	// ResendInterval is the pause before a message that was nacked is delivered again. Closing waits for it to end.
	// Default 100 ms.
	ResendInterval time.Duration
	// RetryInterval is the pause after an error such as a lost connection. Default 1 s.
	RetryInterval time.Duration
	// PollOnly makes the Subscriber do without LISTEN, for connections through a pooler that cannot do it (PgBouncer in
	// transaction mode). Events that others have sequenced are then found by the next probe or poll.
	PollOnly bool
	// Logger gets errors at Error, what is retried at Warn, and Watermill's own messages; never a body. Default: none.
	Logger *slog.Logger
}

// Validate returns what is wrong with the configuration; nil where nothing is. [NewSubscriber] calls it.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Pool == nil:
		return errors.New("daybook: outbox.Config: Pool is required")
	case c.Pool.Config().MaxConns < 2:
		return errors.New("daybook: outbox.Config: Pool has room for one connection only, at least two are needed: one is held while messages are handled (set pool_max_conns)")
	case c.ConsumerGroup == "":
		return errors.New("daybook: outbox.Config: ConsumerGroup is required")
	case len(c.ConsumerGroup) > MaxGroupBytes || !utf8.ValidString(c.ConsumerGroup) || strings.ContainsFunc(c.ConsumerGroup, notInGroup):
		return fmt.Errorf("daybook: outbox.Config: ConsumerGroup %q must be 1 to %d bytes of printable text without /", c.ConsumerGroup, MaxGroupBytes)
	case c.Start.check() != "":
		return fmt.Errorf("daybook: outbox.Config: %s", c.Start.check())
	case c.PageSize < 1 || c.PageSize > MaxPageSize:
		return fmt.Errorf("daybook: outbox.Config: PageSize is %d, must be 1 to %d", c.PageSize, MaxPageSize)
	case c.PollInterval < time.Millisecond:
		return fmt.Errorf("daybook: outbox.Config: PollInterval is %v, must be at least 1ms", c.PollInterval)
	case c.ProbeInterval > 0 && c.ProbeInterval < time.Millisecond:
		return fmt.Errorf("daybook: outbox.Config: ProbeInterval is %v, must be at least 1ms, or negative for none", c.ProbeInterval)
	case c.AckDeadline < 0 || c.ResendInterval < 0 || c.RetryInterval < 0:
		return errors.New("daybook: outbox.Config: AckDeadline, ResendInterval and RetryInterval must not be negative")
	}
	return nil
}

func notInGroup(r rune) bool { return r == '/' || !unicode.IsPrint(r) }

func (c Config) withDefaults() Config {
	c.PollInterval = orDefault(c.PollInterval, DefaultPollInterval)
	c.ProbeInterval = orDefault(c.ProbeInterval, DefaultProbeInterval)
	c.PageSize = orDefault(c.PageSize, DefaultPageSize)
	c.AckDeadline = orDefault(c.AckDeadline, DefaultAckDeadline)
	c.ResendInterval = orDefault(c.ResendInterval, DefaultResendInterval)
	c.RetryInterval = orDefault(c.RetryInterval, DefaultRetryInterval)
	c.Logger = loggerOrNone(c.Logger)
	return c
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

func loggerOrNone(logger *slog.Logger) *slog.Logger {
	if logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return logger
}

// Start is where a consumer group begins that has no cursor yet. The zero Start is the beginning.
type Start struct {
	now      bool
	timed    bool
	instant  time.Time
	position ledger.Position
}

// FromBeginning delivers every event there is.
func FromBeginning() Start { return Start{} }

// FromNow delivers what commits after the group's first Subscribe or SubscribeInitialize has returned. Of what
// commits while that is under way, some may be delivered too.
func FromNow() Start { return Start{now: true} }

// FromAfter delivers the events after a position.
func FromAfter(position ledger.Position) Start { return Start{position: position} }

// FromTime delivers what was decided at or after an instant, by the clock of the server: it begins with the first event
// whose RecordedAt, the ce-time of its message, is not before it. Behind that one there may be a few that were decided
// a little earlier and have committed later. Where nothing was decided since, as with an instant that is yet to come,
// the group begins with whatever commits next. See [ledger.PositionBefore].
func FromTime(instant time.Time) Start { return Start{timed: true, instant: instant} }

// check says what is wrong; "" where nothing is.
func (s Start) check() string {
	switch {
	case s.position < 0:
		return fmt.Sprintf("Start is after position %d, must not be negative", s.position)
	case s.timed && s.instant.IsZero():
		return "Start is from the zero time; use FromBeginning for the beginning"
	}
	return ""
}

// resolve returns the position after which the group begins.
func (s Start) resolve(ctx context.Context, db ledger.Querier) (ledger.Position, error) {
	if !s.now && !s.timed {
		return s.position, nil
	}
	if _, err := ledger.Sequence(ctx, db); err != nil {
		return 0, err
	}
	if s.timed {
		return ledger.PositionBefore(ctx, db, s.instant)
	}
	return ledger.Head(ctx, db)
}
