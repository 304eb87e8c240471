// Package projections_test runs the views of the ledger against a PostgreSQL.
package projections_test

import (
	"os"
	"testing"

	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(victimURL); url != "" {
		os.Exit(rebuildUntilKilled(url))
	}
	pgtest.Main(m)
}
