package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

// ErrRedriven says that the event was parked and has been published since.
var ErrRedriven = errors.New("daybook: the event at that position was redriven already")

// DiscardConflictError says that an event was discarded before, by another actor or for another reason. What was recorded
// then stays.
type DiscardConflictError struct {
	Relay    string
	Position ledger.Position
	// Fields are those that differ: "actor", "reason", in this order.
	Fields []string
}

// Error names the fields.
func (e *DiscardConflictError) Error() string {
	return fmt.Sprintf("daybook: discard: the event at position %d of relay %s was discarded before with another %s",
		e.Position, e.Relay, strings.Join(e.Fields, " and "))
}

// Beginner begins a transaction: a *pgxpool.Pool, a *pgx.Conn or, with a savepoint, a pgx.Tx.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// DiscardOptions is a decision that a parked event shall never be published. Every field is required.
type DiscardOptions struct {
	// Relay is the name of the relay that has parked it. It may be running or not.
	Relay string
	// Position is where the event is in the ledger.
	Position ledger.Position
	// Actor is who decides, 1–200 bytes; Reason is why, 1–1000 bytes. Both are kept with the event and shown.
	Actor, Reason string
}

// Discarded is what a discard did.
type Discarded struct {
	Relay    string          `json:"relay"`
	Position ledger.Position `json:"position"`
	// DiscardedAt is when it was first decided, in UTC, by daybook.clock().
	DiscardedAt time.Time `json:"discarded_at"`
	// Repeated says that it was discarded before, by the same actor and for the same reason: nothing was changed.
	Repeated bool `json:"repeated"`
	// Waiting is how many events of the same key still wait, and First the position of the first of them, 0 where none does.
	Waiting int             `json:"waiting"`
	First   ledger.Position `json:"first,omitzero"`
}

// discardLease bounds what never happens: the lease is taken and released in one transaction.
const discardLease = 30 * time.Second

// Discard decides that a parked event is never published, and keeps for good who decided, why and when. The later events
// of its key wait behind it no longer: the next [Redrive] publishes them, in order, beginning at Discarded.First, and when
// none waits the relay publishes what comes of the key. An event that only waits behind another one can be discarded as
// well.
//
// It never moves the relay's cursor, and the relay may run meanwhile; one that reads the event again after a crash or after
// its cursor was set back passes over it. The event stays in the ledger: only this relay does not publish it.
//
// The same actor and reason again change nothing and return what was recorded; others are a [*DiscardConflictError]. It
// returns [ErrNotParked] where no event of the relay is parked at that position, [ErrRedriven] where it was published
// since, and [ErrRedriving] while a redrive of the relay is under way, or until the lease of one that was killed has run
// out. With any error nothing is changed. It is one transaction of its own; in the caller's it is a savepoint, and that
// transaction stays usable after these errors and keeps redrives of this relay waiting until it ends.
//
// Members of daybook_relay may call it, as they may [Redrive].
func Discard(ctx context.Context, db Beginner, options DiscardOptions) (Discarded, error) {
	if err := options.Validate(); err != nil {
		return Discarded{}, err
	}
	var done Discarded
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var err error
		done, err = options.discard(ctx, tx)
		return err
	})
	var conflict *DiscardConflictError
	switch {
	case err == nil:
		return done, nil
	case errors.Is(err, errRepeated):
		return done, nil
	case errors.Is(err, ErrNotParked), errors.Is(err, ErrRedriven), errors.Is(err, ErrRedriving), errors.As(err, &conflict):
		return Discarded{}, err
	}
	return Discarded{}, fmt.Errorf("daybook: discard the event at position %d: %w", options.Position, err)
}

// errRepeated ends the transaction of a repeated discard, so that it writes nothing at all.
var errRepeated = errors.New("discarded before")

// Validate returns what is missing or out of bounds; nil where nothing is. [Discard] calls it before it does anything.
func (o DiscardOptions) Validate() error {
	if err := checkRelayName(o.Relay); err != nil {
		return fmt.Errorf("daybook: outbox.DiscardOptions: %w", err)
	}
	if o.Position < 1 {
		return fmt.Errorf("daybook: outbox.DiscardOptions: Position is %d, must be at least 1", o.Position)
	}
	for _, text := range []struct {
		name, value string
		most        int
	}{{"Actor", o.Actor, 200}, {"Reason", o.Reason, 1000}} {
		if text.value == "" || len(text.value) > text.most || !utf8.ValidString(text.value) || strings.Contains(text.value, "\x00") {
			return fmt.Errorf("daybook: outbox.DiscardOptions: %s must be 1 to %d bytes of valid UTF-8 without NUL", text.name, text.most)
		}
	}
	return nil
}

func (o DiscardOptions) discard(ctx context.Context, tx pgx.Tx) (Discarded, error) {
	// A look before the lease: what is decided already needs none.
	done, waits, err := o.look(ctx, tx)
	if err != nil || !waits {
		return done, err
	}
	// A redrive that has just published the event must not find it discarded, nor one that begins now find it waiting.
	name, holder := "redrive:"+o.Relay, uuid.New()
	err = tx.QueryRow(ctx, leaseTakeSQL, name, holder, discardLease.Milliseconds()).Scan(new(string))
	if errors.Is(err, pgx.ErrNoRows) {
		return Discarded{}, ErrRedriving
	}
	if err != nil {
		return Discarded{}, err
	}
	err = tx.QueryRow(ctx, parkedDiscardSQL, o.Relay, int64(o.Position), o.Actor, o.Reason).Scan(&done.DiscardedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		// Somebody was faster, and has committed by now.
		if done, waits, err = o.look(ctx, tx); err == nil && waits {
			err = errors.New("it changes all the time; try again")
		}
		return done, err
	}
	if err != nil {
		return Discarded{}, err
	}
	done.DiscardedAt = done.DiscardedAt.UTC()
	if err := o.behind(ctx, tx, &done); err != nil {
		return Discarded{}, err
	}
	_, err = tx.Exec(ctx, leaseReleaseSQL, name, holder)
	return done, err
}

// look returns whether the event waits; where it does not, the error says what became of it.
func (o DiscardOptions) look(ctx context.Context, tx pgx.Tx) (done Discarded, waits bool, err error) {
	done = Discarded{Relay: o.Relay, Position: o.Position}
	var (
		redriven      bool
		at            *time.Time
		actor, reason *string
	)
	err = tx.QueryRow(ctx, parkedStateSQL, o.Relay, int64(o.Position)).Scan(&redriven, &at, &actor, &reason)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return done, false, ErrNotParked
	case err != nil:
		return done, false, err
	case redriven:
		return done, false, ErrRedriven
	case at == nil:
		return done, true, nil
	}
	var fields []string
	if *actor != o.Actor {
		fields = append(fields, "actor")
	}
	if *reason != o.Reason {
		fields = append(fields, "reason")
	}
	if fields != nil {
		return done, false, &DiscardConflictError{Relay: o.Relay, Position: o.Position, Fields: fields}
	}
	done.DiscardedAt, done.Repeated = at.UTC(), true
	if err := o.behind(ctx, tx, &done); err != nil {
		return done, false, err
	}
	return done, false, errRepeated
}

func (o DiscardOptions) behind(ctx context.Context, tx pgx.Tx, done *Discarded) error {
	return tx.QueryRow(ctx, parkedBehindSQL, o.Relay, int64(o.Position)).Scan(&done.First, &done.Waiting)
}
