package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// connections is the number of concurrent buyers in the documents.
const connections = 500

// crowdedSale measures purchases through the real binaries, from the HTTP request to
// the final answer.
type crowdedSale struct {
	offer   func(measured time.Duration) offer
	workers int
	payers  int // users with wallets who pay in turn; 0: purchases are paid externally
}

func (c crowdedSale) run(ctx context.Context, s *setup, measured time.Duration) (r result, err error) {
	sys, err := s.openSale(ctx, c.offer(measured))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	if err := fund(ctx, sys.db, owners(c.payers)); err != nil {
		return r, err
	}
	if err := sys.serve(ctx, c.workers); err != nil {
		return r, err
	}
	sys.payers = c.payers
	w := &window{meter: sys.meter()}
	seen, err := sys.runCrowd(ctx, w, measured)
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
	r.wrong, err = sys.finish(ctx, seen)
	return r, err
}

// runCrowd lets a crowd buy from all campaigns of the system for one window. The window
// ends early when positions run out.
func (sys *system) runCrowd(ctx context.Context, w *window, measured time.Duration) (*observed, error) {
	var once sync.Once
	out := make(chan struct{})
	c := &crowd{address: sys.address, key: sys.setup.appKey, campaigns: sys.campaigns, size: connections, payers: sys.payers}
	var seen *observed
	var group sync.WaitGroup
	group.Go(func() { seen = c.run(ctx, w, func() { once.Do(func() { close(out) }) }) })
	err := w.pass(ctx, measured, out)
	group.Wait()
	return seen, err
}

// finish stops the processes and compares the database with what the crowd has seen.
func (sys *system) finish(ctx context.Context, seen *observed) ([]string, error) {
	wrong := append(seen.unexpectedAnswers(), sys.stop()...)
	found, err := sys.verify(ctx, expectation{bought: seen.whole[succeeded], jobs: seen.bought,
		open: seen.whole[late] + seen.whole[refused] + seen.whole[unexpected]})
	return append(wrong, found...), err
}
