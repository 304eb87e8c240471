package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/outbox/jetstream"
)

func (a *app) parkedCommand() *cobra.Command {
	var filter outbox.ParkedFilter
	cmd := &cobra.Command{
		Use:     "parked",
		Short:   "Show the events that a relay could not publish",
		GroupID: groupLook,
		Long: `Shows the events that relays have set aside, by position: those that the broker refused, with the reason, and those
that wait behind them because they are of the same key (0 attempts). daybook parked redrive publishes them, daybook parked
discard decides that one is never published.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter.Limit < 1 || filter.Limit > outbox.MaxParkedLimit {
				return usagef("", "--limit must be 1 to %d", outbox.MaxParkedLimit)
			}
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error { return a.parked(cmd.Context(), pool, filter) })
		},
	}
	cmd.Flags().StringVar(&filter.Relay, "relay", "", "only of this relay")
	cmd.Flags().BoolVar(&filter.All, "all", false, "also those that were redriven or discarded")
	cmd.Flags().IntVar(&filter.Limit, "limit", outbox.DefaultParkedLimit, "at most so many")
	cmd.AddCommand(a.redriveParkedCommand(), a.discardParkedCommand())
	return cmd
}

func (a *app) parked(ctx context.Context, pool *pgxpool.Pool, filter outbox.ParkedFilter) error {
	parked, err := outbox.ListParked(ctx, pool, filter)
	if err != nil {
		return err
	}
	if a.json {
		return show.Document(a.Stdout, struct {
			Parked []outbox.Parked `json:"parked"`
		}{append([]outbox.Parked{}, parked...)})
	}
	var rows [][]string
	for _, p := range parked {
		job := show.Nothing
		if p.JobID != uuid.Nil {
			job = p.JobID.String()
		}
		row := []string{
			p.Relay, fmt.Sprint(p.Position), string(p.Kind), job, showKey(p.KeyDigest, p.KeyPreview),
			fmt.Sprint(p.Attempts), show.Time(p.ParkedAt), show.OneLine(p.Reason),
		}
		if filter.All {
			row = append(row, show.Time(p.RedrivenAt), show.Time(p.DiscardedAt), orNothing(p.DiscardActor), orNothing(p.DiscardReason))
		}
		rows = append(rows, row)
	}
	columns := []show.Column{
		{Title: "relay"},
		{Title: "position", Number: true},
		{Title: "kind"},
		{Title: "job_id"},
		{Title: "key"},
		{Title: "attempts", Number: true},
		{Title: "parked_at"},
		{Title: "reason"},
	}
	if filter.All {
		columns = append(columns, show.Column{Title: "redriven_at"}, show.Column{Title: "discarded_at"},
			show.Column{Title: "discard_actor"}, show.Column{Title: "discard_reason"})
	}
	return show.Table(a.Stdout, columns, rows, "nothing is parked")
}

func (a *app) redriveParkedCommand() *cobra.Command {
	var to broker
	var relay string
	var position int64
	cmd := &cobra.Command{
		Use:   "redrive --to nats://host:4222",
		Short: "Publish parked events after all",
		Long: `Publishes the parked events of a relay, in the order of their positions, and lets them go. The relay may run meanwhile,
and its place in the ledger does not change. An event that is refused again stays parked, with what is of its key.

Give --to and --format as the relay has them.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := to.check(); err != nil {
				return err
			}
			if position < 0 {
				return usagef("positions are shown by daybook parked", "--position must not be negative")
			}
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error {
				return to.withPublisher("", func(publisher *jetstream.Publisher) error {
					return a.redriveParked(cmd.Context(), outbox.RedriveConfig{
						Pool: pool, Relay: relay, Publisher: publisher, Poison: jetstream.Poison,
						Format: outbox.Format(to.format), Position: ledger.Position(position), Logger: a.logger(),
					})
				})
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().StringVar(&relay, "relay", defaultRelay, "the relay that has parked them")
	cmd.Flags().Int64Var(&position, "position", 0, "only the key of the event at this position (default: every key)")
	return cmd
}

func (a *app) redriveParked(ctx context.Context, config outbox.RedriveConfig) error {
	redriven, err := outbox.Redrive(ctx, config)
	switch {
	case errors.Is(err, outbox.ErrNotParked):
		return &failure{code: ExitFailure, message: err.Error(), hint: "see daybook parked", cause: err}
	case err != nil:
		return err
	}
	redriven.Failed = append([]ledger.Position{}, redriven.Failed...)
	if a.json {
		err = show.Document(a.Stdout, redriven)
	} else {
		_, err = fmt.Fprintf(a.Stdout, "%s published\n", show.Plural(int64(redriven.Published), "event", "events"))
	}
	if err != nil || len(redriven.Failed) == 0 {
		return err
	}
	var at []string
	for _, position := range redriven.Failed {
		at = append(at, fmt.Sprint(position))
	}
	return &failure{code: ExitFailure, message: "refused again: the events at position " + strings.Join(at, ", "), hint: "see daybook parked for the reasons"}
}
