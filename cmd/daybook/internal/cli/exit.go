package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The exit codes.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitConflict    = 3
	ExitUnequal     = 4
	ExitUnknown     = 5
	ExitInterrupted = 130
)

// ExitCode is one exit code and what it means.
type ExitCode struct {
	Code    int
	Meaning string
}

// ExitCodes returns all exit codes, ascending.
func ExitCodes() []ExitCode {
	return []ExitCode{
		{ExitOK, "done; enqueue: accepted or replayed"},
		{ExitFailure, "failed: the error and a hint are on standard error"},
		{ExitUsage, "called wrongly, or a request out of its bounds; nothing was done"},
		{ExitConflict, "enqueue: the key is bound to different work; the rejection is recorded"},
		{ExitUnequal, "verify: something differs from the ledger; status --check: unhealthy; doctor: something needs you"},
		{ExitUnknown, "enqueue: the answer was lost; repeat the request with its key to learn what was decided"},
		{ExitInterrupted, "interrupted before it was done"},
	}
}

// exitCodesTopic is `daybook help exit-codes`.
func exitCodesTopic() *cobra.Command {
	var text strings.Builder
	text.WriteString("Exit codes of every command:\n\n")
	for _, c := range ExitCodes() {
		fmt.Fprintf(&text, "  %3d  %s\n", c.Code, c.Meaning)
	}
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: strings.TrimRight(text.String(), "\n")}
}

// failure is how a run ends other than well. Without a message it says nothing: the command has said all.
type failure struct {
	code    int
	message string
	hint    string
	cause   error
}

func (f *failure) Error() string { return f.message }

func (f *failure) Unwrap() error { return f.cause }

// usagef says that the command was called wrongly.
func usagef(hint, format string, args ...any) error {
	return &failure{code: ExitUsage, message: fmt.Sprintf(format, args...), hint: hint}
}

// noArgs refuses arguments without repeating them: one may be a key.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("see daybook help "+strings.TrimPrefix(cmd.CommandPath(), "daybook "), "%s takes no arguments, only flags", cmd.CommandPath())
}
