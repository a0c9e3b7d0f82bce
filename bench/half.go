package main

import (
	"context"
	"time"
)

// accepted99 is the 99th percentile of the answers 202, in ms.
const accepted99 = "202 p99 ms"

// runHalfLoad measures a crowd that buys half as often as it can: first as fast as possible,
// then at half of that rate, at fixed times. Half of the buyers wait for the end, the others go
// away with their 202.
func runHalfLoad(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, hot, func(sys *system) (r result, err error) {
		if err := sys.serve(ctx, 1); err != nil {
			return r, err
		}
		full := newWindow(nil)
		fast, err := sys.crowd(connections).sell(ctx, full, measured)
		if err != nil {
			return r, err
		}
		c, w := sys.crowd(connections), newWindow(sys.meter())
		c.hasty = 2
		c.every = full.elapsed * 2 * time.Duration(c.size) / time.Duration(max(1, fast.measured[succeeded]))
		seen, err := c.sell(ctx, w, max(measured, 2*c.every))
		if err != nil {
			return r, err
		}
		r = w.result(seen)
		accepted := newResult(seen.measured[late], w.elapsed, seen.took[late])
		r.note(rate, r.figures[rate]+accepted.figures[rate])
		r.note("full load/s", perSecond(fast.measured[succeeded], full.elapsed))
		r.note(accepted99, accepted.figures[p99])
		r.noteUsage(w, seen.measured[succeeded]+seen.measured[late])
		seen.add(fast)
		r.wrong, err = sys.finish(ctx, seen, 1)
		return r, err
	})
}
