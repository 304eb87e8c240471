// Package jobs_test tests, on a real PostgreSQL, what becomes of accepted work: debounce and throttle, the life of a
// job, purge, key release, redrive and maintenance, and a model of all of it (DESIGN §4).
//
// Race tests run for a moment in go test ./... and as long as DAYBOOK_SOAK says, for example 60s each.
package jobs_test

import (
	"testing"

	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
