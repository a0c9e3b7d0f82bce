package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// withProgress lets a command that may take long show on a terminal, and never in a pipe, for how long it has run. Its
// result follows.
func withProgress(c *cobra.Command) *cobra.Command {
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		file, ok := cmd.ErrOrStderr().(*os.File)
		if !ok || !term.IsTerminal(int(file.Fd())) {
			return run(cmd, args)
		}
		out, result := cmd.OutOrStdout(), new(bytes.Buffer)
		cmd.SetOut(result)
		end := countSeconds(file, cmd.Name(), time.Tick(time.Second))
		err := run(cmd, args)
		end()
		_, copied := result.WriteTo(out)
		return cmp.Or(err, copied)
	}
	return c
}

// countSeconds writes a line from the second tick on, and removes it at the end.
func countSeconds(out io.Writer, what string, ticks <-chan time.Time) (end func()) {
	var running sync.WaitGroup
	stop := make(chan struct{})
	running.Go(func() {
		for seconds := 1; ; seconds++ {
			select {
			case <-ticks:
			case <-stop:
				fmt.Fprint(out, "\r\x1b[K")
				return
			}
			if seconds > 1 {
				fmt.Fprintf(out, "\r\x1b[K%s: %d s", what, seconds)
			}
		}
	})
	return func() { close(stop); running.Wait() }
}
