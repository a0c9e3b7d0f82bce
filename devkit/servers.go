package devkit

import (
	"errors"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"triprize/devkit/devstack"
)

// withServersCommand is for the Makefile: the tests of all packages share one
// Postgres and one Redis.
func withServersCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "with-servers COMMAND [ARG …]",
		Short:              "Run a command with throw-away test servers (TRIPRIZE_TEST_POSTGRES_URL, TRIPRIZE_TEST_REDIS_URL)",
		Args:               cobra.MinimumNArgs(1),
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			stack, err := devstack.Start(cmd.Context(), devstack.Options{Unsafe: true})
			if err != nil {
				return err
			}
			child := exec.Command(args[0], args[1:]...)
			child.Env = append(os.Environ(), "TRIPRIZE_TEST_POSTGRES_URL="+stack.Postgres.URL("postgres"), "TRIPRIZE_TEST_REDIS_URL="+stack.Redis.URL())
			child.Stdin, child.Stdout, child.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
			return errors.Join(child.Run(), stack.Stop())
		},
	}
}
