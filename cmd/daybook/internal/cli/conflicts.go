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

func (a *app) conflictsCommand() *cobra.Command {
	var filter projections.ConflictFilter
	var after int64
	var oldest bool
	cmd := &cobra.Command{
		Use:     "conflicts",
		Short:   "Show keys that were used again for different work",
		GroupID: groupLook,
		Long: `Shows view_conflict: each recorded rejection, the newest first, with the names of the fields that differ. Values are kept
nowhere. The same request rejected again leaves no second row.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter.KeyDigest = strings.ToLower(filter.KeyDigest)
			if err := checkDigestPrefix(filter.KeyDigest); err != nil {
				return err
			}
			if err := checkLimit(filter.Limit); err != nil {
				return err
			}
			filter.After, filter.Newest = ledger.Position(after), !oldest
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error { return a.conflicts(cmd.Context(), pool, filter) })
		},
	}
	cmd.Flags().StringVar(&filter.Scope, "scope", "", "only keys of this scope")
	cmd.Flags().StringVar(&filter.KeyDigest, "key-digest", "", "only keys whose digest begins with these hex digits")
	cmd.Flags().Int64Var(&after, "after", 0, "only conflicts beyond this position")
	cmd.Flags().BoolVar(&oldest, "oldest", false, "the oldest first")
	cmd.Flags().IntVar(&filter.Limit, "limit", projections.DefaultLimit, "at most so many")
	return cmd
}

func (a *app) conflicts(ctx context.Context, pool *pgxpool.Pool, filter projections.ConflictFilter) error {
	conflicts, err := projections.Conflicts(ctx, pool, filter)
	if err != nil {
		return err
	}
	if a.json {
		err = show.Document(a.Stdout, struct {
			Conflicts []projections.Conflict `json:"conflicts"`
		}{append([]projections.Conflict{}, conflicts...)})
	} else {
		err = a.conflictTable(conflicts)
	}
	if err != nil {
		return err
	}
	return a.noteLag(ctx, pool, "view_conflict")
}

func (a *app) conflictTable(conflicts []projections.Conflict) error {
	var rows [][]string
	for _, c := range conflicts {
		rows = append(rows, []string{
			fmt.Sprint(c.Position), show.Time(c.RejectedAt), string(c.KeyDigest), show.Or(c.KeyPreview), c.Scope,
			c.ExistingJobID.String(), c.Queue, c.Type, strings.Join(c.Fields, ", "),
		})
	}
	return show.Table(a.Stdout, []show.Column{
		{Title: "position", Number: true},
		{Title: "rejected_at"},
		{Title: "key_digest"},
		{Title: "key_preview"},
		{Title: "scope"},
		{Title: "existing_job_id"},
		{Title: "queue"},
		{Title: "type"},
		{Title: "fields"},
	}, rows, "no conflicts")
}
