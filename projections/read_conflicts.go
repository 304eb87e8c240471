package projections

import (
	"context"
	_ "embed" // the statements
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

var (
	//go:embed sql/conflicts_oldest.sql
	conflictsOldestSQL string
	//go:embed sql/conflicts_newest.sql
	conflictsNewestSQL string
	//go:embed sql/conflicts_oldest_of_scope.sql
	conflictsOldestOfScopeSQL string
	//go:embed sql/conflicts_newest_of_scope.sql
	conflictsNewestOfScopeSQL string
	//go:embed sql/conflicts_of_keys.sql
	conflictsOfKeysSQL string
)

// Conflict is one recorded rejection of a key that was used again for different work. The same request rejected again
// leaves no second one.
type Conflict struct {
	Position ledger.Position `json:"position"`
	// RejectedAt is when, by the ledger's clock, in UTC.
	RejectedAt time.Time        `json:"rejected_at"`
	Scope      string           `json:"scope"`
	KeyDigest  ledger.KeyDigest `json:"key_digest"`
	KeyPreview string           `json:"key_preview"`
	// ExistingJobID, ExistingMode, BoundAt and ExpiresAt are those of the binding that owns the key.
	ExistingJobID uuid.UUID  `json:"existing_job_id"`
	ExistingMode  string     `json:"existing_mode"`
	BoundAt       *time.Time `json:"bound_at"`
	ExpiresAt     *time.Time `json:"expires_at"`
	// Queue, Type and Mode are those of the rejected request.
	Queue string `json:"queue"`
	Type  string `json:"type"`
	Mode  string `json:"mode"`
	// Fields are the names of the fields that differ, sorted; values are kept nowhere.
	Fields []string `json:"fields"`
	// RequestDigest and ExistingRequestDigest are those of both requests, in hex.
	RequestDigest         string `json:"request_digest"`
	ExistingRequestDigest string `json:"existing_request_digest"`
}

// ConflictFilter narrows [Conflicts]. The zero value is the first [DefaultLimit] conflicts of the ledger.
type ConflictFilter struct {
	// After leaves out conflicts up to this position, Before those from this position on; 0 leaves out none. To read
	// on, pass the Position of the last row: as After, or as Before where the newest come first.
	After, Before ledger.Position
	// Scope; "" is any.
	Scope string
	// KeyDigest is the beginning of a key digest: 1 to 12 lower-case hex digits. "" is any.
	KeyDigest string
	// Newest returns the newest first.
	Newest bool
	// Limit is the most rows: 1 to [MaxLimit], default [DefaultLimit].
	Limit int
}

// Conflicts returns rows of view_conflict in the order of their positions, or the newest first. They are as fresh as
// the projection. Members of daybook_operator may call it.
func Conflicts(ctx context.Context, db ledger.Querier, filter ConflictFilter) ([]Conflict, error) {
	fail := func(err error) ([]Conflict, error) { return nil, fmt.Errorf("daybook: read conflicts: %w", err) }
	limit, err := limitOf(filter.Limit)
	if err != nil {
		return fail(err)
	}
	if err := checkDigest(filter.KeyDigest); err != nil {
		return fail(err)
	}
	after, before := int64(filter.After), int64(filter.Before)
	if before <= 0 {
		before = math.MaxInt64
	}
	// A statement for each way, so that each has its index whatever the planner knows about the values.
	var rows pgx.Rows
	switch {
	case filter.KeyDigest != "":
		rows, err = db.Query(ctx, conflictsOfKeysSQL, after, before, limit, filter.KeyDigest, text(filter.Scope), filter.Newest)
	case filter.Scope != "" && filter.Newest:
		rows, err = db.Query(ctx, conflictsNewestOfScopeSQL, after, before, limit, filter.Scope)
	case filter.Scope != "":
		rows, err = db.Query(ctx, conflictsOldestOfScopeSQL, after, before, limit, filter.Scope)
	case filter.Newest:
		rows, err = db.Query(ctx, conflictsNewestSQL, after, before, limit)
	default:
		rows, err = db.Query(ctx, conflictsOldestSQL, after, before, limit)
	}
	if err != nil {
		return fail(err)
	}
	conflicts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Conflict, error) {
		c, err := pgx.RowToStructByPos[Conflict](row)
		c.RejectedAt = c.RejectedAt.UTC()
		for _, at := range []*time.Time{c.BoundAt, c.ExpiresAt} {
			if at != nil {
				*at = at.UTC()
			}
		}
		return c, err
	})
	if err != nil {
		return fail(err)
	}
	return conflicts, nil
}
