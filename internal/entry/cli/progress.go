package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// progress shows on a terminal, and never in a pipe, how long what takes, from the second second on. done tells how
// much of total is done; a total of 0 is not known. end removes the line.
func progress(out io.Writer, what string, total int) (done func(n int), end func()) {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return showProgress(out, what, total, time.Tick(time.Second))
	}
	return func(int) {}, func() {}
}

func showProgress(out io.Writer, what string, total int, ticks <-chan time.Time) (done func(n int), end func()) {
	var part atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for seconds := 1; ; seconds++ {
			select {
			case <-stop:
				if seconds > 2 {
					fmt.Fprint(out, "\r\x1b[K")
				}
				return
			case <-ticks:
			}
			share := ""
			if total > 0 {
				share = fmt.Sprintf("%d of %d, ", part.Load(), total)
			}
			if seconds > 1 {
				fmt.Fprintf(out, "\r\x1b[K%s: %s%d s", what, share, seconds)
			}
		}
	}()
	return func(n int) { part.Store(int64(n)) }, func() { close(stop); <-stopped }
}

// withProgress makes c a command that prints its result after the line of its progress.
func withProgress(c *cobra.Command, what string) *cobra.Command {
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		out, result := cmd.OutOrStdout(), new(bytes.Buffer)
		cmd.SetOut(result)
		_, end := progress(cmd.ErrOrStderr(), what, 0)
		err := run(cmd, args)
		end()
		_, copied := result.WriteTo(out)
		return cmp.Or(err, copied)
	}
	return c
}
