package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// connections is the crowd of the documents: 500 buyers at once.
const connections = 500

// crowdedSale is the whole path, from the HTTP request to the commit of the
// purchase and back, through the real binaries.
type crowdedSale struct {
	offer   func(measured time.Duration) offer
	workers int
	payers  int // users with wallets that pay in turn; 0: the apps collect the money
}

func (c crowdedSale) run(ctx context.Context, s *stage, measured time.Duration) (r result, err error) {
	v, err := s.openSale(ctx, c.offer(measured))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.close(ctx)) }()
	if err := fund(ctx, v.db, owners(c.payers)); err != nil {
		return r, err
	}
	if err := v.serve(ctx, c.workers); err != nil {
		return r, err
	}
	v.payers = c.payers
	w := &window{meter: v.meter()}
	seen, err := v.rush(ctx, w, measured)
	if err != nil {
		return r, err
	}
	r = newResult(seen.measured[succeeded], w.elapsed, seen.took[succeeded])
	if n := seen.measured[soldOut]; n > 0 {
		r.note("SOLD OUT, measured s", w.elapsed.Seconds())
	}
	r.note("not final/s", perSecond(seen.measured[late], w.elapsed))
	r.note("refused/s", perSecond(seen.measured[refused], w.elapsed))
	r.noteUsage(w, seen.measured[succeeded])
	r.wrong, err = v.finish(ctx, seen)
	return r, err
}

// rush lets a crowd loose on all campaigns of the venue for one window, which
// ends early when positions run out.
func (v *venue) rush(ctx context.Context, w *window, measured time.Duration) (*observed, error) {
	var once sync.Once
	out := make(chan struct{})
	c := &crowd{address: v.address, key: v.stage.appKey, campaigns: v.campaigns, size: connections, payers: v.payers}
	var seen *observed
	var group sync.WaitGroup
	group.Go(func() { seen = c.run(ctx, w, func() { once.Do(func() { close(out) }) }) })
	err := w.pass(ctx, measured, out)
	group.Wait()
	return seen, err
}

// finish stops the processes and holds the database against what the crowd saw.
func (v *venue) finish(ctx context.Context, seen *observed) ([]string, error) {
	wrong := append(seen.strangeness(), v.dismiss()...)
	found, err := v.verify(ctx, expectation{bought: seen.whole[succeeded], jobs: seen.bought,
		open: seen.whole[late] + seen.whole[refused] + seen.whole[strange]})
	return append(wrong, found...), err
}
