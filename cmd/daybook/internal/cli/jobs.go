package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
)

func (a *app) jobsCommand() *cobra.Command {
	var filter projections.JobFilter
	var before int64
	cmd := &cobra.Command{
		Use:     "jobs [JOB-ID]",
		Short:   "Show jobs: where they are and when they came there",
		GroupID: groupLook,
		Long: `Shows view_job: one job, or the newest ones first. Jobs that are pruned or purged are still there. Times to come are those
at which a waiting job may run.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 1 {
				// What was given may be a key, so it is not repeated.
				if filter.JobID, err = uuid.Parse(args[0]); err != nil {
					return usagef("a job ID looks like 01890a5d-ac96-774b-bcce-b302099a8057", "that is not a job ID")
				}
			}
			filter.KeyDigest = strings.ToLower(filter.KeyDigest)
			if err := checkDigestPrefix(filter.KeyDigest); err != nil {
				return err
			}
			if filter.State != "" && !slices.Contains(projections.JobStates(), filter.State) {
				return usagef("they are "+strings.Join(projections.JobStates(), ", "), "--state is none of a job's states")
			}
			if err := checkLimit(filter.Limit); err != nil {
				return err
			}
			filter.Before = ledger.Position(before)
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error { return a.jobs(cmd.Context(), pool, filter) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.State, "state", "", "only jobs in this state: "+strings.Join(projections.JobStates(), ", "))
	flags.StringVar(&filter.Queue, "queue", "", "only jobs of this queue")
	flags.StringVar(&filter.Type, "type", "", "only jobs of this type")
	flags.StringVar(&filter.KeyDigest, "key-digest", "", "only jobs of keys whose digest begins with these hex digits")
	flags.Int64Var(&before, "before", 0, "only jobs whose first event is before this position: to read on")
	flags.IntVar(&filter.Limit, "limit", projections.DefaultLimit, "at most so many")
	return cmd
}

func (a *app) jobs(ctx context.Context, pool *pgxpool.Pool, filter projections.JobFilter) error {
	jobs, err := projections.Jobs(ctx, pool, filter)
	if err != nil {
		return err
	}
	if a.json {
		err = show.Document(a.Stdout, struct {
			Jobs []projections.JobView `json:"jobs"`
		}{append([]projections.JobView{}, jobs...)})
	} else {
		err = a.jobTable(jobs)
	}
	if err != nil {
		return err
	}
	return a.noteLag(ctx, pool, "view_job")
}

func (a *app) jobTable(jobs []projections.JobView) error {
	at := func(t *time.Time) string {
		if t == nil {
			return show.Nothing
		}
		return show.Time(*t)
	}
	var rows [][]string
	for _, j := range jobs {
		rows = append(rows, []string{
			j.JobID.String(), j.State, fmt.Sprintf("%d of %d", j.Attempt, j.AttemptBudget), j.Queue, j.Type,
			show.Or(string(j.KeyDigest)), at(j.AcceptedAt), at(j.StartedAt), at(j.FinishedAt), at(j.NextRunAt),
		})
	}
	return show.Table(a.Stdout, []show.Column{
		{Title: "job_id"},
		{Title: "state"},
		{Title: "attempts"},
		{Title: "queue"},
		{Title: "type"},
		{Title: "key_digest"},
		{Title: "accepted_at"},
		{Title: "started_at"},
		{Title: "finished_at"},
		{Title: "next_run_at"},
	}, rows, "no jobs")
}
