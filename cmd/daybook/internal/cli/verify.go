package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
)

// What can be verified besides the projections.
const (
	verifyLedger = "ledger"
	verifyState  = "state"
)

func (a *app) verifyCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "verify [NAME...]",
		Short:   "Compare the ledger, bindings and jobs, and projections with the events",
		GroupID: groupLook,
		Long: `Verifies what is named, or everything:

  ledger  positions are dense, every event has one, and its stored bytes still have the hash they were sequenced with
  state   bindings and jobs are what their events add up to
  NAME    a projection's tables are what the events fold to, up to where they have come

Writers and runners go on meanwhile, and nothing is changed. The exit code is 4 where anything is missing, extra or
different. It reads every event, several times.`,
		ValidArgs: append([]string{verifyLedger, verifyState}, projectionNames()...),
		RunE: func(cmd *cobra.Command, names []string) error {
			if all && len(names) > 0 {
				return usagef("without names it verifies everything anyway", "--all and names contradict each other")
			}
			others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == verifyLedger || name == verifyState })
			chosen, err := chosenProjections(others)
			if err != nil {
				return usagef("they are "+strings.Join(append(projectionNames(), verifyLedger, verifyState), ", "), "%v", err)
			}
			if len(names) > 0 && len(others) == 0 {
				chosen = nil
			}
			v := verification{
				app: a, projections: chosen,
				ledger: len(names) == 0 || slices.Contains(names, verifyLedger),
				state:  len(names) == 0 || slices.Contains(names, verifyState),
			}
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error { return v.run(cmd.Context(), pool) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "verify everything; the default without names")
	return cmd
}

// verification is one run of daybook verify.
type verification struct {
	*app
	ledger, state bool
	projections   []projections.Projection
}

// verifyReport is what it found.
type verifyReport struct {
	OK          bool                   `json:"ok"`
	Ledger      *ledger.Report         `json:"ledger,omitempty"`
	State       *commands.VerifyReport `json:"state,omitempty"`
	Projections []projections.Report   `json:"projections,omitempty"`
}

func (v *verification) run(ctx context.Context, pool *pgxpool.Pool) error {
	report := verifyReport{OK: true}
	var unequal []string
	if v.ledger {
		meter := show.NewMeter(v.Stderr, "verifying the ledger")
		found, err := ledger.Verify(ctx, pool, func(done, of ledger.Position) { v.progress(meter, int64(done), int64(of)) })
		meter.End()
		if err != nil {
			return err
		}
		if report.Ledger = &found; !found.OK {
			unequal = append(unequal, verifyLedger)
		}
	}
	if v.state {
		meter := show.NewMeter(v.Stderr, "verifying bindings and jobs")
		found, err := commands.Verify(ctx, pool, func(done, of int) { v.progress(meter, int64(done), int64(of)) })
		meter.End()
		if err != nil {
			return err
		}
		if report.State = &found; !found.OK {
			unequal = append(unequal, verifyState)
		}
	}
	for _, p := range v.projections {
		found, err := projections.Verify(ctx, pool, p)
		if err != nil {
			return err
		}
		report.Projections = append(report.Projections, found)
		if !found.OK {
			unequal = append(unequal, p.Name)
		}
	}
	report.OK = len(unequal) == 0
	var err error
	if v.json {
		err = show.Document(v.Stdout, report)
	} else {
		err = report.write(v.app)
	}
	if err != nil || report.OK {
		return err
	}
	return &failure{code: ExitUnequal, message: "not equal to the ledger: " + strings.Join(unequal, ", "), hint: verifyHint(unequal)}
}

// progress is shown where somebody watches.
func (v *verification) progress(meter *show.Meter, done, of int64) {
	if meter.Terminal() {
		meter.Report(show.Progress{Done: done, Of: of, Percent: 100 * float64(done) / float64(max(of, 1))})
	}
}

func verifyHint(unequal []string) string {
	for _, name := range unequal {
		if name != verifyLedger && name != verifyState {
			return "daybook rebuild " + name + " builds it anew"
		}
	}
	if unequal[0] == verifyLedger {
		return "an event is never altered: find out who could, and compare with a backup; daybook doctor tells of a restore"
	}
	return "somebody has written to daybook's tables past its functions, or it is a defect: please report it"
}

func (r verifyReport) write(a *app) error {
	if r.Ledger != nil {
		verdict := "sound"
		if !r.Ledger.OK {
			verdict = "damaged"
		}
		fmt.Fprintf(a.Stdout, "ledger: %s up to position %s, %s\n", verdict, show.Count(int64(r.Ledger.Position)),
			show.Plural(r.Ledger.Events, "event", "events"))
		for _, d := range r.Ledger.Damages {
			fmt.Fprintf(a.Stdout, "ledger: %s, %s%s: %s\n", d.Kind, show.Count(d.Count), firstOf(d), d.Detail)
		}
	}
	var rows [][]string
	if r.State != nil {
		for _, t := range r.State.Tables {
			rows = append(rows, verifyRow(verifyState, r.State.Position, t.Table, t.Rows, t.Missing, t.Extra, t.Different, t.FirstPosition))
		}
	}
	for _, p := range r.Projections {
		for _, t := range p.Tables {
			rows = append(rows, verifyRow(p.Projection, p.Position, t.Table, t.Rows, t.Missing, t.Extra, t.Different, t.FirstPosition))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	err := show.Table(a.Stdout, []show.Column{
		{Title: "verified"},
		{Title: "position", Number: true},
		{Title: "table"},
		{Title: "rows", Number: true},
		{Title: "missing", Number: true},
		{Title: "extra", Number: true},
		{Title: "different", Number: true},
		{Title: "first_position", Number: true},
		{Title: "is"},
	}, rows, "")
	if err != nil {
		return err
	}
	r.writeSamples(a)
	return nil
}

func (r verifyReport) writeSamples(a *app) {
	line := func(table, row, kind string, columns []string) {
		text := fmt.Sprintf("%s: row %s is %s", table, row, kind)
		if len(columns) > 0 {
			text += " in " + strings.Join(columns, ", ")
		}
		fmt.Fprintln(a.Stdout, show.Clean(text))
	}
	if r.State != nil {
		for _, t := range r.State.Tables {
			for _, d := range t.Samples {
				row := "of job " + d.JobID.String()
				if d.KeyDigest != "" {
					row += ", key " + string(d.KeyDigest)
				}
				line(t.Table, row, d.Kind, d.Columns)
			}
		}
	}
	for _, p := range r.Projections {
		for _, t := range p.Tables {
			for _, d := range t.Samples {
				line(t.Table, d.Key, d.Kind, d.Columns)
			}
		}
	}
}

func verifyRow(name string, at ledger.Position, table string, rows, missing, extra, different int64, first ledger.Position) []string {
	verdict := "equal"
	if missing+extra+different > 0 {
		verdict = "not equal"
	}
	return []string{
		name, show.Count(int64(at)), table, show.Count(rows), show.Count(missing), show.Count(extra), show.Count(different),
		position(first), verdict,
	}
}

func firstOf(d ledger.Damage) string {
	switch {
	case d.FirstPosition > 0:
		return " from position " + show.Count(int64(d.FirstPosition))
	case d.FirstEventID > 0:
		return " from event " + show.Count(d.FirstEventID)
	}
	return ""
}

func position(p ledger.Position) string {
	if p == 0 {
		return show.Nothing
	}
	return show.Count(int64(p))
}
