package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// runIdle measures how long a purchase takes on an idle system, with a single buyer.
func runIdle(ctx context.Context, s *setup, measured time.Duration) (r result, err error) {
	sys, err := s.openSale(ctx, hot(measured))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	if err := sys.serve(ctx, 1); err != nil {
		return r, err
	}
	c := &crowd{address: sys.address, key: s.appKey, campaigns: sys.campaigns, size: 1}
	w := &window{meter: sys.meter()}
	var seen *observed
	var group sync.WaitGroup
	group.Go(func() { seen = c.run(ctx, w, func() {}) })
	err = w.pass(ctx, measured, nil)
	group.Wait()
	if err != nil {
		return r, err
	}
	r = newResult(seen.measured[succeeded], w.elapsed, seen.took[succeeded])
	r.noteUsage(w, seen.measured[succeeded])
	r.wrong, err = sys.finish(ctx, seen)
	return r, err
}
