package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"triprize/internal/domain/shape"
)

const (
	buyersPerPosition = 10
	// stormPerSecond is about how many requests are answered per second. It makes the
	// storm last about as long as the other scenarios.
	stormPerSecond = 9_000
	warmingBase    = 200 // of a campaign for the warm-up
)

// runStorm makes ten requests for each position of a campaign. It measures how fast the
// requests after the sell-out are refused: refusals per second from the first one on.
// All positions must be sold exactly once.
func runStorm(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	base := int(math.Sqrt(2 * measured.Seconds() * stormPerSecond / buyersPerPosition))
	o := offer{name: fmt.Sprintf("template_storm_%d", base), baseLengths: []int{warmingBase, base}}
	return s.onSale(ctx, o, func(sys *system) (r result, err error) {
		if err := sys.serve(ctx, 1); err != nil {
			return r, err
		}
		warm, c, positions := sys.crowd(connections), sys.crowd(connections), shape.TriangleCount(base)
		warm.campaigns, c.campaigns, c.requests = sys.campaigns[:1], sys.campaigns[1:], int64(buyersPerPosition*positions)
		before, err := warm.sell(ctx, newWindow(nil), longestWarmUp/2)
		if err != nil {
			return r, err
		}
		w := newWindow(sys.meter())
		start, closed := time.Now(), w.open()
		seen := c.run(ctx, w)
		end := time.Now()
		closed()
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		r = newResult(seen.whole[soldOut], end.Sub(seen.refusal), seen.took[soldOut])
		r.note("sold/s", perSecond(seen.whole[succeeded], seen.refusal.Sub(start)))
		r.note("refused/s", perSecond(seen.whole[refused], w.elapsed))
		r.noteUsage(w, seen.whole[soldOut]+seen.whole[succeeded])
		seen.add(before)
		r.wrong, err = sys.finish(ctx, seen, 1)
		return r, err
	})
}
