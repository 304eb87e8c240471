package cli

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/migrations"
)

func (a *app) migrateCommand() *cobra.Command {
	var print bool
	cmd := &cobra.Command{
		Use:     "migrate",
		Short:   "Bring the database to the schema of this daybook",
		GroupID: groupSetUp,
		Long: `Applies all pending migrations in one transaction. Processes that start at once wait for one another.

The user must be a superuser, or have CREATEROLE and CREATE on the database. With --print nothing is applied: the
migrations are written as one SQL script, for those who apply migrations with a tool of their own.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if print {
				return migrations.Print(a.Stdout)
			}
			return a.migrate(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&print, "print", false, "write the migrations as SQL and apply none")
	return cmd
}

type appliedMigration struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
}

func (a *app) migrate(ctx context.Context) error {
	return a.withConn(ctx, func(conn *pgx.Conn) error {
		result, err := migrations.Up(ctx, conn)
		if err != nil {
			return err
		}
		applied := []appliedMigration{}
		for _, m := range result.Applied {
			applied = append(applied, appliedMigration{m.Version, m.Name})
		}
		if a.json {
			return show.Document(a.Stdout, struct {
				Version int                `json:"version"`
				Applied []appliedMigration `json:"applied"`
			}{result.Version, applied})
		}
		for _, m := range applied {
			fmt.Fprintf(a.Stdout, "applied %04d %s\n", m.Version, m.Name)
		}
		_, err = fmt.Fprintf(a.Stdout, "schema is at version %d, %s applied\n", result.Version, show.Plural(int64(len(applied)), "migration", "migrations"))
		return err
	})
}
