package main

import (
	"context"
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
	elapsed time.Duration // how long it was open; read it when it is over
	cpu     []figure      // cores that each group of processes used while it was open
	meter   *meter        // nil: none
}

const (
	warming int32 = iota
	opened
	over
)

func (w *window) isOpen() bool { return w.phase.Load() == opened }
func (w *window) isOver() bool { return w.phase.Load() == over }

// pass waits for the warm-up, opens the window, and closes it after the measured time.
// It closes earlier when enough is closed, because there is nothing left to measure, or
// when ctx ends; then it returns the error of ctx.
func (w *window) pass(ctx context.Context, measured time.Duration, enough <-chan struct{}) error {
	wait(ctx, warmUp(measured), enough)
	closed := w.open()
	wait(ctx, measured, enough)
	closed()
	return ctx.Err()
}

// open opens the window and returns what closes it.
func (w *window) open() (closed func()) {
	before, start := w.meter.read(), time.Now()
	w.phase.Store(opened)
	return func() {
		w.phase.Store(over)
		w.elapsed = time.Since(start)
		w.cpu = w.meter.since(before, w.elapsed)
	}
}

// cores is how many cores a group used while the window was open.
func (w *window) cores(group string) float64 {
	for _, f := range w.cpu {
		if f.Name == cpuOf+group {
			return f.Value
		}
	}
	return 0
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
