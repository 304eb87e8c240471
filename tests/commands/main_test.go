// Package commands_test tests the decision of DESIGN §4 on a real PostgreSQL.
package commands_test

import (
	"testing"

	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
