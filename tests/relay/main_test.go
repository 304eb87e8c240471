// Package relay_test tests the relay of package outbox: against PostgreSQL, against a broker that does what the test
// wants, and against a real NATS JetStream.
package relay_test

import (
	"os"
	"testing"

	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) {
	// The test that kills a relay starts this binary once more.
	if url := os.Getenv(victimURL); url != "" {
		os.Exit(relayUntilKilled(url, os.Getenv(victimFile)))
	}
	pgtest.Main(m)
}
