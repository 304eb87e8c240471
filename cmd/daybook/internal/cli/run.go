package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// World is what a run sees of the process around it.
type World struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// LookupEnv is os.LookupEnv.
	LookupEnv func(name string) (string, bool)
}

// app is one run of the tool: the world and the flags of every command.
type app struct {
	World
	databaseURL string
	json        bool
	// began is set when a command's own work begins: errors before that are about how it was called.
	began bool
}

// Run runs the tool with the arguments after its name and returns the exit code. When ctx ends, commands that run
// until then end with [ExitOK], and the others with [ExitInterrupted].
func Run(ctx context.Context, args []string, world World) int {
	a := &app{World: world}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(world.Stdin)
	root.SetOut(world.Stdout)
	root.SetErr(world.Stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	f := a.diagnose(ctx, err)
	if f.message != "" {
		fmt.Fprintf(world.Stderr, "error: %s\n", f.message)
	}
	if f.hint != "" {
		fmt.Fprintf(world.Stderr, "hint: %s\n", f.hint)
	}
	return f.code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "daybook",
		Short: "An event-sourced enqueue ledger with an outbox, for PostgreSQL",
		Long: `Daybook accepts work inside an application's own transaction, under an idempotency key,
and appends what PostgreSQL decided to an immutable ledger. This is its tool for operators.

The database is named by --database-url or DATABASE_URL; daybook dev starts one to try things on.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			a.began = true
		},
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.databaseURL, "database-url", "", "PostgreSQL's URL (default: the variable DATABASE_URL)")
	flags.BoolVar(&a.json, "json", false, "write JSON instead of tables")
	root.AddGroup(
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupAct, Title: "Act:"},
		&cobra.Group{ID: groupSetUp, Title: "Set up:"},
	)
	root.AddCommand(
		a.migrateCommand(), a.devCommand(),
		a.enqueueCommand(), a.projectCommand(), a.rebuildCommand(), a.maintainCommand(),
		a.eventsCommand(), a.keysCommand(), a.jobsCommand(), a.conflictsCommand(), a.ratesCommand(), a.statusCommand(), a.verifyCommand(),
		a.relayCommand(), a.parkedCommand(), a.asyncAPICommand(), a.doctorCommand(),
		exitCodesTopic(),
	)
	return root
}

// The groups of commands in the help.
const (
	groupLook  = "look"
	groupAct   = "act"
	groupSetUp = "set-up"
)

// stopped reports whether err is only that the user ended a command that runs until then.
func stopped(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled))
}
