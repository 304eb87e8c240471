package commands_test

import (
	"testing"

	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
