package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

// park sets an event aside that could not be published. It returns errLeaseLost where another process has the relay.
func (p *page) park(ctx context.Context, c *chain, event ledger.Event, cause error) error {
	var position ledger.Position
	err := p.config.Pool.QueryRow(ctx, parkSQL, p.lease.name, p.lease.holder, p.config.Name,
		int64(event.Position), event.ID, c.attempts, []byte(c.key), reasonOf(cause)).Scan(&position)
	if errors.Is(err, pgx.ErrNoRows) {
		return errLeaseLost
	}
	if err != nil {
		return fmt.Errorf("daybook: park the event at position %d: %w", event.Position, err)
	}
	return nil
}

// parkBehind sets an event aside behind an earlier one of its key. It returns false where none waits any more and this
// one is to be published.
func (p *page) parkBehind(ctx context.Context, c *chain, event ledger.Event) (done bool, err error) {
	var waits bool
	err = p.config.Pool.QueryRow(ctx, parkBehindSQL, p.config.Name, []byte(c.key), int64(event.Position), event.ID).Scan(&waits)
	if err != nil {
		return false, fmt.Errorf("daybook: park the event at position %d: %w", event.Position, err)
	}
	if waits {
		p.telemetry.parked(ctx, event)
		return true, nil
	}
	// Where this is read again after a crash the event itself may have been the one that waited. In a statement of its own:
	// the one before may have waited for the discard, and cannot see it.
	var discarded bool
	err = p.config.Pool.QueryRow(ctx, parkedDiscardedSQL, p.config.Name, int64(event.Position)).Scan(&discarded)
	if err != nil {
		return false, fmt.Errorf("daybook: look whether the event at position %d was discarded: %w", event.Position, err)
	}
	return discarded, nil
}

// Parked is an event that a relay has set aside.
type Parked struct {
	Relay    string          `json:"relay"`
	Position ledger.Position `json:"position"`
	EventID  int64           `json:"event_id"`
	Kind     ledger.Kind     `json:"kind"`
	// JobID is the job that the event is about; zero where there is none.
	JobID uuid.UUID `json:"job_id,omitzero"`
	// Scope, KeyDigest and KeyPreview are those of the event; "" where it has none.
	Scope      string           `json:"scope,omitempty"`
	KeyDigest  ledger.KeyDigest `json:"key_digest,omitempty"`
	KeyPreview string           `json:"key_preview,omitempty"`
	// Reason is why it could not be published, at most 1000 bytes of what the publisher said.
	Reason string `json:"reason"`
	// Attempts is how often it was tried; 0 where it only waits behind an earlier event of its key.
	Attempts int `json:"attempts"`
	// ParkedAt is when, in UTC, by the database's clock; RedrivenAt is when it was published after all, zero while it waits.
	ParkedAt   time.Time `json:"parked_at"`
	RedrivenAt time.Time `json:"redriven_at,omitzero"`
	// DiscardedAt is when it was decided that it is never published, by DiscardActor because of DiscardReason; zero and ""
	// where it was not.
	DiscardedAt   time.Time `json:"discarded_at,omitzero"`
	DiscardActor  string    `json:"discard_actor,omitempty"`
	DiscardReason string    `json:"discard_reason,omitempty"`
}

// Bounds of ParkedFilter.Limit.
const (
	DefaultParkedLimit = 100
	MaxParkedLimit     = 10_000
)

// ParkedFilter says which parked events to list.
type ParkedFilter struct {
	// Relay restricts them to one relay; "" is every one.
	Relay string
	// All lists also those that were discarded, and those that were redriven, for as long as RelayConfig.ParkedRetention
	// keeps these.
	All bool
	// After is where the last page ended: its last event. Only its Relay and Position are looked at; the zero Parked
	// begins with the first.
	After Parked
	// Limit is 1 to 10,000; default 100.
	Limit int
}

// ListParked returns parked events by relay and position. Members of daybook_operator and daybook_relay may call it.
func ListParked(ctx context.Context, db ledger.Querier, filter ParkedFilter) ([]Parked, error) {
	limit := orDefault(filter.Limit, DefaultParkedLimit)
	if limit < 1 || limit > MaxParkedLimit {
		return nil, fmt.Errorf("daybook: list parked events: limit is %d, must be 1 to %d", limit, MaxParkedLimit)
	}
	var relay *string
	if filter.Relay != "" {
		relay = &filter.Relay
	}
	rows, err := db.Query(ctx, parkedListSQL, filter.After.Relay, int64(filter.After.Position), relay, limit, filter.All)
	if err != nil {
		return nil, fmt.Errorf("daybook: list parked events: %w", err)
	}
	parked, err := pgx.CollectRows(rows, scanParked)
	if err != nil {
		return nil, fmt.Errorf("daybook: list parked events: %w", err)
	}
	return parked, nil
}

func scanParked(row pgx.CollectableRow) (Parked, error) {
	var (
		p                      Parked
		jobID                  *uuid.UUID
		scope, digest, preview *string
		actor, reason          *string
		redrivenAt             *time.Time
		discardedAt            *time.Time
	)
	err := row.Scan(&p.Relay, &p.Position, &p.EventID, &p.Kind, &jobID, &scope, &digest, &preview, &p.Reason,
		&p.Attempts, &p.ParkedAt, &redrivenAt, &discardedAt, &actor, &reason)
	if jobID != nil {
		p.JobID = *jobID
	}
	if redrivenAt != nil {
		p.RedrivenAt = redrivenAt.UTC()
	}
	if discardedAt != nil {
		p.DiscardedAt = discardedAt.UTC()
	}
	for text, value := range map[*string]*string{
		&p.Scope: scope, &p.KeyPreview: preview, (*string)(&p.KeyDigest): digest,
		&p.DiscardActor: actor, &p.DiscardReason: reason,
	} {
		if value != nil {
			*text = *value
		}
	}
	p.ParkedAt = p.ParkedAt.UTC()
	return p, err
}
