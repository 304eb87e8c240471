package tests

import (
	"fmt"
	"os"
	"testing"

	"github.com/daybook-go/daybook/tests/pgtest"
)

// helperVariable makes the test binary play another program: one that a test starts, and kills.
const helperVariable = "DAYBOOK_TESTS_HELPER"

func TestMain(m *testing.M) {
	switch name := os.Getenv(helperVariable); name {
	case "":
		pgtest.Main(m)
	case "start a server":
		startServerAndHang()
	default:
		fmt.Fprintln(os.Stderr, "no such helper:", name)
		os.Exit(2)
	}
}
