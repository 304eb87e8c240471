package projections

import (
	"context"
	_ "embed" // the statement
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/decision_rates.sql
var decisionRatesSQL string

// Bounds of what the read methods return at once.
const (
	DefaultLimit = 100
	MaxLimit     = 10_000
)

// limitOf returns a limit within its bounds.
func limitOf(limit int) (int64, error) {
	if limit == 0 {
		return DefaultLimit, nil
	}
	if limit < 1 || limit > MaxLimit {
		return 0, fmt.Errorf("limit is %d, must be 1 to %d", limit, MaxLimit)
	}
	return int64(limit), nil
}

// DecisionRate is how often PostgreSQL decided something within a minute.
type DecisionRate struct {
	// Minute is when the minute began, in UTC.
	Minute time.Time `json:"minute"`
	// Scope is that of the key; "" for requests without a key.
	Scope string `json:"scope"`
	Queue string `json:"queue"`
	Type  string `json:"type"`
	// Outcome is accepted, replaced, non_replaceable or conflict_rejected. Requests that were replayed or coalesced
	// leave no event; the metrics of package commands count them.
	Outcome   string `json:"outcome"`
	Decisions int64  `json:"decisions"`
}

// RateFilter narrows [DecisionRates]. The zero value is the newest [DefaultLimit] rows.
type RateFilter struct {
	// From and To are the minutes in [From, To); zero is without end.
	From, To time.Time
	// Scope, where it is not nil; a pointer to "" means requests without a key.
	Scope *string
	// Queue, Type and Outcome, where they are not "".
	Queue, Type, Outcome string
	// Limit is the most rows: 1 to [MaxLimit], default [DefaultLimit].
	Limit int
}

// DecisionRates returns rows of view_decision_rate: newest minute first, then by scope, queue, type and outcome. They
// are as fresh as the projection. Members of daybook_operator may call it.
func DecisionRates(ctx context.Context, db ledger.Querier, filter RateFilter) ([]DecisionRate, error) {
	limit, err := limitOf(filter.Limit)
	if err != nil {
		return nil, fmt.Errorf("daybook: read decision rates: %w", err)
	}
	rows, err := db.Query(ctx, decisionRatesSQL, instant(filter.From), instant(filter.To), filter.Scope,
		text(filter.Queue), text(filter.Type), text(filter.Outcome), limit)
	if err != nil {
		return nil, fmt.Errorf("daybook: read decision rates: %w", err)
	}
	rates, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (DecisionRate, error) {
		rate, err := pgx.RowToStructByPos[DecisionRate](row)
		rate.Minute = rate.Minute.UTC()
		return rate, err
	})
	if err != nil {
		return nil, fmt.Errorf("daybook: read decision rates: %w", err)
	}
	return rates, nil
}
