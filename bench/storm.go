package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/store/campaign"
)

const (
	buyersPerPosition = 10
	// stormPerSecond is about how many requests are answered per second. It makes the
	// storm last about as long as the other scenarios.
	stormPerSecond = 9_000
	drawTimeout    = 30 * time.Second
	// stormWarmUp is half a warm-up, because the window adds a warm-up as long.
	stormWarmUp = longestWarmUp / 2
)

// storm is a campaign for the warm-up, and then the one that is measured.
func storm(measured time.Duration) offer {
	positions := int(measured.Seconds() * stormPerSecond / buyersPerPosition)
	warming := baseLengthFor(needed(stormWarmUp), shape.MaxBaseLength)
	return offer{name: "template_storm", baseLengths: []int{warming, baseLengthFor(positions, shape.MaxBaseLength)}}
}

// runStorm makes ten requests for each position of a campaign. It measures how fast the
// requests after the sell-out are refused: refusals per second from the first one on.
// All positions must be sold exactly once, and then be drawn.
func runStorm(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	o := storm(measured)
	return s.onSale(ctx, o, func(sys *system) (r result, err error) {
		if err := sys.serve(ctx, 1); err != nil {
			return r, err
		}
		warm, c, positions := sys.crowd(connections), sys.crowd(connections), shape.TriangleCount(o.baseLengths[1])
		warm.campaigns, c.campaigns, c.requests = sys.campaigns[:1], sys.campaigns[1:], int64(buyersPerPosition*positions)
		before, err := warm.sell(ctx, newWindow(nil), stormWarmUp)
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
		r.wrong, err = sys.afterStorm(ctx, sys.campaigns[1], positions, seen)
		if err != nil {
			return r, err
		}
		seen.add(before)
		found, err := sys.finish(ctx, seen, 1)
		r.wrong = append(r.wrong, found...)
		return r, err
	})
}

// afterStorm checks the number of buyers who were told that they have a position, and
// waits until all positions are sold and drawn.
func (sys *system) afterStorm(ctx context.Context, id uuid.UUID, positions int, seen *observed) (wrong []string, err error) {
	open := seen.whole[late] + seen.whole[refused] + seen.whole[unexpected]
	if n := seen.whole[succeeded]; n > positions || n < positions-open {
		wrong = append(wrong, fmt.Sprintf("%d buyers were told that they have one of %d positions", n, positions))
	}
	ctx, cancel := context.WithTimeout(ctx, drawTimeout)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		c, err := campaign.Get(ctx, sys.db, id)
		if err != nil {
			return wrong, err
		}
		if c.State == campaign.Completed && c.Counts.Sold == positions {
			return wrong, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return append(wrong, fmt.Sprintf("%s after the storm the campaign is %s with %d of %d sold", drawTimeout, c.State, c.Counts.Sold, positions)), nil
		}
	}
}
