// Command scheduler runs the sweeps: at their intervals, or once, for cron.
//
//	scheduler                          at intervals, while it leads all schedulers
//	scheduler --once                   every sweep once, without the leader's lock
//	scheduler --once --sweep lost-jobs one sweep once
//
// With --once it prints a report as JSON; the status is 1 when a sweep failed.
package main

import (
	"context"
	"errors"
	"flag"
	"os"

	"triprize/internal/entry/boot"
)

func main() {
	flags := flag.NewFlagSet("scheduler", flag.ExitOnError)
	once := flags.Bool("once", false, "run the sweeps once, even if another scheduler leads, print a report as JSON and exit")
	only := flags.String("sweep", "", "with --once: run only the sweep of this name")
	boot.Main("scheduler", flags, func(ctx context.Context, p *boot.Process) error {
		switch {
		case *once:
			return boot.SweepOnce(ctx, p, *only, os.Stdout)
		case *only != "":
			return errors.New("--sweep needs --once")
		}
		return boot.Scheduler(ctx, p)
	})
}
