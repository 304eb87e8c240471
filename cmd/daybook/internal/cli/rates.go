package cli

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/projections"
)

func (a *app) ratesCommand() *cobra.Command {
	var filter projections.RateFilter
	var scope, from, to string
	cmd := &cobra.Command{
		Use:     "rates",
		Short:   "Show how often PostgreSQL decided what, per minute",
		GroupID: groupLook,
		Long: `Shows view_decision_rate: decisions per minute, scope, queue, type and outcome, the newest minute first. Replays leave
no event; the applications' own metrics count them.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cmd.Flags().Changed("scope") {
				filter.Scope = &scope
			}
			if filter.From, err = instant("--from", from); err != nil {
				return err
			}
			if filter.To, err = instant("--to", to); err != nil {
				return err
			}
			if err := checkLimit(filter.Limit); err != nil {
				return err
			}
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error { return a.rates(cmd.Context(), pool, filter) })
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "only minutes from this instant on, as 2030-01-31T12:00:00Z")
	cmd.Flags().StringVar(&to, "to", "", "only minutes before this instant, likewise")
	cmd.Flags().StringVar(&scope, "scope", "", "only this scope; an empty one is that of requests without a key")
	cmd.Flags().StringVar(&filter.Queue, "queue", "", "only this queue")
	cmd.Flags().StringVar(&filter.Type, "type", "", "only this type")
	cmd.Flags().StringVar(&filter.Outcome, "outcome", "", "only accepted, replaced, non_replaceable or conflict_rejected")
	cmd.Flags().IntVar(&filter.Limit, "limit", projections.DefaultLimit, "at most so many rows")
	return cmd
}

func (a *app) rates(ctx context.Context, pool *pgxpool.Pool, filter projections.RateFilter) error {
	rates, err := projections.DecisionRates(ctx, pool, filter)
	if err != nil {
		return err
	}
	if a.json {
		err = show.Document(a.Stdout, struct {
			Rates []projections.DecisionRate `json:"rates"`
		}{append([]projections.DecisionRate{}, rates...)})
	} else {
		err = a.rateTable(rates)
	}
	if err != nil {
		return err
	}
	return a.noteLag(ctx, pool, "view_decision_rate")
}

func (a *app) rateTable(rates []projections.DecisionRate) error {
	var rows [][]string
	for _, r := range rates {
		rows = append(rows, []string{
			r.Minute.UTC().Truncate(time.Minute).Format("2006-01-02T15:04Z"), show.Or(r.Scope), r.Queue, r.Type, r.Outcome, show.Count(r.Decisions),
		})
	}
	return show.Table(a.Stdout, []show.Column{
		{Title: "minute"}, {Title: "scope"}, {Title: "queue"}, {Title: "type"}, {Title: "outcome"}, {Title: "decisions", Number: true},
	}, rows, "no decisions")
}
