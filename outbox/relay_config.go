package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/daybook-go/daybook/ledger"
)

// Defaults of a [RelayConfig].
const (
	DefaultRelayPageSize = 1000
	DefaultLanes         = 32
	DefaultMaxAttempts   = 5
	DefaultParkLimit     = 100
	DefaultMaxBackOff    = 10 * time.Second
	DefaultLease         = 30 * time.Second
	DefaultCloseGrace    = 5 * time.Second
	// DefaultParkedRetention is 30 days.
	DefaultParkedRetention = 30 * 24 * time.Hour
)

// MaxParkedRetention bounds RelayConfig.ParkedRetention.
const MaxParkedRetention = 3650 * 24 * time.Hour

// MaxLanes bounds RelayConfig.Lanes.
const MaxLanes = 1024

// relayCursorPrefix begins the name of a relay's cursor.
const relayCursorPrefix = "relay:"

// RelayCursorName returns the name of the cursor of the relay of that name.
func RelayCursorName(relay string) string { return relayCursorPrefix + relay }

// RelayConfig is what a Relay is made of. Pool, Name and Publisher are required; the zero value of every other field
// is its documented default.
type RelayConfig struct {
	// Pool is where events are read and the cursor is kept. Its user needs the rights of the role daybook_relay. No
	// connection is held while messages are published: any size of pool will do. One more connection, outside the pool,
	// listens; see PollOnly.
	Pool *pgxpool.Pool
	// Name names the relay: its cursor, its lease and what it has parked. Of several relays with one name, in one process
	// or many, one works at a time and the others stand by. 1–200 bytes, printable, without "/".
	Name string
	// Publisher gets the messages, up to Lanes at once, so it must be safe for concurrent use. A message counts as
	// published when Publish returns nil: it must not return before the broker has acknowledged. The Relay never closes
	// it; close it after Run has returned.
	Publisher message.Publisher
	// Topic returns the topic of an event. Default: [Topic] of its kind, such as "daybook.events.enqueue.accepted".
	Topic func(event ledger.Event) string
	// Kinds are the kinds of events to relay; default: all.
	Kinds []ledger.Kind
	// Start is where a relay begins that has no cursor yet. Default: the beginning.
	Start Start
	// Format is how a message carries an event. Default: FormatBinary.
	Format Format
	// PageSize is how many events are read at once, and may come again after a crash, at most: 1 to 10,000; default 1000.
	PageSize int
	// Lanes is how many messages are published at the same time, at most: 1 to 1024; default 32. Two events of one key,
	// or without a key of one job, are never under way together: the later one waits until the earlier one is acknowledged.
	Lanes int
	// MaxAttempts is how often an event is tried that the broker refuses, before it is parked: at least 1; default 5.
	MaxAttempts int
	// ParkLimit is how many events may be parked in a row, with none published between them; default 100. Beyond that the
	// fault is taken for the broker's: nothing more is parked, and the Relay tries on until one is published.
	ParkLimit int
	// ParkedRetention is how long the record of an event is kept that was parked and then redriven: at most 3,650 days,
	// truncated to milliseconds; default 30 days; a negative one removes it at once. The working relay removes those of its own
	// name when it begins and every minute, in transactions of 500 rows that pass over whatever somebody holds. Those of a relay
	// that never runs any more stay. The record of a discarded event is kept for good.
	ParkedRetention time.Duration
	// Poison says whether an error of Publisher is the event's own, such as a message that is too large. Any other is the
	// broker's or the connection's: then the Relay tries again, for as long as it takes, and parks nothing. It is not
	// asked about a cancelled context, which is never the event's fault. Default: every error that does not look like a
	// connection's: deadlines, timeouts, whatever package net returns, and an unexpected end of a stream.
	Poison func(err error) bool
	// MaxBackOff is the longest pause between two attempts to publish; pauses begin with 100 ms, or with MaxBackOff where
	// that is shorter, and double. Default 10 s.
	MaxBackOff time.Duration
	// PollInterval is the longest time between two looks for events; see Config.PollInterval. At least 1 ms; default 100 ms.
	PollInterval time.Duration
	// ProbeInterval is how often it asks whether event ids were drawn; see Config.ProbeInterval. Negative is never;
	// otherwise at least 1 ms; default 4 ms.
	ProbeInterval time.Duration
	// RetryInterval is the pause after an error of the database that may pass. Default 1 s.
	RetryInterval time.Duration
	// Lease is how long a relay of this name stands by after the working one was last heard of. That one says so every
	// third of it, and releases the relay when it ends. At least 30 ms; default 30 s.
	Lease time.Duration
	// CloseGrace is how long Run waits, once its context has ended or its lease is lost, for messages that are being
	// published. Default 5 s.
	CloseGrace time.Duration
	// PollOnly makes the Relay do without LISTEN; see Config.PollOnly.
	PollOnly bool
	// Logger gets what is parked and what is retried at Warn. Default: none.
	Logger *slog.Logger
	// MeterProvider; default: OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
}

// Validate returns what is wrong with the configuration; nil where nothing is. [NewRelay] calls it.
func (c RelayConfig) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Pool == nil:
		return errors.New("daybook: outbox.RelayConfig: Pool is required")
	case c.Publisher == nil:
		return errors.New("daybook: outbox.RelayConfig: Publisher is required")
	case c.Start.check() != "":
		return fmt.Errorf("daybook: outbox.RelayConfig: %s", c.Start.check())
	case c.PageSize < 1 || c.PageSize > MaxPageSize:
		return fmt.Errorf("daybook: outbox.RelayConfig: PageSize is %d, must be 1 to %d", c.PageSize, MaxPageSize)
	case c.Lanes < 1 || c.Lanes > MaxLanes:
		return fmt.Errorf("daybook: outbox.RelayConfig: Lanes is %d, must be 1 to %d", c.Lanes, MaxLanes)
	case c.MaxAttempts < 1 || c.ParkLimit < 1:
		return errors.New("daybook: outbox.RelayConfig: MaxAttempts and ParkLimit must be at least 1")
	case c.PollInterval < time.Millisecond:
		return fmt.Errorf("daybook: outbox.RelayConfig: PollInterval is %v, must be at least 1ms", c.PollInterval)
	case c.ProbeInterval > 0 && c.ProbeInterval < time.Millisecond:
		return fmt.Errorf("daybook: outbox.RelayConfig: ProbeInterval is %v, must be at least 1ms, or negative for none", c.ProbeInterval)
	case c.Lease < 30*time.Millisecond:
		return fmt.Errorf("daybook: outbox.RelayConfig: Lease is %v, must be at least 30ms", c.Lease)
	case c.ParkedRetention > MaxParkedRetention:
		return fmt.Errorf("daybook: outbox.RelayConfig: ParkedRetention is %v, must be at most 3650 days", c.ParkedRetention)
	case c.MaxBackOff < 0 || c.RetryInterval < 0 || c.CloseGrace < 0:
		return errors.New("daybook: outbox.RelayConfig: MaxBackOff, RetryInterval and CloseGrace must not be negative")
	}
	if err := checkRelayName(c.Name); err != nil {
		return fmt.Errorf("daybook: outbox.RelayConfig: %w", err)
	}
	known := kinds()
	for _, kind := range c.Kinds {
		if !slices.Contains(known, kind) {
			return fmt.Errorf("daybook: outbox.RelayConfig: there is no kind %q; use one of ledger's kinds", kind)
		}
	}
	return c.Format.check("outbox.RelayConfig")
}

func checkRelayName(name string) error {
	if name == "" {
		return errors.New("the relay's name is required")
	}
	if len(name) > MaxGroupBytes || !utf8.ValidString(name) || strings.ContainsFunc(name, notInGroup) {
		return fmt.Errorf("the relay's name %q must be 1 to %d bytes of printable text without /", name, MaxGroupBytes)
	}
	return nil
}

func (f Format) check(config string) error {
	if f != FormatBinary && f != FormatStructured {
		return fmt.Errorf("daybook: %s: Format is %q, must be %q or %q", config, f, FormatBinary, FormatStructured)
	}
	return nil
}

func (c RelayConfig) withDefaults() RelayConfig {
	if c.Topic == nil {
		c.Topic = topicOf
	}
	c.Kinds = slices.Clone(c.Kinds)
	c.Format = orDefault(c.Format, FormatBinary)
	c.PageSize = orDefault(c.PageSize, DefaultRelayPageSize)
	c.Lanes = orDefault(c.Lanes, DefaultLanes)
	c.MaxAttempts = orDefault(c.MaxAttempts, DefaultMaxAttempts)
	c.ParkLimit = orDefault(c.ParkLimit, DefaultParkLimit)
	c.ParkedRetention = orDefault(c.ParkedRetention, DefaultParkedRetention)
	if c.Poison == nil {
		c.Poison = notTheConnection
	}
	c.MaxBackOff = orDefault(c.MaxBackOff, DefaultMaxBackOff)
	c.PollInterval = orDefault(c.PollInterval, DefaultPollInterval)
	c.ProbeInterval = orDefault(c.ProbeInterval, DefaultProbeInterval)
	c.RetryInterval = orDefault(c.RetryInterval, DefaultRetryInterval)
	c.Lease = orDefault(c.Lease, DefaultLease)
	c.CloseGrace = orDefault(c.CloseGrace, DefaultCloseGrace)
	c.Logger = loggerOrNone(c.Logger)
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	return c
}

// topicOf is the default of RelayConfig.Topic.
func topicOf(event ledger.Event) string { return Topic(event.Kind) }
