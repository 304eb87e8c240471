package cli

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
)

type doctorFlags struct {
	afterRestore    bool
	carryAll        bool
	carry           []string
	seen            int64
	followTimelines bool
}

func (a *app) doctorCommand() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Find out whether the database was restored, rewound or moved, and put its readers right",
		GroupID: groupLook,
		Long: `Compares where the database is with where its epoch began: the cluster's system identifier, its timeline, and the
database. It also looks whether the parts belong together: event ids, the sequencer, and the cursors. Without flags it
changes nothing; the exit code is 4 where it found anything.

Readers stop by themselves after a restore, because nobody but you knows what they have seen. When the database is the one
to go on with:

  daybook doctor --after-restore --carry-cursors

begins a new epoch, keeps all positions, and takes the readers' cursors along: each goes on with the first event it had
not acknowledged when the backup was made. What was delivered between the backup and the restore is delivered again, or
was of a life that is no more; consumers recognise both by ce-id and the epoch in ce-source.

Stop readers and relays first. Writers may go on. A cursor that is not carried along stays behind, and its reader stopped;
it can be carried later.

After the promotion of a replica nothing is lost where replication is synchronous: set --follow-timelines there, once.
Where it is not, what the replica had not received is gone, although readers may have seen it: begin a new epoch.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.carryAll && len(f.carry) > 0 {
				return usagef("", "--carry-cursors takes all, --carry-cursor the named ones: use one of them")
			}
			if f.seen < 0 {
				return usagef("", "--seen-position is %d, must not be negative", f.seen)
			}
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error {
				return a.doctor(cmd.Context(), pool, f, cmd.Flags().Changed("follow-timelines"))
			})
		},
	}
	cmd.Flags().BoolVar(&f.afterRestore, "after-restore", false, "begin a new epoch where the database is now")
	cmd.Flags().BoolVar(&f.carryAll, "carry-cursors", false, "take all cursors along into the current epoch")
	cmd.Flags().StringArrayVar(&f.carry, "carry-cursor", nil, "take the cursor of this name along; repeat it for more")
	cmd.Flags().Int64Var(&f.seen, "seen-position", 0, "the highest position anyone outside has seen, such as a broker's last ce-sequence")
	cmd.Flags().BoolVar(&f.followTimelines, "follow-timelines", false, "set whether readers go on by themselves after a promotion")
	return cmd
}

// doctorReport is what was found, and what was done about it.
type doctorReport struct {
	ledger.Diagnosis
	OK      bool                   `json:"ok"`
	Begun   *ledger.Epoch          `json:"begun,omitempty"`
	Carried []ledger.CarriedCursor `json:"carried,omitempty"`
}

func (a *app) doctor(ctx context.Context, pool *pgxpool.Pool, f doctorFlags, setFollow bool) error {
	if setFollow {
		if err := ledger.FollowTimelines(ctx, pool, f.followTimelines); err != nil {
			return err
		}
	}
	var report doctorReport
	if f.afterRestore {
		before, err := ledger.Diagnose(ctx, pool, ledger.Position(f.seen))
		if err != nil {
			return err
		}
		// For whoever reads this later: what it was that the new epoch was begun for.
		if !a.json {
			a.findings(before.Findings)
		}
		begun, err := ledger.BeginEpoch(ctx, pool)
		if err != nil {
			return err
		}
		report.Begun = &begun
		// Whoever has seen more has seen it in the epoch before.
		f.seen = 0
	}
	if f.carryAll || len(f.carry) > 0 {
		carried, err := ledger.CarryCursors(ctx, pool, f.carry...)
		if err != nil {
			return err
		}
		report.Carried = carried
	}
	var err error
	if report.Diagnosis, err = ledger.Diagnose(ctx, pool, ledger.Position(f.seen)); err != nil {
		return err
	}
	report.OK = len(report.Findings) == 0
	if a.json {
		if err := show.Document(a.Stdout, report); err != nil {
			return err
		}
	} else {
		report.write(a)
	}
	if report.OK {
		return nil
	}
	return &failure{
		code: ExitUnequal, message: show.Plural(int64(len(report.Findings)), "thing needs you", "things need you"),
		hint: report.Findings[0].Advice,
	}
}

func (a *app) findings(findings []ledger.Finding) {
	for _, f := range findings {
		about := string(f.Kind)
		if f.Cursor != "" {
			about += ", cursor " + f.Cursor
		}
		fmt.Fprintf(a.Stdout, "%s: %s\n", show.Clean(about), show.Clean(f.Detail))
	}
}

func (r doctorReport) write(a *app) {
	if r.Begun != nil {
		fmt.Fprintf(a.Stdout, "begun: epoch %d, behind position %s\n", r.Begun.Epoch, show.Count(int64(r.Begun.Position)))
		if r.Begun.Swept > 0 {
			fmt.Fprintf(a.Stdout, "swept: %s had no position, and have one now\n", show.Plural(r.Begun.Swept, "event", "events"))
		}
		if r.Begun.Raised {
			fmt.Fprintln(a.Stdout, "raised: event ids go on above all that were given out")
		}
	}
	for _, c := range r.Carried {
		line := fmt.Sprintf("carried: %s, at position %s of epoch %d", c.Name, show.Count(int64(c.FromPosition)), c.FromEpoch)
		if c.Position != c.FromPosition {
			line += fmt.Sprintf(", back to %s", show.Count(int64(c.Position)))
			if kind, name := readerOf(c.Name); kind == readerProjection {
				line += "; it has folded events that are no more: daybook rebuild " + name
			}
		}
		fmt.Fprintln(a.Stdout, show.Clean(line))
	}
	a.findings(r.Findings)
	last := ""
	for _, f := range r.Findings {
		if f.Advice != last {
			fmt.Fprintf(a.Stdout, "do: %s\n", show.Clean(f.Advice))
		}
		last = f.Advice
	}
	if r.OK {
		fmt.Fprintf(a.Stdout, "well: epoch %d, position %s\n", r.Epoch, show.Count(int64(r.Position)))
	}
}
