package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
)

type eventsFlags struct {
	follow bool
	kinds  []string
	after  int64
	since  string
	limit  int64
}

func (a *app) eventsCommand() *cobra.Command {
	var f eventsFlags
	cmd := &cobra.Command{
		Use:     "events",
		Short:   "Show the events of the ledger in their order",
		GroupID: groupLook,
		Long: `Shows events, oldest first. With --follow it waits for more until it is interrupted.

Before it reads, it gives positions to what has committed, where its user may (daybook_relay). With --json each event
is a line, with its whole body.`,
		Example: `  daybook events --after 41 --kind enqueue.accepted --kind enqueue.conflict_rejected
  daybook events --since 2030-01-31T12:00:00Z
  daybook events --follow --json | jq .body.type`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.after < 0 || f.limit < 0 {
				return usagef("", "--after and --limit are not negative")
			}
			since, err := instant("--since", f.since)
			if err != nil {
				return err
			}
			if f.since != "" && cmd.Flags().Changed("after") {
				return usagef("", "give --after or --since, not both")
			}
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error {
				if f.since == "" {
					return a.events(cmd.Context(), pool, f)
				}
				// What has committed by now is to be found, too.
				if err := sequence(cmd.Context(), pool); err != nil {
					return err
				}
				before, err := ledger.PositionBefore(cmd.Context(), pool, since)
				if err != nil {
					return err
				}
				f.after = int64(before)
				return a.events(cmd.Context(), pool, f)
			})
		},
	}
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "wait for more until interrupted")
	cmd.Flags().StringArrayVar(&f.kinds, "kind", nil, "only events of this kind; repeat it for more kinds")
	cmd.Flags().Int64Var(&f.after, "after", 0, "only events beyond this position")
	cmd.Flags().StringVar(&f.since, "since", "", "from the first event on that was recorded at or after this instant, as 2030-01-31T12:00:00Z")
	cmd.Flags().Int64Var(&f.limit, "limit", 0, "end after so many events (default: no end)")
	return cmd
}

// followPoll is the longest time between two looks while following. Whoever sequences says so on a channel, but nobody
// else may be there to sequence.
const followPoll = 250 * time.Millisecond

func (a *app) events(ctx context.Context, pool *pgxpool.Pool, f eventsFlags) error {
	printer := &eventPrinter{app: a, left: f.limit, limited: f.limit > 0}
	if err := printer.header(); err != nil {
		return err
	}
	if f.follow {
		err := a.followEvents(ctx, pool, f, printer)
		if stopped(ctx, err) {
			return nil
		}
		return err
	}
	if err := sequence(ctx, pool); err != nil {
		return err
	}
	_, err := readFeed(ctx, pool, ledger.Position(f.after), f.kinds, printer.print)
	return err
}

// followEvents goes on until ctx ends or the limit is reached.
func (a *app) followEvents(ctx context.Context, pool *pgxpool.Pool, f eventsFlags, printer *eventPrinter) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	// Closed rather than given back: it listens.
	listener := conn.Hijack()
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = listener.Close(closing)
	}()
	// The remark keeps it from being taken for a reader that moves a cursor: see ledger.Status.
	if _, err := listener.Exec(ctx, "listen "+ledger.NotifyChannel+" -- follow"); err != nil {
		return fmt.Errorf("listen for events: %w", err)
	}
	after := ledger.Position(f.after)
	for {
		if err := sequence(ctx, pool); err != nil {
			return err
		}
		if after, err = readFeed(ctx, pool, after, f.kinds, printer.print); err != nil || printer.done() {
			return err
		}
		if err := awaitNews(ctx, listener); err != nil {
			return fmt.Errorf("wait for events: %w", err)
		}
	}
}

// awaitNews waits for a round of sequencing, or for so long as nobody may have told of one.
func awaitNews(ctx context.Context, listener *pgx.Conn) error {
	waiting, cancel := context.WithTimeout(ctx, followPoll)
	defer cancel()
	_, err := listener.WaitForNotification(waiting)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// eventPrinter writes a stream of events, as aligned lines or JSON lines.
type eventPrinter struct {
	*app
	left    int64
	limited bool
}

// The widths of the columns of a stream, whose rows are not known in advance.
const (
	widthPosition = 9
	widthTime     = 20
	widthKind     = 25
	widthScope    = 10
	widthKey      = 23
	widthJob      = 36
)

func (p *eventPrinter) header() error {
	if p.json {
		return nil
	}
	return p.line("position", "recorded_at", "kind", "scope", "key_digest key_preview", "job_id", "about")
}

func (p *eventPrinter) line(position, at, kind, scope, key, job, gist string) error {
	_, err := fmt.Fprintf(p.Stdout, "%*s  %s  %s  %s  %s  %s  %s\n", widthPosition, position, show.Pad(at, widthTime),
		show.Pad(kind, widthKind), show.Pad(scope, widthScope), show.Pad(key, widthKey), show.Pad(job, widthJob), show.Clean(gist))
	return err
}

func (p *eventPrinter) print(e event) (more bool, err error) {
	if p.json {
		err = show.Line(p.Stdout, e)
	} else {
		err = p.line(fmt.Sprint(e.Position), show.Time(e.RecordedAt), string(e.Kind), show.Or(e.Scope),
			showKey(e.KeyDigest, e.KeyPreview), e.job(), e.gist())
	}
	p.left--
	return !p.done(), err
}

func (p *eventPrinter) done() bool { return p.limited && p.left <= 0 }
