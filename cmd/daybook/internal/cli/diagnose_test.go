package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/migrations"
)

// TestDiagnose: what a user can do something about has its exit code and a hint, however deep it is wrapped, and all
// of it fits two lines.
func TestDiagnose(t *testing.T) {
	a := &app{began: true}
	for name, test := range map[string]struct {
		err  error
		code int
		hint string
	}{
		"invalid":    {&commands.InvalidRequestError{Field: "priority", Problem: "is 101"}, ExitUsage, "enqueue --help"},
		"unknown":    {&commands.CallError{Op: "enqueue", Unknown: true}, ExitUnknown, "repeat the request"},
		"known":      {&commands.CallError{Op: "enqueue"}, ExitFailure, ""},
		"changed":    {&migrations.ChangedError{Version: 3, Applied: "a", Embedded: "b"}, ExitFailure, "nothing was changed"},
		"epoch":      {&ledger.EpochError{Name: "view_key"}, ExitFailure, "restored or rewound"},
		"binaries":   {&localpg.NotFoundError{Searched: []string{"the folders of PATH"}}, ExitFailure, "apt-get install postgresql"},
		"no schema":  {&pgconn.PgError{Code: "3F000", Message: "x"}, ExitFailure, "daybook migrate"},
		"no right":   {&pgconn.PgError{Code: "42501", Message: "x"}, ExitFailure, "daybook_operator"},
		"multi-line": {errors.New("one:\n\ttwo\x1b[31m\nthree"), ExitFailure, ""},
		"plain":      {errors.New("daybook: something"), ExitFailure, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := a.diagnose(t.Context(), fmt.Errorf("daybook: outside: %w", test.err))
			if f.code != test.code || !strings.Contains(f.hint, test.hint) || (test.hint == "") != (f.hint == "") {
				t.Errorf("exit code %d, hint %q; want %d, %q", f.code, f.hint, test.code, test.hint)
			}
			if strings.ContainsAny(f.message+f.hint, "\n\x1b") || strings.HasPrefix(f.message, "daybook: ") || f.message == "" {
				t.Errorf("message %q, hint %q", f.message, f.hint)
			}
		})
	}
}

// TestExitCodes: ascending, each once, so that the list can be read as a table.
func TestExitCodes(t *testing.T) {
	last := -1
	for _, c := range ExitCodes() {
		if c.Code <= last || c.Meaning == "" {
			t.Errorf("%+v follows %d", c, last)
		}
		last = c.Code
	}
}
