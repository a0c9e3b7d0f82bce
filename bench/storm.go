package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/triangle"
	"triprize/internal/store/campaign"
)

const (
	buyersPerPosition = 10
	// stormPerSecond is about how many requests of a storm are answered in a
	// second: it makes the storm last about as long as the other scenarios.
	stormPerSecond = 9_000
	drawPatience   = 30 * time.Second
	// stormWarmUp is half of it: a window has its own warm-up.
	stormWarmUp = longestWarmUp / 2
)

// storm is one campaign to be stormed, and before it one to warm up on.
func storm(measured time.Duration) offer {
	positions := int(measured.Seconds() * stormPerSecond / buyersPerPosition)
	warming := baseLengthFor(needed(stormWarmUp), triangle.MaxBaseLength)
	return offer{"template_storm", []int{warming, baseLengthFor(positions, triangle.MaxBaseLength)}}
}

// runStorm sends ten buyers for each position at once. What it measures is how
// fast those who come too late are told so: rejections per second from the first
// one on. Exactly the positions must be sold, and then be drawn.
func runStorm(ctx context.Context, s *stage, measured time.Duration) (r result, err error) {
	v, err := s.openSale(ctx, storm(measured))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.close(ctx)) }()
	if err := v.serve(ctx, 1); err != nil {
		return r, err
	}
	warm, target := v.campaigns[0], v.campaigns[1]
	v.campaigns = []uuid.UUID{warm}
	before, err := v.rush(ctx, &window{}, stormWarmUp)
	if err != nil {
		return r, err
	}
	positions := triangle.Count(storm(measured).baseLengths[1])
	c := &crowd{address: v.address, key: s.appKey, campaigns: []uuid.UUID{target}, size: connections, requests: int64(buyersPerPosition * positions)}
	w := &window{meter: v.meter()}
	start, closed := time.Now(), w.open()
	seen := c.run(ctx, w, func() {})
	end := time.Now()
	closed()
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	r = newResult(seen.whole[soldOut], end.Sub(seen.refusal), seen.took[soldOut])
	r.note("sold/s", perSecond(seen.whole[succeeded], seen.refusal.Sub(start)))
	r.note("refused/s", perSecond(seen.whole[refused], w.elapsed))
	r.noteUsage(w, seen.whole[soldOut]+seen.whole[succeeded])
	r.wrong, err = v.afterStorm(ctx, target, positions, seen)
	if err != nil {
		return r, err
	}
	seen.add(before)
	found, err := v.finish(ctx, seen)
	r.wrong = append(r.wrong, found...)
	return r, err
}

// afterStorm checks that all positions were sold and everybody else was told,
// and waits for the draw.
func (v *venue) afterStorm(ctx context.Context, id uuid.UUID, positions int, seen *observed) (wrong []string, err error) {
	open := seen.whole[late] + seen.whole[refused] + seen.whole[strange]
	if n := seen.whole[succeeded]; n > positions || n < positions-open {
		wrong = append(wrong, fmt.Sprintf("%d buyers were told that they have one of %d positions", n, positions))
	}
	ctx, cancel := context.WithTimeout(ctx, drawPatience)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		c, err := campaign.Get(ctx, v.db, id)
		if err != nil {
			return wrong, err
		}
		if c.State == campaign.Completed && c.Counts.Sold == positions {
			return wrong, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return append(wrong, fmt.Sprintf("%s after the storm the campaign is %s with %d of %d sold", drawPatience, c.State, c.Counts.Sold, positions)), nil
		}
	}
}
