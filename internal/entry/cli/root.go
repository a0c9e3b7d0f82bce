package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"triprize.example/draw/command"
	"triprize/internal/domain/buildinfo"
)

// Run runs the tool with the arguments of the command line and returns its exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "triprize",
		Short:         "Operate Triprize: see what is wrong and what happened, migrate, manage keys and audit",
		Version:       buildinfo.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(migrateCommand(), keyCommand(), withProgress(auditCommand()), findCommand(), readyCommand(), withProgress(command.New("verify")))
	root.AddCommand(append(showCommands(), approvalsCommand(), booksCommand(), statusCommand(), failedCommand(), doctorCommand(), exportCommand())...)
	root.SetVersionTemplate(buildinfo.Line("triprize") + "\n")
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "triprize:", err)
		return statusOf(err)
	}
	return 0
}

// statusError is an error that ends the tool with another status than 1.
type statusError struct {
	error
	status int
}

// statusOf returns the exit status that an error ends the tool with.
func statusOf(err error) int {
	if with, ok := errors.AsType[*statusError](err); ok {
		return with.status
	}
	return command.Status(err) // of verify; any other error is a 1 there
}

// undecided is the exit status of a check that could not be made; 1 is that of a failed check.
const undecided = 2

func undecidedIf(err error) error {
	if _, decided := errors.AsType[*statusError](err); decided || err == nil {
		return err
	}
	return &statusError{err, undecided}
}

// checks makes errors of a command end with undecided, also those of its arguments and flags, if they have no
// status.
func checks(c *cobra.Command) *cobra.Command {
	args, run := c.Args, c.RunE
	c.Args = func(cmd *cobra.Command, list []string) error { return undecidedIf(args(cmd, list)) }
	c.RunE = func(cmd *cobra.Command, list []string) error { return undecidedIf(run(cmd, list)) }
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return undecidedIf(err) })
	return c
}

// Unwrap returns the error.
func (e *statusError) Unwrap() error { return e.error }

// say writes a line for people.
func say(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// group returns a command that only has subcommands.
func group(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%q is not a command of %q; see: %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
		}
		return cmd.Help()
	}}
}

// readyTimeout is longer than the probes of a process take.
const readyTimeout = 5 * time.Second

// readyCommand checks the readiness of a process. It is for health checks in containers,
// whose images have no curl.
func readyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ready URL",
		Short: "Check the readiness of a process at its URL, such as http://127.0.0.1:8080/readyz; status 0 if ready",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), readyTimeout)
			defer cancel()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
			if err != nil {
				return err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("not ready: %s responded with %s", args[0], response.Status)
			}
			return nil
		},
	}
}
