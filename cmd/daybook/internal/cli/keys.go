package cli

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
)

// digestPrefix is what may stand for keys on the command line.
var digestPrefix = regexp.MustCompile(`^[0-9a-f]{1,12}$`)

func checkDigestPrefix(prefix string) error {
	if prefix == "" || digestPrefix.MatchString(prefix) {
		return nil
	}
	// What was given may be a key, so it is not repeated.
	return usagef("a key itself goes to daybook keys explain, on standard input", "a digest prefix is 1 to 12 lower-case hex digits")
}

func (a *app) keysCommand() *cobra.Command {
	var filter projections.KeyFilter
	var before int64
	cmd := &cobra.Command{
		Use:     "keys [DIGEST-PREFIX]",
		Short:   "Show keys: what they stand for and what was decided about them",
		GroupID: groupLook,
		Long: `Shows view_key: the keys whose digest begins with the given hex digits, or the newest ones. Replays leave no event,
so they are not counted.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				filter.KeyDigest = strings.ToLower(args[0])
			}
			if err := checkDigestPrefix(filter.KeyDigest); err != nil {
				return err
			}
			if err := checkLimit(filter.Limit); err != nil {
				return err
			}
			filter.Before = ledger.Position(before)
			return a.withPool(cmd.Context(), func(pool *pgxpool.Pool) error { return a.keyViews(cmd.Context(), pool, filter) })
		},
	}
	cmd.Flags().StringVar(&filter.Scope, "scope", "", "only keys of this scope")
	cmd.Flags().Int64Var(&before, "before", 0, "only keys whose first event is before this position: to read on")
	cmd.Flags().IntVar(&filter.Limit, "limit", projections.DefaultLimit, "at most so many")
	cmd.AddCommand(a.explainCommand())
	return cmd
}

func checkLimit(limit int) error {
	if limit < 1 || limit > projections.MaxLimit {
		return usagef("", "--limit is %d, must be 1 to %d", limit, projections.MaxLimit)
	}
	return nil
}

func (a *app) keyViews(ctx context.Context, pool *pgxpool.Pool, filter projections.KeyFilter) error {
	keys, err := projections.Keys(ctx, pool, filter)
	if err != nil {
		return err
	}
	if a.json {
		err = show.Document(a.Stdout, struct {
			Keys []projections.KeyView `json:"keys"`
		}{append([]projections.KeyView{}, keys...)})
	} else {
		err = a.keyTable(keys)
	}
	if err != nil {
		return err
	}
	return a.noteLag(ctx, pool, "view_key")
}

func (a *app) keyTable(keys []projections.KeyView) error {
	var rows [][]string
	for _, k := range keys {
		rows = append(rows, []string{
			string(k.KeyDigest), show.Or(k.KeyPreview), k.Scope, k.JobID.String(), show.Or(k.Mode),
			fmt.Sprint(k.Accepted), fmt.Sprint(k.Replaced), fmt.Sprint(k.NonReplaceable + k.Conflicts),
			k.LastOutcome, show.Time(k.LastDecisionAt), show.Time(k.ExpiresAt), show.Or(k.EndedAs),
		})
	}
	return show.Table(a.Stdout, []show.Column{
		{Title: "key_digest"},
		{Title: "key_preview"},
		{Title: "scope"},
		{Title: "job_id"},
		{Title: "mode"},
		{Title: "accepted", Number: true},
		{Title: "replaced", Number: true},
		{Title: "refused", Number: true},
		{Title: "last_outcome"},
		{Title: "last_decision_at"},
		{Title: "expires_at"},
		{Title: "ended_as"},
	}, rows, "no keys")
}
