package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
)

func (a *app) discardParkedCommand() *cobra.Command {
	var options outbox.DiscardOptions
	cmd := &cobra.Command{
		Use:   "discard RELAY POSITION --actor WHO --reason WHY",
		Short: "Decide that a parked event is never published",
		Long: `Decides that a relay never publishes the event that it has parked at this position, and keeps for good who decided, why
and when; daybook parked --all shows it. The event stays in the ledger. The relay may run meanwhile, and its place in
the ledger does not change.

The later events of its key wait behind it no longer: daybook parked redrive publishes them, in order. The same actor and
reason again change nothing; others are refused.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("such as daybook parked discard nats 17 --actor ann --reason 'too large for every consumer'", "name the relay and the position")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			position, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil || position < 1 {
				return usagef("positions are shown by daybook parked", "the position must be a number of at least 1")
			}
			if options.Actor == "" || options.Reason == "" {
				return usagef("both are kept with the event", "--actor and --reason are required")
			}
			options.Relay, options.Position = args[0], ledger.Position(position)
			if err := options.Validate(); err != nil {
				return &failure{code: ExitUsage, message: err.Error(), hint: "see daybook help parked discard", cause: err}
			}
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error {
				return a.discardParked(cmd.Context(), pool, options)
			})
		},
	}
	cmd.Flags().StringVar(&options.Actor, "actor", "", "who decides (required)")
	cmd.Flags().StringVar(&options.Reason, "reason", "", "why (required)")
	return cmd
}

func (a *app) discardParked(ctx context.Context, pool *pgxpool.Pool, options outbox.DiscardOptions) error {
	done, err := outbox.Discard(ctx, pool, options)
	var conflict *outbox.DiscardConflictError
	switch {
	case errors.Is(err, outbox.ErrNotParked), errors.Is(err, outbox.ErrRedriven), errors.As(err, &conflict):
		return &failure{code: ExitFailure, message: err.Error(), hint: "see daybook parked --all", cause: err}
	case err != nil:
		return err
	}
	if a.json {
		return show.Document(a.Stdout, done)
	}
	how := "discarded"
	if done.Repeated {
		how = "discarded before, nothing changed"
	}
	if _, err := fmt.Fprintf(a.Stdout, "the event at position %d: %s\n", done.Position, how); err != nil {
		return err
	}
	if done.Waiting == 0 {
		return nil
	}
	_, err = fmt.Fprintf(a.Stdout, "still parked of its key: %s; to publish: daybook parked redrive --relay %s --position %d --to …\n",
		show.Plural(int64(done.Waiting), "event", "events"), done.Relay, done.First)
	return err
}

func orNothing(text string) string {
	if text == "" {
		return show.Nothing
	}
	return show.OneLine(text)
}
