package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// longestDraw bounds the wait for a draw.
const longestDraw = time.Minute

// runDraws sells twenty campaigns of 1,275 positions and 50 prizes one after the other, without a
// beacon. It measures from the statement that began a draw, just before the last sale's commit, to
// the record of the draw, by the database's clock.
func runDraws(ctx context.Context, s *setup, _ time.Duration) (result, error) {
	const campaigns, base, positions = 20, 50, 1275
	return s.onSale(ctx, offer{name: "template_draws", baseLengths: slices.Repeat([]int{base}, campaigns)}, func(sys *system) (r result, err error) {
		if err := sys.serve(ctx, 1); err != nil {
			return r, err
		}
		w, seen, took := newWindow(sys.meter()), &observed{}, make([]time.Duration, campaigns)
		closed := w.open()
		for i, id := range sys.campaigns {
			c := sys.crowd(connections)
			c.campaigns, c.requests = sys.campaigns[i:i+1], positions
			seen.add(c.run(ctx, newWindow(nil)))
			var drawn *float64
			for limit := time.Now().Add(longestDraw); drawn == nil; wait(ctx, 10*time.Millisecond, nil) {
				if err := sys.db.QueryRow(ctx, `
					SELECT (SELECT extract(epoch FROM d.executed_at - c.draw_started_at) FROM campaigns c JOIN draws d ON d.campaign_id = c.id WHERE c.id = $1)`,
					id).Scan(&drawn); err != nil {
					return r, err
				}
				if time.Now().After(limit) {
					return r, fmt.Errorf("campaign %s is not drawn after %s", id, longestDraw)
				}
			}
			took[i] = time.Duration(*drawn * float64(time.Second))
		}
		closed()
		r = newResult(campaigns, w.elapsed, took)
		r.noteUsage(w, campaigns)
		r.wrong, err = sys.finish(ctx, seen, 1)
		return r, err
	})
}
