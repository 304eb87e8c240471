package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
)

// rebuilding is one run of daybook rebuild.
type rebuilding struct {
	*app
	config             projections.RebuildConfig
	all, dry, onlyDrop bool
	chosen             []projections.Projection
}

func (a *app) rebuildCommand() *cobra.Command {
	r := rebuilding{app: a}
	cmd := &cobra.Command{
		Use:     "rebuild {NAME... | --all}",
		Short:   "Build projections anew beside the live ones, and swap the two",
		GroupID: groupAct,
		Long: `Fills new tables from position 1, catches up, and puts them in the place of the live ones in one short transaction.
Runners go on meanwhile, readers never see a half-built view, and nothing is published. Interrupted, it goes on from
there the next time. Several are filled together, so that the ledger is read once, and one that fails does not hold up
the others.

The old tables stay in the schema daybook_old until the next rebuild, or until --only-drop-old; with --drop-old they
go in the swap. With --dry-run it changes nothing: it checks what it would check, folds a sample, and says between which
two times it should take: with the folding shared evenly by --slices, and with nothing gained by them.

The user needs to be a member of daybook_relay and of daybook_owner.`,
		ValidArgs: projectionNames(),
		RunE: func(cmd *cobra.Command, names []string) (err error) {
			switch {
			case len(names) == 0 && !r.all:
				return usagef("name one, or give --all", "no projection to rebuild")
			case len(names) > 0 && r.all:
				return usagef("without names it takes all", "--all and names contradict each other")
			case r.dry && (r.onlyDrop || r.config.DropOld) || r.onlyDrop && r.config.DropOld:
				return usagef("give one of them", "--dry-run, --drop-old and --only-drop-old contradict one another")
			case r.config.BatchSize < 1 || r.config.BatchSize > ledger.MaxPage:
				return usagef("", "--batch is %d, must be 1 to %d", r.config.BatchSize, ledger.MaxPage)
			case r.config.Slices < 0 || r.config.Slices > projections.MaxSlices:
				return usagef("", "--slices is %d, must be 1 to %d", r.config.Slices, projections.MaxSlices)
			}
			if r.chosen, err = chosenProjections(names); err != nil {
				return err
			}
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error {
				switch {
				case r.dry:
					return r.plan(cmd.Context(), pool)
				case r.onlyDrop:
					return r.dropOld(cmd.Context(), pool)
				}
				return r.run(cmd.Context(), pool)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&r.all, "all", false, "all projections")
	flags.BoolVar(&r.dry, "dry-run", false, "say what it would do and how long it would take, and change nothing")
	flags.BoolVar(&r.config.DropOld, "drop-old", false, "drop the old tables in the swap")
	flags.BoolVar(&r.onlyDrop, "only-drop-old", false, "rebuild nothing: drop the old tables that the last rebuild has left")
	flags.BoolVar(&r.config.Restart, "restart", false, "throw away what an unfinished rebuild has left")
	flags.IntVar(&r.config.BatchSize, "batch", projections.DefaultRebuildBatch, "how many positions are folded in one transaction")
	flags.IntVar(&r.config.Slices, "slices", 0, "how many transactions fold at once (default: by the number of processors)")
	return cmd
}

type rebuildReport struct {
	Projection string          `json:"projection"`
	Version    int             `json:"version"`
	ResumedAt  ledger.Position `json:"resumed_at"`
	Position   ledger.Position `json:"position"`
	Swapped    bool            `json:"swapped"`
	OldSchema  string          `json:"old_schema,omitempty"`
	Seconds    float64         `json:"seconds"`
	Error      string          `json:"error,omitempty"`
}

func (r *rebuilding) run(ctx context.Context, pool *pgxpool.Pool) error {
	about := "rebuilding"
	if len(r.chosen) == 1 {
		about += " " + r.chosen[0].Name
	}
	meter := show.NewMeter(r.Stderr, about)
	r.config.Progress = func(p projections.Progress) {
		meter.Report(show.Progress{
			Done: int64(p.Position), Of: int64(p.Head), Percent: p.Percent, Rate: p.Rate, Left: p.TimeLeft,
		})
	}
	r.config.Stage = func(_ string, stage projections.Stage) {
		if stage != projections.StageFill {
			meter.End() // what follows has no progress to show
		}
	}
	results, err := projections.RebuildAll(ctx, pool, r.chosen, r.config)
	meter.End()
	// What was rebuilt is worth knowing also where another one has failed.
	if shown := r.show(results); err == nil {
		err = shown
	}
	return err
}

func (r *rebuilding) show(results []projections.RebuildResult) error {
	var reports []rebuildReport
	for _, result := range results {
		report := rebuildReport{
			result.Projection, result.Version, result.ResumedAt, result.Position, result.Swapped, result.OldSchema, result.Took.Seconds(), "",
		}
		if result.Err != nil {
			report.Error = show.OneLine(result.Err.Error())
		}
		reports = append(reports, report)
		if !r.json && result.Swapped {
			r.write(result)
		}
	}
	switch {
	case !r.json || len(reports) == 0:
		return nil
	case len(reports) == 1 && !r.all && reports[0].Error != "":
		return nil // the error says all
	case len(reports) == 1 && !r.all:
		return show.Document(r.Stdout, reports[0])
	}
	return show.Document(r.Stdout, struct {
		Rebuilt []rebuildReport `json:"rebuilt"`
	}{reports})
}

func (r *rebuilding) write(result projections.RebuildResult) {
	fmt.Fprintf(r.Stdout, "%s version %d is rebuilt up to position %d, in %s\n",
		result.Projection, result.Version, result.Position, show.Age(result.Took.Round(time.Millisecond)))
	if result.ResumedAt > 0 {
		fmt.Fprintf(r.Stdout, "it went on from position %d, where an earlier rebuild had stopped\n", result.ResumedAt)
	}
	if result.OldSchema != "" {
		fmt.Fprintf(r.Stdout, "the old tables are in schema %s until the next rebuild\n", result.OldSchema)
	}
}

type dropReport struct {
	Projection string   `json:"projection"`
	Tables     []string `json:"tables"`
}

func (r *rebuilding) dropOld(ctx context.Context, pool *pgxpool.Pool) (err error) {
	reports := []dropReport{}
	for _, p := range r.chosen {
		var tables []string
		if tables, err = projections.DropOld(ctx, pool, p); err != nil {
			break
		}
		reports = append(reports, dropReport{p.Name, append([]string{}, tables...)})
		if r.json {
			continue
		}
		for _, table := range tables {
			fmt.Fprintf(r.Stdout, "dropped %s\n", show.Clean(table))
		}
		if len(tables) == 0 {
			fmt.Fprintf(r.Stdout, "%s has no old tables\n", p.Name)
		}
	}
	// What was dropped is worth knowing also where another one has failed.
	if r.json && len(reports) > 0 {
		err = errors.Join(err, show.Document(r.Stdout, struct {
			Dropped []dropReport `json:"dropped"`
		}{reports}))
	}
	return err
}

type planReport struct {
	Projection      string          `json:"projection"`
	Version         int             `json:"version"`
	LiveVersion     int             `json:"live_version"`
	Head            ledger.Position `json:"head"`
	ResumesAt       ledger.Position `json:"resumes_at"`
	Events          int64           `json:"events"`
	LiveBytes       int64           `json:"live_bytes"`
	EventsPerSecond float64         `json:"events_per_second"`
	Slices          int             `json:"slices"`
	FoldSeconds     float64         `json:"fold_seconds"`
	IndexSeconds    float64         `json:"index_seconds"`
	ShortestSeconds float64         `json:"shortest_seconds"`
	LongestSeconds  float64         `json:"longest_seconds"`
}

func (r *rebuilding) plan(ctx context.Context, pool *pgxpool.Pool) error {
	var reports []planReport
	var rows [][]string
	for _, projection := range r.chosen {
		p, err := projections.DryRun(ctx, pool, projection, r.config)
		if err != nil {
			return err
		}
		reports = append(reports, planReport{
			p.Projection, p.Version, p.LiveVersion, p.Head, p.ResumesAt, p.Events, p.LiveBytes, p.Rate,
			p.Slices, p.Fold.Seconds(), p.Indexes.Seconds(), p.Shortest.Seconds(), p.Longest.Seconds(),
		})
		rows = append(rows, []string{
			p.Projection, fmt.Sprint(p.LiveVersion), fmt.Sprint(p.Version), show.Count(int64(p.Head - p.ResumesAt)), show.Count(p.Events),
			show.Count((p.LiveBytes + 1<<20 - 1) >> 20), show.Count(int64(p.Rate)), fmt.Sprint(p.Slices),
			show.Age(p.Shortest.Round(time.Millisecond)), show.Age(p.Longest.Round(time.Millisecond)),
		})
	}
	if r.json {
		return show.Document(r.Stdout, struct {
			Plans []planReport `json:"plans"`
		}{reports})
	}
	err := show.Table(r.Stdout, []show.Column{
		{Title: "projection"},
		{Title: "live", Number: true},
		{Title: "version", Number: true},
		{Title: "positions", Number: true},
		{Title: "events", Number: true},
		{Title: "live_mib", Number: true},
		{Title: "per_second", Number: true},
		{Title: "slices", Number: true},
		{Title: "shortest"},
		{Title: "longest"},
	}, rows, "")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(r.Stdout, "each by itself, its indexes included; events appended meanwhile, and waiting for disks and the swap's locks, are not")
	return err
}
