package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
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
		Long: `Does one whole pass of upkeep and exits; with --every it goes on until it is interrupted, one pass after each interval,
and where the database goes away meanwhile it waits and tries again.

It works in short transactions that pass over whatever somebody holds. Several may run at once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error {
				return a.maintain(cmd.Context(), pool, options, every)
			})
		},
	}
	cmd.Flags().DurationVar(&options.Retention, "retention", 0, "how long finished jobs are kept (default 720h, 30 days)")
	cmd.Flags().DurationVar(&options.RequestRetention, "request-retention", 0,
		"how long the request IDs of purges and redrives are remembered (default 2160h, 90 days)")
	cmd.Flags().IntVar(&options.BatchSize, "batch-size", 0, "rows that one transaction takes (default 500)")
	cmd.Flags().DurationVar(&every, "every", 0, "the pause between two passes; without it there is one pass")
	return cmd
}

func (a *app) maintain(ctx context.Context, pool *pgxpool.Pool, options commands.MaintainOptions, every time.Duration) error {
	queue, err := commands.NewQueue(commands.Config{Pool: pool})
	if err != nil {
		return err
	}
	// A database that is not there is an error now, and not one to be retried for ever.
	if err := pool.Ping(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	for {
		done, failed := queue.Maintain(ctx, options)
		// Of a pass that failed, too: what was done is done.
		if done != (commands.Maintained{}) || failed == nil {
			if err := a.showMaintained(done); err != nil {
				return errors.Join(failed, err)
			}
		}
		if every <= 0 {
			return failed
		}
		pause := every
		switch {
		case ctx.Err() != nil:
			return nil
		case failed != nil && !isPassing(failed):
			return failed
		case failed != nil:
			pause = min(every, maintainRetry)
			a.logger().Warn("daybook: a pass of upkeep failed, trying again", slog.Any("error", failed))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// maintainRetry is the longest pause after a pass that failed.
const maintainRetry = 5 * time.Second

// isPassing says whether the next pass may be luckier: a pass whose answer was lost is none that PostgreSQL refused.
func isPassing(err error) bool {
	var call *commands.CallError
	return ledger.MayPass(err) || errors.As(err, &call) && call.Unknown
}

func (a *app) showMaintained(done commands.Maintained) error {
	if a.json {
		return show.Document(a.Stdout, struct {
			ExpiredLeases   int `json:"expired_leases"`
			ExpiredBindings int `json:"expired_bindings"`
			PrunedJobs      int `json:"pruned_jobs"`
			Forgotten       int `json:"forgotten_requests"`
		}{done.ExpiredLeases, done.ExpiredBindings, done.PrunedJobs, done.ForgottenRequests})
	}
	_, err := fmt.Fprintf(a.Stdout, "leases taken back: %d, bindings removed: %d, jobs pruned: %d, requests forgotten: %d\n",
		done.ExpiredLeases, done.ExpiredBindings, done.PrunedJobs, done.ForgottenRequests)
	return err
}
