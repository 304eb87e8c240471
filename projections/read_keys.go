package projections

import (
	"context"
	_ "embed" // the statements
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

var (
	//go:embed sql/keys_by_digest.sql
	keysByDigestSQL string
	//go:embed sql/keys_by_scope.sql
	keysByScopeSQL string
	//go:embed sql/keys_newest.sql
	keysNewestSQL string
)

// KeyView is what became of one key.
type KeyView struct {
	KeyDigest  ledger.KeyDigest `json:"key_digest"`
	KeyPreview string           `json:"key_preview"`
	Scope      string           `json:"scope"`
	// JobID is the job that the key stands for, or stood for last.
	JobID uuid.UUID `json:"job_id"`
	// Mode is that of the last binding: idempotency, debounce or throttle.
	Mode string `json:"mode"`
	// Accepted, Replaced, NonReplaceable and Conflicts are how often PostgreSQL decided so; replays leave no event.
	Accepted       int64 `json:"accepted"`
	Replaced       int64 `json:"replaced"`
	NonReplaceable int64 `json:"non_replaceable"`
	Conflicts      int64 `json:"conflicts"`
	// LastOutcome is the last decision: accepted, replaced, non_replaceable or conflict_rejected.
	LastOutcome string `json:"last_outcome"`
	// FirstDecisionAt and LastDecisionAt are when the first and the last decision were made, in UTC.
	FirstDecisionAt time.Time `json:"first_decision_at"`
	LastDecisionAt  time.Time `json:"last_decision_at"`
	// ExpiresAt is when the last binding ends, in UTC. Once that is past, the key is free, whatever EndedAs says.
	ExpiresAt time.Time `json:"expires_at"`
	// EndedAs is expired or released, where the end of the last binding has been recorded, and "" where it has not;
	// EndedAt is when, in UTC, and nil where it has not.
	EndedAs string     `json:"ended_as,omitempty"`
	EndedAt *time.Time `json:"ended_at,omitempty"`
	// FirstPosition and LastPosition are those of the first and the last event of the key.
	FirstPosition ledger.Position `json:"first_position"`
	LastPosition  ledger.Position `json:"last_position"`
}

// KeyFilter narrows [Keys]. The zero value is the newest [DefaultLimit] keys.
type KeyFilter struct {
	// KeyDigest is the beginning of a key digest: 1 to 12 lower-case hex digits. "" is any.
	KeyDigest string
	// Scope; "" is any.
	Scope string
	// Before leaves out keys whose first event is not before this position; 0 leaves out none. To read on, newest
	// first, pass the FirstPosition of the last row.
	Before ledger.Position
	// Limit is the most rows: 1 to [MaxLimit], default [DefaultLimit].
	Limit int
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{1,12}$`)

func checkDigest(digest string) error {
	if digest != "" && !digestForm.MatchString(digest) {
		return fmt.Errorf("key digest %q is not 1 to 12 lower-case hex digits", digest)
	}
	return nil
}

// Keys returns rows of view_key: by digest where the filter has one, otherwise the newest keys first, by their first
// event. They are as fresh as the projection. Members of daybook_operator may call it.
func Keys(ctx context.Context, db ledger.Querier, filter KeyFilter) ([]KeyView, error) {
	fail := func(err error) ([]KeyView, error) { return nil, fmt.Errorf("daybook: read keys: %w", err) }
	limit, err := limitOf(filter.Limit)
	if err != nil {
		return fail(err)
	}
	if err := checkDigest(filter.KeyDigest); err != nil {
		return fail(err)
	}
	before := int64(filter.Before)
	if before <= 0 {
		before = math.MaxInt64
	}
	var rows pgx.Rows
	switch {
	case filter.KeyDigest != "":
		rows, err = db.Query(ctx, keysByDigestSQL, filter.KeyDigest, text(filter.Scope), before, limit)
	case filter.Scope != "":
		rows, err = db.Query(ctx, keysByScopeSQL, filter.Scope, before, limit)
	default:
		rows, err = db.Query(ctx, keysNewestSQL, before, limit)
	}
	if err != nil {
		return fail(err)
	}
	keys, err := pgx.CollectRows(rows, scanKey)
	if err != nil {
		return fail(err)
	}
	return keys, nil
}

func scanKey(row pgx.CollectableRow) (KeyView, error) {
	var (
		k                           KeyView
		jobID                       *uuid.UUID
		mode, outcome, endedAs      *string
		first, last, expires, ended *time.Time
	)
	err := row.Scan(&k.KeyDigest, &k.KeyPreview, &k.Scope, &jobID, &mode, &k.Accepted, &k.Replaced, &k.NonReplaceable,
		&k.Conflicts, &outcome, &first, &last, &expires, &endedAs, &ended, &k.FirstPosition, &k.LastPosition)
	if err != nil {
		return k, err
	}
	k.JobID, k.Mode, k.LastOutcome, k.EndedAs = deref(jobID), deref(mode), deref(outcome), deref(endedAs)
	k.FirstDecisionAt, k.LastDecisionAt, k.ExpiresAt = deref(first).UTC(), deref(last).UTC(), deref(expires).UTC()
	if ended != nil {
		utc := ended.UTC()
		k.EndedAt = &utc
	}
	return k, nil
}

// deref returns what a pointer points to, or the zero value.
func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
