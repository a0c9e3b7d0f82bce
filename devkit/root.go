package devkit

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"triprize/internal/domain/buildinfo"
)

// Run runs the tool with the arguments of the command line and returns its exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "triprize-dev",
		Short:         "Develop with Triprize: the whole system on this machine, a demo, a sandbox, tokens",
		Version:       buildinfo.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(devCommand(), demoCommand(), sandboxCommand(), tokenCommand(), withServersCommand())
	root.SetVersionTemplate(buildinfo.Line("triprize-dev") + "\n")
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "triprize-dev:", err)
		return 1
	}
	return 0
}

// say writes a line for people.
func say(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
