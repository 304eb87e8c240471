package cli

import (
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/outbox"
)

func (a *app) asyncAPICommand() *cobra.Command {
	return &cobra.Command{
		Use:     "asyncapi",
		Short:   "Print an AsyncAPI document of the topics and their messages",
		GroupID: groupSetUp,
		Long:    `Prints an AsyncAPI 3.0 document, as JSON: the topic of each kind of event, and the JSON Schema of its bodies.`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			document, err := outbox.AsyncAPI()
			if err != nil {
				return err
			}
			_, err = a.Stdout.Write(document)
			return err
		},
	}
}
