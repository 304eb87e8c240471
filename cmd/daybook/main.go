// Command daybook is the command-line tool and operator console of Daybook. Run `daybook help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/daybook-go/daybook/cmd/daybook/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], cli.World{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv,
	})
	stop()
	os.Exit(code)
}
