package cli

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Run runs the tool with the arguments of the command line and returns its exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "triprize",
		Short:         "Operate Triprize: migrate, create keys, try it out",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(devCommand(), demoCommand(), sandboxCommand(), migrateCommand(), keyCommand(), auditCommand(), readyCommand(), withServersCommand())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "triprize:", err)
		return 1
	}
	return 0
}

// say writes a line for people.
func say(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// group returns a command that only has subcommands.
func group(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("there is no %q below %q; see: %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
		}
		return cmd.Help()
	}}
}

// configFlag adds --config to commands that read the settings.
func configFlag(c *cobra.Command) *string {
	return c.Flags().String("config", "", "settings file (default: $TRIPRIZE_CONFIG, or none)")
}
