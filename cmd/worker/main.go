// Command worker settles jobs: it sells positions and draws prizes. Run as many
// as you like; they do not fight each other.
package main

import (
	"context"
	"flag"

	"golang.org/x/sync/errgroup"

	"triprize/internal/entry/boot"
	"triprize/internal/entry/worker"
	"triprize/internal/platform/telemetry"
)

func main() {
	flags := flag.NewFlagSet("worker", flag.ExitOnError)
	boot.Main("worker", flags, func(ctx context.Context, p *boot.Process) error {
		key, err := p.DrawKey()
		if err != nil {
			return err
		}
		w := worker.New(p.Settings, p.DB, p.Redis, key, p.Logger, p.Registry)
		p.Logger.Info("working", "lanes", p.Settings.Worker.Lanes, "concurrency", p.Settings.Worker.Concurrency)
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return w.Run(ctx) })
		group.Go(func() error { return telemetry.Serve(ctx, p.Settings.Worker.Listen, p.Checks, p.Registry) })
		return group.Wait()
	})
}
