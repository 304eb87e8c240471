package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
)

type statusFlags struct {
	check          bool
	maxLag, maxGap time.Duration
	maxEvents      int64
	expected       []string
	pollOnly       bool
}

func (a *app) statusCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show how far sequencing, consumer groups and projections have come",
		GroupID: groupLook,
		Long: `Shows four lags, each in events and in seconds by the database's clock: what has committed, what is sequenced, what
each consumer group has published, what each projection has projected. The lag of a reader counts everything that has
committed beyond its place, also what nobody has sequenced yet. It also shows the oldest transaction that keeps gaps.

It writes nothing and takes a few milliseconds, however large the ledger is. With --check the exit code is 4 where
something is wrong, and each thing that is wrong is a line. A reader that never started has no lag to show: name those
that must exist with --expect. That nobody runs at all is seen by members of pg_read_all_stats only.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error { return a.status(cmd.Context(), pool, f) })
		},
	}
	cmd.Flags().BoolVar(&f.check, "check", false, "exit with 4 where something is wrong")
	cmd.Flags().DurationVar(&f.maxLag, "max-lag", time.Minute, "with --check: longest lag of anything")
	cmd.Flags().Int64Var(&f.maxEvents, "max-lag-events", 0, "with --check: largest lag of anything, in events (default: no bound)")
	cmd.Flags().DurationVar(&f.maxGap, "max-gap-age", 10*time.Minute, "with --check: longest a transaction may keep gaps")
	cmd.Flags().StringArrayVar(&f.expected, "expect", nil, "with --check: a consumer group or projection that must exist; repeat it for more")
	cmd.Flags().BoolVar(&f.pollOnly, "poll-only", false, "with --check: readers do not listen, so that nobody listens is no problem")
	return cmd
}

func (a *app) status(ctx context.Context, pool *pgxpool.Pool, f statusFlags) error {
	status, err := ledger.ReadStatus(ctx, pool)
	if err != nil {
		return err
	}
	report := newStatusReport(status)
	if f.check {
		report.Unhealthy = unhealthy(status, f)
	}
	if a.json {
		err = show.Document(a.Stdout, report)
	} else {
		err = report.write(a)
	}
	if err != nil || !f.check || len(report.Unhealthy) == 0 {
		return err
	}
	return &failure{code: ExitUnequal, message: "unhealthy: " + show.Plural(int64(len(report.Unhealthy)), "problem", "problems")}
}

// unhealthy lists what is wrong.
func unhealthy(s ledger.Status, f statusFlags) []string {
	problems := []string{}
	late := func(what string, lag ledger.Lag) {
		if lag.Age > f.maxLag {
			problems = append(problems, fmt.Sprintf("%s has waited for %s", what, show.Age(lag.Age)))
		}
		if f.maxEvents > 0 && lag.Events > f.maxEvents {
			problems = append(problems, fmt.Sprintf("%s is %s behind", what, show.Plural(lag.Events, "event", "events")))
		}
	}
	late("sequencing", s.Unsequenced)
	known := map[string]bool{}
	projections := 0
	for _, c := range s.Cursors {
		kind, name := readerOf(c.Name)
		known[name] = true
		if kind == readerProjection {
			projections++
		}
		// An unfinished rebuild is behind by nature, and nobody waits for it.
		if kind == readerRebuild {
			continue
		}
		late(string(kind)+" "+name, c.Lag)
		if c.Cursor.Epoch != s.Epoch {
			problems = append(problems, fmt.Sprintf("%s %s belongs to epoch %d, the ledger is in epoch %d", kind, name, c.Cursor.Epoch, s.Epoch))
		}
	}
	for _, name := range f.expected {
		if !known[name] {
			problems = append(problems, name+" has never run here")
		}
	}
	if projections == 0 && s.Head+ledger.Position(s.Unsequenced.Events) > 0 {
		problems = append(problems, "no projection has ever run here")
	}
	if s.Listeners == 0 && len(s.Cursors) > 0 && !f.pollOnly {
		problems = append(problems, "nobody listens: neither a subscriber nor a projection is running")
	}
	if h := s.Gaps.Holder; h != nil && h.Age > f.maxGap {
		problems = append(problems, fmt.Sprintf("%s has kept gaps for %s", holderName(h), show.Age(h.Age)))
	}
	if s.Swept > 0 {
		problems = append(problems, fmt.Sprintf("a sweep found %s that sequencing had missed", show.Plural(s.Swept, "event", "events")))
	}
	return problems
}

func holderName(h *ledger.GapHolder) string {
	if h.PID == 0 {
		return fmt.Sprintf("the prepared transaction %q in database %s", show.Clean(h.GID), show.Clean(h.Database))
	}
	return fmt.Sprintf("the transaction of process %d in database %s", h.PID, show.Clean(h.Database))
}
