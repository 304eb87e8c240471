package cli

import (
	"context"
	_ "embed" // the statement
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/events.sql
var eventsSQL string

// event is an event as operators see it: from daybook.feed, with the digest of the key and not its hash.
type event struct {
	Position    ledger.Position  `json:"position"`
	EventID     int64            `json:"event_id"`
	Kind        ledger.Kind      `json:"kind"`
	JobID       *uuid.UUID       `json:"job_id,omitempty"`
	Scope       string           `json:"scope,omitempty"`
	KeyDigest   ledger.KeyDigest `json:"key_digest,omitempty"`
	KeyPreview  string           `json:"key_preview,omitempty"`
	RecordedAt  time.Time        `json:"recorded_at"`
	SequencedAt time.Time        `json:"sequenced_at"`
	Body        json.RawMessage  `json:"body"`

	wanted bool
}

func scanEvent(row pgx.CollectableRow) (event, error) {
	var e event
	var scope, digest, preview *string
	var body string
	err := row.Scan(&e.Position, &e.EventID, &e.wanted, &e.Kind, &e.JobID, &scope, &digest, &preview, &body, &e.RecordedAt, &e.SequencedAt)
	if digest != nil {
		e.Scope, e.KeyDigest, e.KeyPreview = *scope, ledger.KeyDigest(*digest), *preview
	}
	e.Body = json.RawMessage(body)
	e.RecordedAt, e.SequencedAt = e.RecordedAt.UTC(), e.SequencedAt.UTC()
	return e, err
}

// feedPage is how many positions are read at once.
const feedPage = 1000

// readFeed calls yield with the events beyond a position, in their order, up to the head, and returns the position to
// read on from. Yield ends it by returning false.
func readFeed(ctx context.Context, db ledger.Querier, after ledger.Position, kinds []string, yield func(event) (bool, error)) (ledger.Position, error) {
	if len(kinds) == 0 {
		kinds = nil
	}
	for {
		rows, err := db.Query(ctx, eventsSQL, int64(after), feedPage, kinds)
		if err != nil {
			return after, fmt.Errorf("read events: %w", err)
		}
		events, err := pgx.CollectRows(rows, scanEvent)
		if err != nil {
			return after, fmt.Errorf("read events: %w", err)
		}
		for _, e := range events {
			after = e.Position
			if !e.wanted {
				continue
			}
			if more, err := yield(e); err != nil || !more {
				return after, err
			}
		}
		if len(events) < feedPage {
			return after, nil
		}
	}
}

// sequence gives positions to what has committed. Operators may not; they see what others have sequenced.
func sequence(ctx context.Context, db ledger.Querier) error {
	_, err := ledger.Sequence(ctx, db)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "42501" {
		return nil
	}
	return err
}

// gist is what a line says of an event's body.
func (e event) gist() string {
	var body struct {
		Type   string   `json:"type"`
		Queue  string   `json:"queue"`
		Fields []string `json:"fields"`
		Reason string   `json:"reason"`
	}
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return "a body that cannot be read"
	}
	var parts []string
	if body.Type != "" {
		parts = append(parts, "type "+body.Type)
	}
	if body.Queue != "" {
		parts = append(parts, "queue "+body.Queue)
	}
	if len(body.Fields) > 0 {
		parts = append(parts, "different "+strings.Join(body.Fields, ", "))
	}
	if body.Reason != "" {
		parts = append(parts, "reason "+body.Reason)
	}
	return strings.Join(parts, "; ")
}

func (e event) job() string {
	if e.JobID == nil {
		return show.Nothing
	}
	return e.JobID.String()
}

// showKey shows digest and preview together.
func showKey(digest ledger.KeyDigest, preview string) string {
	if digest == "" {
		return show.Nothing
	}
	return strings.TrimSpace(string(digest) + " " + show.Clean(preview))
}
