package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
)

func (a *app) rebuildCommand() *cobra.Command {
	var config projections.RebuildConfig
	cmd := &cobra.Command{
		Use:     "rebuild NAME",
		Short:   "Build a projection anew beside the live one, and swap the two",
		GroupID: groupAct,
		Long: `Fills new tables from position 1, catches up, and puts them in the place of the live ones in one short transaction.
Runners go on meanwhile, readers never see a half-built view, and nothing is published. Interrupted, it goes on from
there the next time. The old tables stay in the schema daybook_old, unless --drop-old is given.

The user needs to be a member of daybook_relay and of daybook_owner.`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: projectionNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := chosenProjections(args)
			if err != nil {
				return err
			}
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error {
				return a.rebuild(cmd.Context(), pool, chosen[0], config)
			})
		},
	}
	cmd.Flags().BoolVar(&config.DropOld, "drop-old", false, "drop the old tables in the swap")
	cmd.Flags().BoolVar(&config.Restart, "restart", false, "throw away what an unfinished rebuild has left")
	cmd.Flags().IntVar(&config.BatchSize, "batch", projections.DefaultRebuildBatch, "how many positions are folded in one transaction")
	return cmd
}

type rebuildReport struct {
	Projection string          `json:"projection"`
	Version    int             `json:"version"`
	ResumedAt  ledger.Position `json:"resumed_at"`
	Position   ledger.Position `json:"position"`
	Swapped    bool            `json:"swapped"`
	OldSchema  string          `json:"old_schema,omitempty"`
	Seconds    float64         `json:"seconds"`
}

func (a *app) rebuild(ctx context.Context, pool *pgxpool.Pool, projection projections.Projection, config projections.RebuildConfig) error {
	meter := show.NewMeter(a.Stderr, "rebuilding "+projection.Name)
	config.Progress = func(p projections.Progress) {
		meter.Report(show.Progress{
			Done: int64(p.Position), Of: int64(p.Head), Percent: p.Percent, Rate: p.Rate, Left: p.TimeLeft,
		})
	}
	result, err := projections.Rebuild(ctx, pool, projection, config)
	meter.End()
	if err != nil {
		return err
	}
	if a.json {
		return show.Document(a.Stdout, rebuildReport{
			result.Projection, result.Version, result.ResumedAt, result.Position, result.Swapped, result.OldSchema, result.Took.Seconds(),
		})
	}
	fmt.Fprintf(a.Stdout, "%s version %d is rebuilt up to position %d, in %s\n",
		result.Projection, result.Version, result.Position, show.Age(result.Took.Round(time.Millisecond)))
	if result.ResumedAt > 0 {
		fmt.Fprintf(a.Stdout, "it went on from position %d, where an earlier rebuild had stopped\n", result.ResumedAt)
	}
	if result.OldSchema != "" {
		fmt.Fprintf(a.Stdout, "the old tables are in schema %s until the next rebuild\n", result.OldSchema)
	}
	return nil
}
