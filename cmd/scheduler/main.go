// Command scheduler runs the recovery sweeps: on a clock, or once, for cron.
//
//	scheduler                          one leader among all schedulers, on a clock
//	scheduler --once                   every sweep once, whoever leads
//	scheduler --once --sweep lost-jobs one sweep once
//
// With --once a report is printed as JSON; the status is 1 when a sweep failed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"

	"triprize/internal/entry/boot"
	"triprize/internal/entry/scheduler"
	"triprize/internal/maintenance/recovery"
	"triprize/internal/platform/telemetry"
	"triprize/internal/store/inventory"
)

func main() {
	flags := flag.NewFlagSet("scheduler", flag.ExitOnError)
	once := flags.Bool("once", false, "run the sweeps once, whoever leads, print a report as JSON and exit")
	only := flags.String("sweep", "", "with --once: run only the sweep of this name")
	boot.Main("scheduler", flags, func(ctx context.Context, p *boot.Process) error {
		sweeper := recovery.New(p.Settings, p.DB, p.Redis, inventory.NewHoldMetrics(p.Registry), p.Logger)
		s := scheduler.New(sweeper, p.Locks, p.Settings.Scheduler, p.Logger, p.Registry)
		if *once {
			return runOnce(ctx, s, sweeper.Sweeps(), *only)
		}
		if *only != "" {
			return errors.New("--sweep needs --once")
		}
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { s.Run(ctx); return nil })
		group.Go(func() error { return telemetry.Serve(ctx, p.Settings.Scheduler.Listen, p.Checks, p.Registry) })
		return group.Wait()
	})
}

// runOnce runs the named sweep, or all, and prints {"sweeps": [report, …]}.
func runOnce(ctx context.Context, s *scheduler.Scheduler, sweeps []recovery.Sweep, only string) error {
	var names []string
	var reports []recovery.Report
	var failed []error
	for _, sweep := range sweeps {
		names = append(names, sweep.Name)
		if (only == "" || only == sweep.Name) && ctx.Err() == nil {
			report, err := s.RunOnce(ctx, sweep)
			reports, failed = append(reports, report), append(failed, err)
		}
	}
	if len(reports) == 0 {
		return fmt.Errorf("there is no sweep %q; there are: %s", only, strings.Join(names, ", "))
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(map[string]any{"sweeps": reports}); err != nil {
		return err
	}
	return errors.Join(failed...)
}
