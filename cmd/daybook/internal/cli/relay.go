package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/outbox/jetstream"
)

// defaultRelay is the relay's name where none is given.
const defaultRelay = "nats"

// broker is the flags that say where to publish, and how.
type broker struct {
	to, credentials, format string
}

func (b *broker) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.to, "to", "", "the broker: nats://host:4222, several separated by commas (required)")
	cmd.Flags().StringVar(&b.credentials, "credentials", "", "a NATS credentials file")
	cmd.Flags().StringVar(&b.format, "format", string(outbox.FormatBinary), "how CloudEvents are written: binary or structured")
}

func (b *broker) check() error {
	if b.to == "" {
		return usagef("name the broker, such as --to nats://localhost:4222", "--to is required")
	}
	if f := outbox.Format(b.format); f != outbox.FormatBinary && f != outbox.FormatStructured {
		return usagef("it is binary or structured", "--format is neither")
	}
	return nil
}

// withPublisher runs work with a publisher, and closes it.
func (b *broker) withPublisher(createStream string, work func(publisher *jetstream.Publisher) error) error {
	publisher, err := jetstream.NewPublisher(jetstream.Config{URL: b.to, CredentialsFile: b.credentials, CreateStream: createStream})
	if err != nil {
		return &failure{code: ExitFailure, message: err.Error(), hint: "is NATS with JetStream running there? --to is like nats://host:4222", cause: err}
	}
	defer publisher.Close() //nolint:errcheck // what was published is acknowledged
	return work(publisher)
}

// host is the broker as it may be shown: a URL may have a password in it.
func (b *broker) host() string {
	var hosts []string
	for server := range strings.SplitSeq(b.to, ",") {
		if u, err := url.Parse(strings.TrimSpace(server)); err == nil {
			hosts = append(hosts, u.Host)
		}
	}
	return strings.Join(hosts, ",")
}

func (a *app) relayCommand() *cobra.Command {
	var to broker
	var kinds []string
	var createStream string
	config := outbox.RelayConfig{}
	cmd := &cobra.Command{
		Use:     "relay --to nats://host:4222",
		Short:   "Publish the events to NATS JetStream",
		GroupID: groupAct,
		Long: `Publishes events to NATS JetStream until it is interrupted: each at least once, in order for each key, to the subject
daybook.events.KIND, as CloudEvents 1.0. The event's ID is the message's Nats-Msg-Id, so that JetStream recognises what
comes twice. Several may run under one name: one works, the others stand by.

While the broker is away it waits and tries again. An event that the broker refuses is parked, with the later ones of its
key; see daybook parked.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := to.check(); err != nil {
				return err
			}
			config.Format = outbox.Format(to.format)
			for _, kind := range kinds {
				config.Kinds = append(config.Kinds, ledger.Kind(kind))
			}
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error {
				return to.withPublisher(createStream, func(publisher *jetstream.Publisher) error {
					return a.relay(cmd.Context(), pool, publisher, config, to.host())
				})
			})
		},
	}
	to.flags(cmd)
	cmd.Flags().StringVar(&config.Name, "name", defaultRelay, "the relay's name: it has a place in the ledger of its own")
	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "only events of these kinds (default: all)")
	cmd.Flags().StringVar(&createStream, "create-stream", "", "make a stream of this name for daybook.events.> if there is none")
	cmd.Flags().IntVar(&config.Lanes, "lanes", outbox.DefaultLanes, "publish so many at the same time, at most")
	cmd.Flags().IntVar(&config.PageSize, "page-size", outbox.DefaultRelayPageSize, "read so many at once, at most")
	cmd.Flags().DurationVar(&config.ParkedRetention, "parked-retention", 0,
		"how long the records of redriven events are kept (default 720h, 30 days)")
	return cmd
}

func (a *app) relay(ctx context.Context, pool *pgxpool.Pool, publisher *jetstream.Publisher, config outbox.RelayConfig, host string) error {
	config.Pool, config.Publisher, config.Poison = pool, publisher, jetstream.Poison
	config.Logger = a.logger()
	relay, err := outbox.NewRelay(config)
	if err != nil {
		return &failure{code: ExitUsage, message: err.Error(), hint: "see daybook help relay", cause: err}
	}
	// A database that is not there is an error now, and not one to be retried for ever.
	if err := pool.Ping(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	fmt.Fprintf(a.Stderr, "relaying to %s as %s until interrupted\n", host, config.Name)
	return relay.Run(ctx)
}

// logger writes what is retried or goes wrong to standard error.
func (a *app) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
