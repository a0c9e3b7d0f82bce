package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// runIdle lets a single buyer buy on a system that has nothing else to do: how
// long until a purchase is final, when nothing stands in its way.
func runIdle(ctx context.Context, s *stage, measured time.Duration) (r result, err error) {
	v, err := s.openSale(ctx, hot(measured))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.close(ctx)) }()
	if err := v.serve(ctx, 1); err != nil {
		return r, err
	}
	c := &crowd{address: v.address, key: s.appKey, campaigns: v.campaigns, size: 1}
	w := &window{meter: v.meter()}
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
	r.wrong, err = v.finish(ctx, seen)
	return r, err
}
