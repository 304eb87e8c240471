// Package projections_test runs the views of the ledger against a PostgreSQL.
package projections_test

import (
	"testing"

	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
