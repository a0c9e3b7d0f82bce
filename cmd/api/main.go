// Command api is the HTTP door of Triprize: it accepts work as jobs and answers
// what can be read. Run as many as you like.
package main

import (
	"context"
	"flag"

	"triprize/internal/entry/boot"
	"triprize/internal/entry/httpapi"
)

func main() {
	flags := flag.NewFlagSet("api", flag.ExitOnError)
	boot.Main("api", flags, func(ctx context.Context, p *boot.Process) error {
		key, err := p.DrawKey()
		if err != nil {
			return err
		}
		server, err := httpapi.New(p.Settings, p.DB, p.Redis, p.Locks, key, p.Logger, p.Registry, p.Checks) //nolint:contextcheck // requests have contexts of their own
		if err != nil {
			return err
		}
		return server.Run(ctx)
	})
}
