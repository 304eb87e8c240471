// Package outbox_test tests package outbox against PostgreSQL.
package outbox_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) {
	// The test that kills a subscriber starts this binary once more.
	if os.Getenv(victimURL) != "" {
		fmt.Fprintln(os.Stderr, subscribeUntilKilled())
		os.Exit(1)
	}
	pgtest.Main(m)
}
