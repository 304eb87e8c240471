package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
)

type statusFlags struct {
	check          bool
	maxLag, maxGap time.Duration
	maxBeat        time.Duration
	maxEvents      int64
	maxParked      int64
	expected       []string
	pollOnly       bool
	forget         string
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
something is wrong, and each thing that is wrong is a line: also that events have committed and no reader has ever run.
Where one has, another that never started has no lag to show: name those that must exist with --expect. That nobody
listens is seen by members of pg_read_all_stats only.

A subscriber, projection or relay says every five seconds that it is there, whether there is anything to do or not. One
that has done so once and stops is a problem, even where its lag is 0: --forget NAME takes it off the list for good.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error { return a.status(cmd.Context(), pool, f) })
		},
	}
	cmd.Flags().BoolVar(&f.check, "check", false, "exit with 4 where something is wrong")
	cmd.Flags().DurationVar(&f.maxLag, "max-lag", time.Minute, "with --check: longest lag of anything")
	cmd.Flags().Int64Var(&f.maxEvents, "max-lag-events", 0, "with --check: largest lag of anything, in events (default: no bound)")
	cmd.Flags().DurationVar(&f.maxBeat, "max-beat-age", 6*ledger.BeatInterval, "with --check: longest that a runner may be silent")
	cmd.Flags().Int64Var(&f.maxParked, "max-parked", 0, "with --check: how many events may be parked")
	cmd.Flags().StringVar(&f.forget, "forget", "", "forget the runner of this name: it is not to run any more")
	cmd.Flags().DurationVar(&f.maxGap, "max-gap-age", 10*time.Minute, "with --check: longest a transaction may keep gaps")
	cmd.Flags().StringArrayVar(&f.expected, "expect", nil, "with --check: a consumer group, projection or relay that must exist; repeat it for more")
	cmd.Flags().BoolVar(&f.pollOnly, "poll-only", false, "with --check: readers do not listen, so that nobody listens is no problem")
	return cmd
}

func (a *app) status(ctx context.Context, pool *pgxpool.Pool, f statusFlags) error {
	if f.forget != "" {
		return a.forgetRunner(ctx, pool, f.forget)
	}
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
	// One that stands by has no cursor yet.
	everRan := len(s.Runners) > 0
	for _, c := range s.Cursors {
		kind, name := readerOf(c.Name)
		known[name], known[c.Name] = true, true
		// An unfinished rebuild is behind by nature, and nobody waits for it.
		if kind == readerRebuild {
			continue
		}
		everRan = true
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
	if !everRan && int64(s.Head)+s.Unsequenced.Events > 0 {
		problems = append(problems, "nobody reads the ledger: no subscriber, projection or relay has ever run here")
	}
	if s.Listeners == 0 && len(s.Cursors) > 0 && !f.pollOnly {
		problems = append(problems, "nobody listens: no subscriber, projection or relay is running")
	}
	for _, r := range s.Runners {
		if r.BeatAge > f.maxBeat {
			problems = append(problems, fmt.Sprintf("%s is not running: last heard of %s ago, process %d on %s", runnerName(r),
				show.Age(r.BeatAge), r.PID, show.Or(r.Host)))
		}
	}
	if s.Parked.Events > f.maxParked {
		problems = append(problems, fmt.Sprintf("%s parked, the first %s ago", show.Plural(s.Parked.Events, "event is", "events are"), show.Age(s.Parked.Age)))
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

// runnerName names a runner as the readers of the status are named.
func runnerName(r ledger.RunnerStatus) string {
	kind, name := readerOf(r.Name)
	return string(kind) + " " + show.Clean(name)
}

// forgetRunner takes the cursor's name, or that of a projection or a relay.
func (a *app) forgetRunner(ctx context.Context, pool *pgxpool.Pool, name string) error {
	for _, full := range []string{name, projections.CursorName(name), outbox.RelayCursorName(name)} {
		forgotten, err := ledger.ForgetRunner(ctx, pool, full)
		if err != nil {
			return err
		}
		if forgotten {
			fmt.Fprintf(a.Stdout, "forgot %s\n", show.Clean(full))
			return nil
		}
	}
	return &failure{code: ExitFailure, message: "no runner of that name has ever been heard of", hint: "daybook status lists them"}
}
