package console

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"triprize.example/client"
	"triprize/internal/domain/fault"
)

// mountNow registers the page that says whether anything is wrong.
func (c *console) mountNow(r fiber.Router) {
	c.livePage(r, "/now", "now", "", "Now", func(ctx context.Context, api *client.Client, _ string) (any, error) {
		status, err := api.GetStatus(ctx)
		if err != nil {
			return nil, err
		}
		sweeps, err := api.ListSweeps(ctx)
		return struct {
			client.Status
			Sweeps []client.Sweep
		}{status, sweeps.Sweeps}, err
	}, nil)
	c.live(r, "/now/curves", "curves", "", func(context.Context, *client.Client, string) (any, error) { return c.Curves.json() })
	c.act(r, "/sweeps/:sweep", "swept", func(f *fiber.Ctx) (action, command, error) {
		name := f.Params("sweep")
		return action{Path: f.Path(), Title: "Run the sweep " + name, Text: "It runs now, beside the scheduler. Running it twice at once does no harm.", Fields: []field{reason}, Back: Path + "/now"},
			func(ctx context.Context, api *client.Client, _ *form, options ...client.CallOption) error {
				report, err := api.RunSweep(ctx, name, options...)
				if err == nil && report.Error != "" {
					err = fault.New(fault.Unavailable, "%s", report.Error)
				}
				return err
			}, nil
	})
}

// Sample is one point of the curves: its time, purchases and refusals a second, milliseconds to final (p99), backlog. Nil: not known.
type Sample [5]*float64

// Curves are the samples of the last hour, the oldest first. They are gone at a restart.
type Curves struct {
	mu      sync.Mutex
	samples []Sample
}

// Run takes a sample every ten seconds until ctx ends.
func (c *Curves) Run(ctx context.Context, read func(context.Context) Sample) {
	ticker := time.NewTicker(10 * time.Second)
	defer ticker.Stop()
	for ctx.Err() == nil {
		c.add(read(ctx))
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (c *Curves) add(s Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s[0] = new(float64(time.Now().Unix()))
	c.samples = append(c.samples[max(0, len(c.samples)-359):], s) // 360 are an hour
}

func (c *Curves) json() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return json.Marshal(c.samples)
}
