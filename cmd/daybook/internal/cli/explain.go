package cli

import (
	"context"
	_ "embed" // the statements
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

var (
	//go:embed sql/explain_bindings.sql
	explainBindingsSQL string
	//go:embed sql/explain_events.sql
	explainEventsSQL string
)

func (a *app) explainCommand() *cobra.Command {
	var k keyFlags
	var scope string
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show what a key is bound to, and its timeline",
		Long: `Hashes a key in this process, under each secret of the ring, and shows its binding and the events about it.

The key is read from standard input unless --key-file or --key-env names another source; one line break at its end does
not belong to it. Only its hash is sent. Its hash depends on its scope and on the secret: where nothing is found, look
at those first.`,
		Example: `  daybook keys explain --scope payments --secret-file hmac.secret < key.txt`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if k.given() == 0 {
				k.stdin = true
			}
			return a.explain(cmd.Context(), &k, scope)
		},
	}
	k.add(cmd.Flags())
	cmd.Flags().StringVar(&scope, "scope", commands.DefaultScope, "name space of the key")
	return cmd
}

// explanation is what is known of one key.
type explanation struct {
	Scope      string             `json:"scope"`
	KeyDigests []ledger.KeyDigest `json:"key_digests"`
	KeyPreview string             `json:"key_preview"`
	Bindings   []binding          `json:"bindings"`
	Events     []event            `json:"events"`

	hashedWith string
}

type binding struct {
	KeyDigest     string    `json:"key_digest"`
	KeyPreview    string    `json:"key_preview"`
	Scope         string    `json:"scope"`
	Mode          string    `json:"mode"`
	JobID         uuid.UUID `json:"job_id"`
	JobState      *string   `json:"job_state"`
	RequestDigest string    `json:"request_digest"`
	BoundAt       time.Time `json:"bound_at"`
	ExpiresAt     time.Time `json:"expires_at"`
	Live          bool      `json:"live"`
	// Alias is a binding under a secret that was not the current one.
	Alias bool `json:"alias"`
}

func (a *app) explain(ctx context.Context, k *keyFlags, scope string) error {
	if problem := ledger.CheckScope(scope); problem != "" {
		return usagef("", "--scope %s", problem)
	}
	keys, err := a.keys(k)
	if err != nil {
		return err
	}
	key, err := a.key(k)
	if err != nil {
		return err
	}
	current, others := keys.Hash(scope, key)
	hashes := append([]ledger.KeyHash{current}, others...)
	x := explanation{Scope: scope, KeyPreview: ledger.KeyPreview(key)}
	sent := make([][]byte, len(hashes))
	for i := range hashes {
		x.KeyDigests = append(x.KeyDigests, hashes[i].Digest())
		sent[i] = hashes[i][:]
	}
	x.hashedWith = keys.String()
	return a.withPool(ctx, func(pool *pgxpool.Pool) error {
		if err := sequence(ctx, pool); err != nil {
			return err
		}
		if err := x.read(ctx, pool, sent); err != nil {
			return fmt.Errorf("explain the key: %w", err)
		}
		if a.json {
			return show.Document(a.Stdout, x)
		}
		return x.write(a)
	})
}

func (x *explanation) read(ctx context.Context, db ledger.Querier, hashes [][]byte) error {
	rows, err := db.Query(ctx, explainBindingsSQL, hashes)
	if err != nil {
		return err
	}
	x.Bindings, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (binding, error) {
		b, err := pgx.RowToStructByPos[binding](row)
		b.BoundAt, b.ExpiresAt = b.BoundAt.UTC(), b.ExpiresAt.UTC()
		return b, err
	})
	if err != nil {
		return err
	}
	if rows, err = db.Query(ctx, explainEventsSQL, hashes); err != nil {
		return err
	}
	x.Events, err = pgx.CollectRows(rows, scanEvent)
	return err
}

func (x *explanation) write(a *app) error {
	fmt.Fprintf(a.Stdout, "key %s in scope %s\n", show.Clean(x.KeyPreview), show.Clean(x.Scope))
	for i, digest := range x.KeyDigests {
		note := x.hashedWith
		switch {
		case i > 0:
			note = "under another secret of the ring"
		case len(x.KeyDigests) > 1:
			note += ", under the current one"
		}
		fmt.Fprintf(a.Stdout, "  %s  %s\n", digest, note)
	}
	fmt.Fprintln(a.Stdout, "\nbinding")
	var bindings [][]string
	for _, b := range x.Bindings {
		state, note := show.Nothing, "live"
		if b.JobState != nil {
			state = *b.JobState
		}
		if !b.Live {
			note = "expired"
		}
		if b.Alias {
			note += ", alias"
		}
		bindings = append(bindings, []string{b.KeyDigest, b.Mode, b.JobID.String(), state, show.Time(b.BoundAt), show.Time(b.ExpiresAt), note})
	}
	err := show.Table(a.Stdout, []show.Column{
		{Title: "key_digest"}, {Title: "mode"}, {Title: "job_id"}, {Title: "state"}, {Title: "bound_at"}, {Title: "expires_at"}, {Title: "is"},
	}, bindings, "none: the key is free (under this scope and these secrets)")
	if err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout, "\ntimeline")
	var events [][]string
	for _, e := range x.Events {
		events = append(events, []string{fmt.Sprint(e.Position), show.Time(e.RecordedAt), string(e.Kind), e.job(), e.gist()})
	}
	return show.Table(a.Stdout, []show.Column{
		{Title: "position", Number: true}, {Title: "recorded_at"}, {Title: "kind"}, {Title: "job_id"}, {Title: "about"},
	}, events, "none: the ledger has no event about this key")
}
