package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
)

// Errors of a redrive and a discard.
var (
	// ErrRedriving: another redrive of the same relay is under way.
	ErrRedriving = errors.New("daybook: another redrive of this relay is under way; wait for it to end")
	// ErrNotParked: no event waits at that position.
	ErrNotParked = errors.New("daybook: no event of this relay is parked at that position")
)

// RedriveConfig says which parked events to publish, and where. Pool, Relay and Publisher are required; the zero value
// of every other field is its documented default.
type RedriveConfig struct {
	// Pool is where they are parked. Its user needs the rights of the role daybook_relay.
	Pool *pgxpool.Pool
	// Relay is the name of the relay that has parked them. It may be running or not.
	Relay string
	// Publisher, Topic, Format and Poison are as in [RelayConfig]; Topic and Format should be what the relay has.
	Publisher message.Publisher
	Topic     func(event ledger.Event) string
	Format    Format
	Poison    func(err error) bool
	// Position restricts the redrive to the key of the event that is parked there, all of whose events are published,
	// earlier and later ones; 0 is every key.
	Position ledger.Position
	// Lease is how long after a redrive was killed another one can begin. At least 30 ms; default 30 s.
	Lease time.Duration
	// Logger gets what still cannot be published at Warn. Default: none.
	Logger *slog.Logger
}

func (c RedriveConfig) withDefaults() RedriveConfig {
	if c.Topic == nil {
		c.Topic = topicOf
	}
	if c.Poison == nil {
		c.Poison = notTheConnection
	}
	c.Format = orDefault(c.Format, FormatBinary)
	c.Lease = orDefault(c.Lease, DefaultLease)
	c.Logger = loggerOrNone(c.Logger)
	return c
}

func (c RedriveConfig) validate() error {
	switch {
	case c.Pool == nil:
		return errors.New("daybook: outbox.RedriveConfig: Pool is required")
	case c.Publisher == nil:
		return errors.New("daybook: outbox.RedriveConfig: Publisher is required")
	case c.Position < 0:
		return fmt.Errorf("daybook: outbox.RedriveConfig: Position is %d, must not be negative", c.Position)
	case c.Lease < 30*time.Millisecond:
		return fmt.Errorf("daybook: outbox.RedriveConfig: Lease is %v, must be at least 30ms", c.Lease)
	}
	if err := checkRelayName(c.Relay); err != nil {
		return fmt.Errorf("daybook: outbox.RedriveConfig: %w", err)
	}
	return c.Format.check("outbox.RedriveConfig")
}

// Redriven is what a redrive did.
type Redriven struct {
	// Published is how many events were published; they wait no longer.
	Published int `json:"published"`
	// Failed are the positions of those that still could not be. What lies behind each, of the same key, waits on.
	Failed []ledger.Position `json:"failed"`
}

// Redrive publishes parked events, key by key, those of a key in the order of their positions, and lets each go that was
// published; when no event of a key waits any more, the relay publishes what comes of it. Where an event is refused once
// more, that key stays parked, with the new reason, and the others go on. After an interruption the next redrive may
// publish one event twice.
//
// It never moves the relay's cursor, and the relay may run meanwhile: an event that the relay parks behind others of
// its key is either published by this redrive, or was read when nothing was left to wait behind.
//
// It returns [ErrRedriving] or [ErrNotParked] having done nothing, and with any other error what was done before it: a
// broker that cannot be reached ends the redrive, and so does ctx.
func Redrive(ctx context.Context, config RedriveConfig) (Redriven, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return Redriven{}, err
	}
	l := &lease{
		pool: config.Pool, name: "redrive:" + config.Relay, holder: uuid.New(), length: config.Lease, logger: config.Logger,
	}
	began := time.Now()
	taken, err := l.take(ctx)
	if err != nil {
		return Redriven{}, err
	}
	if !taken {
		return Redriven{}, ErrRedriving
	}
	held, release := l.keep(ctx, began)
	defer release()
	r := redrive{config: config, failed: [][]byte{}, sender: sender{
		publisher: config.Publisher, topic: config.Topic, format: config.Format, poison: config.Poison,
	}}
	err = r.run(held)
	if errors.Is(err, ErrNotParked) {
		return Redriven{}, err
	}
	if err != nil {
		return r.result, fmt.Errorf("daybook: redrive, %d published so far: %w", r.result.Published, err)
	}
	return r.result, nil
}

type redrive struct {
	config RedriveConfig
	sender sender
	source Source
	failed [][]byte // keys whose events wait on
	result Redriven
}

func (r *redrive) run(ctx context.Context) error {
	var err error
	if r.source, err = ReadSource(ctx, r.config.Pool); err != nil {
		return err
	}
	if r.config.Position > 0 {
		var key []byte
		err := r.config.Pool.QueryRow(ctx, parkedKeySQL, r.config.Relay, int64(r.config.Position)).Scan(&key)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotParked
		}
		if err != nil {
			return err
		}
		return r.key(ctx, key)
	}
	for {
		var key []byte
		err := r.config.Pool.QueryRow(ctx, parkedFirstSQL, r.config.Relay, r.failed).Scan(&key)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.key(ctx, key); err != nil {
			return err
		}
	}
}

// key publishes the events of a key until none waits or one fails. Key by key, and not all in the order of positions:
// of one key the relay parks in that order, but of a page it may park a later position of another key first.
func (r *redrive) key(ctx context.Context, key []byte) error {
	for after := ledger.Position(0); ; {
		rows, err := r.config.Pool.Query(ctx, parkedNextSQL, r.config.Relay, key, int64(after))
		if err != nil {
			return err
		}
		positions, err := pgx.CollectRows(rows, pgx.RowTo[ledger.Position])
		if err != nil {
			return err
		}
		if len(positions) == 0 {
			return nil
		}
		for _, after = range positions {
			published, err := r.publish(ctx, after)
			if err != nil {
				return err
			}
			if !published {
				r.failed = append(r.failed, key)
				return nil
			}
		}
	}
}

// publish publishes one parked event. Where it is refused again that is no error of the redrive.
func (r *redrive) publish(ctx context.Context, position ledger.Position) (bool, error) {
	events, _, err := ledger.Read(ctx, r.config.Pool, position-1, 1)
	if err != nil {
		return false, err
	}
	if len(events) != 1 {
		return false, fmt.Errorf("position %d is parked and not in the ledger; run daybook verify", position)
	}
	refused := r.sender.publish(ctx, events[0], r.source)
	if refused == nil {
		// Each by itself and in order: as long as a later one waits, so does what the relay reads of this key.
		if _, err := r.config.Pool.Exec(ctx, parkedRedrivenSQL, r.config.Relay, int64(position)); err != nil {
			return false, err
		}
		r.result.Published++
		return true, nil
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if fault, _ := r.sender.eventsFault(refused); !fault {
		return false, refused
	}
	r.result.Failed = append(r.result.Failed, position)
	r.config.Logger.Warn("daybook: a parked event could not be published", slog.String("relay", r.config.Relay),
		slog.Int64("position", int64(position)), slog.Any("error", refused))
	_, err = r.config.Pool.Exec(ctx, parkedFailedSQL, r.config.Relay, int64(position), reasonOf(refused))
	return false, err
}
