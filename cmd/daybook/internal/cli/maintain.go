package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/commands"
)

func (a *app) maintainCommand() *cobra.Command {
	var (
		options commands.MaintainOptions
		every   time.Duration
	)
	cmd := &cobra.Command{
		Use:     "maintain",
		Short:   "Take back expired leases, remove expired bindings, prune finished jobs",
		GroupID: groupAct,
		Long: `Does one whole pass of upkeep and exits; with --every it goes on until it is interrupted, one pass after each interval.
It works in short transactions that pass over whatever somebody holds. Several may run at once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error {
				queue, err := commands.NewQueue(commands.Config{Pool: pool})
				if err != nil {
					return err
				}
				return a.maintain(cmd.Context(), queue, options, every)
			})
		},
	}
	cmd.Flags().DurationVar(&options.Retention, "retention", 0, "how long finished jobs are kept (default 720h, 30 days)")
	cmd.Flags().IntVar(&options.BatchSize, "batch-size", 0, "rows that one transaction takes (default 500)")
	cmd.Flags().DurationVar(&every, "every", 0, "the pause between two passes; without it there is one pass")
	return cmd
}

func (a *app) maintain(ctx context.Context, queue *commands.Queue, options commands.MaintainOptions, every time.Duration) error {
	for {
		done, err := queue.Maintain(ctx, options)
		// Of a pass that failed, too: what was done is done.
		if shown := a.showMaintained(done); err == nil {
			err = shown
		}
		if err != nil || every <= 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

func (a *app) showMaintained(done commands.Maintained) error {
	if a.json {
		return show.Document(a.Stdout, struct {
			ExpiredLeases   int `json:"expired_leases"`
			ExpiredBindings int `json:"expired_bindings"`
			PrunedJobs      int `json:"pruned_jobs"`
		}{done.ExpiredLeases, done.ExpiredBindings, done.PrunedJobs})
	}
	_, err := fmt.Fprintf(a.Stdout, "leases taken back: %d, bindings removed: %d, jobs pruned: %d\n",
		done.ExpiredLeases, done.ExpiredBindings, done.PrunedJobs)
	return err
}
