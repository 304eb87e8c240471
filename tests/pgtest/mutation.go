package pgtest

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
)

// mutationVariable names a file of SQL that is run in each database after it was migrated. The command tests/mutation
// breaks functions of the ledger with it, to see whether the tests notice.
const mutationVariable = "DAYBOOK_TEST_MUTATION"

// mutate runs that file, where there is one.
func mutate(ctx context.Context, url string) error {
	path := os.Getenv(mutationVariable)
	if path == "" {
		return nil
	}
	statements, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", mutationVariable, err)
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, string(statements)); err != nil {
		return fmt.Errorf("%s: %w", mutationVariable, err)
	}
	return nil
}
