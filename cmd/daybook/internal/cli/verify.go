package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
)

func (a *app) verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "verify [NAME...]",
		Short:   "Compare projections with what the ledger says",
		GroupID: groupLook,
		Long: `Computes projections anew, all of them or the named ones, up to where their tables have come, and compares the two.
Runners go on meanwhile, and nothing is changed. The exit code is 4 where a row is missing, extra or different.`,
		ValidArgs: projectionNames(),
		RunE: func(cmd *cobra.Command, names []string) error {
			chosen, err := chosenProjections(names)
			if err != nil {
				return err
			}
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error { return a.verify(cmd.Context(), pool, chosen) })
		},
	}
}

func (a *app) verify(ctx context.Context, pool *pgxpool.Pool, chosen []projections.Projection) error {
	var reports []projections.Report
	var unequal []string
	for _, p := range chosen {
		report, err := projections.Verify(ctx, pool, p)
		if err != nil {
			return err
		}
		reports = append(reports, report)
		if !report.OK {
			unequal = append(unequal, p.Name)
		}
	}
	var err error
	if a.json {
		err = show.Document(a.Stdout, struct {
			OK          bool                 `json:"ok"`
			Projections []projections.Report `json:"projections"`
		}{len(unequal) == 0, reports})
	} else {
		err = a.verifyTable(reports)
	}
	if err != nil || len(unequal) == 0 {
		return err
	}
	return &failure{
		code: ExitUnequal, message: "not equal to the ledger: " + strings.Join(unequal, ", "),
		hint: "daybook rebuild " + unequal[0] + " builds it anew",
	}
}

func (a *app) verifyTable(reports []projections.Report) error {
	var rows [][]string
	for _, r := range reports {
		for _, t := range r.Tables {
			verdict := "equal"
			if t.Missing+t.Extra+t.Different > 0 {
				verdict = "not equal"
			}
			rows = append(rows, []string{
				r.Projection, show.Count(int64(r.Position)), t.Table, show.Count(t.Rows), show.Count(t.Missing), show.Count(t.Extra),
				show.Count(t.Different), position(t.FirstPosition), verdict,
			})
		}
	}
	err := show.Table(a.Stdout, []show.Column{
		{Title: "projection"},
		{Title: "position", Number: true},
		{Title: "table"},
		{Title: "rows", Number: true},
		{Title: "missing", Number: true},
		{Title: "extra", Number: true},
		{Title: "different", Number: true},
		{Title: "first_position", Number: true},
		{Title: "is"},
	}, rows, "no projections")
	if err != nil {
		return err
	}
	for _, r := range reports {
		for _, t := range r.Tables {
			for _, d := range t.Samples {
				line := fmt.Sprintf("%s: row %s is %s", t.Table, d.Key, d.Kind)
				if len(d.Columns) > 0 {
					line += " in " + strings.Join(d.Columns, ", ")
				}
				fmt.Fprintln(a.Stdout, show.Clean(line))
			}
		}
	}
	return nil
}

func position(p ledger.Position) string {
	if p == 0 {
		return show.Nothing
	}
	return show.Count(int64(p))
}
