package cli

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
)

func (a *app) projectCommand() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:     "project [NAME...]",
		Short:   "Run the projections: keep the views up to date",
		GroupID: groupAct,
		Long: `Folds events into the views, all of them or the named ones, until it is interrupted; with --once up to what there is.
The ledger is read once for all of them. Several may run at once: each event counts once.

A projection that cannot fold an event stops there, says so, and the others go on; one that is behind catches up by itself.`,
		RunE: func(cmd *cobra.Command, names []string) error {
			chosen, err := chosenProjections(names)
			if err != nil {
				return err
			}
			var runners []*projections.Runner
			for _, p := range chosen {
				runner, err := projections.NewRunner(p, projections.RunnerConfig{})
				if err != nil {
					return err
				}
				runners = append(runners, runner)
			}
			group, err := projections.NewGroup(runners...)
			if err != nil {
				return err
			}
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error {
				if once {
					return a.projectOnce(cmd.Context(), pool, group)
				}
				return a.project(cmd.Context(), pool, group)
			})
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "catch up and exit")
	return cmd
}

func (a *app) projectOnce(ctx context.Context, pool *pgxpool.Pool, group *projections.Group) error {
	// What has come how far is worth knowing also where one has failed.
	positions, failed := group.CatchUp(ctx, pool, 0)
	var err error
	if a.json {
		err = show.Document(a.Stdout, struct {
			Positions map[string]ledger.Position `json:"positions"`
		}{positions})
	} else {
		for _, name := range slices.Sorted(maps.Keys(positions)) {
			fmt.Fprintf(a.Stdout, "%s is at position %d\n", name, positions[name])
		}
	}
	if failed != nil {
		return failed
	}
	return err
}

func (a *app) project(ctx context.Context, pool *pgxpool.Pool, group *projections.Group) error {
	projector, err := outbox.NewGroupProjector(outbox.ProjectorConfig{
		Pool:   pool,
		Logger: slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}, group)
	if err != nil {
		return err
	}
	// A database that is not there is an error now, and not one to be retried for ever.
	if err := pool.Ping(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	fmt.Fprintf(a.Stderr, "projecting %s until interrupted\n", strings.Join(group.Names(), ", "))
	if err := projector.Run(ctx); err != nil {
		return &failure{code: ExitFailure, message: err.Error(), hint: "everything before that position is projected", cause: err}
	}
	return nil
}
