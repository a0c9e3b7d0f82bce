package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// longestWarmUp is enough for connections, prepared statements and caches.
const longestWarmUp = time.Second

func warmUp(measured time.Duration) time.Duration { return min(measured, longestWarmUp) }

// window is the measured part of a run. Producers of load count what ends while the
// window is open, and stop when it is over.
type window struct {
	phase   atomic.Int32
	soldOut chan struct{}
	elapsed time.Duration      // how long it was open; read it when it is over
	cores   map[string]float64 // that each group of processes used while it was open
	files   map[string]float64 // that a process of each group had open at its end, at most
	meter   *meter             // nil: none

	once sync.Once
}

const (
	warming int32 = iota
	opened
	over
)

func newWindow(m *meter) *window { return &window{meter: m, soldOut: make(chan struct{})} }

func (w *window) isOpen() bool { return w.phase.Load() == opened }
func (w *window) isOver() bool { return w.phase.Load() == over }

// end ends the window early: there is nothing left to measure.
func (w *window) end() { w.once.Do(func() { close(w.soldOut) }) }

// measure runs loads until they return. It waits for the warm-up, opens the window, and
// closes it after the measured time, or earlier by end or when ctx ends; then it returns
// the error of ctx.
func (w *window) measure(ctx context.Context, measured time.Duration, loads ...func()) error {
	var group sync.WaitGroup
	for _, load := range loads {
		group.Go(load)
	}
	wait(ctx, warmUp(measured), w.soldOut)
	closed := w.open()
	wait(ctx, measured, w.soldOut)
	closed()
	group.Wait()
	return ctx.Err()
}

// open opens the window and returns what closes it.
func (w *window) open() (closed func()) {
	before, start := w.meter.read(), time.Now()
	w.phase.Store(opened)
	return func() {
		w.phase.Store(over)
		w.elapsed = time.Since(start)
		w.cores, w.files = w.meter.since(before, w.elapsed), w.meter.files()
	}
}

func wait(ctx context.Context, d time.Duration, enough <-chan struct{}) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-enough:
	case <-ctx.Done():
	}
}

// caller does one thing. It reports whether that counts. A failure ends the caller.
type caller func() (counts bool, err error)

// repeat lets callers do one thing after the other until the window is over. The result has
// what counts and ended while the window was open, and some of the failures.
func (w *window) repeat(ctx context.Context, measured time.Duration, callers int, begin func(number int) caller) (r result, err error) {
	var mu sync.Mutex
	var took []time.Duration
	var failures []string
	loads := make([]func(), callers)
	for i := range loads {
		loads[i] = func() {
			var mine []time.Duration
			var err error
			for once := begin(i); err == nil && !w.isOver() && ctx.Err() == nil; {
				start := time.Now()
				var counts bool
				if counts, err = once(); err == nil && counts && w.isOpen() {
					mine = append(mine, time.Since(start))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
			if err != nil && ctx.Err() == nil && len(failures) < violationsShown {
				failures = append(failures, "a caller failed: "+err.Error())
			}
		}
	}
	err = w.measure(ctx, measured, loads...)
	r = newResult(len(took), w.elapsed, took)
	r.noteUsage(w, len(took))
	r.wrong = failures
	return r, err
}
