package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// memory watches how much memory a process has, on Linux.
type memory struct {
	first, peak float64
	stop        context.CancelFunc
	stopped     chan struct{}
}

// memoryEvery is how often it is read.
const memoryEvery = 50 * time.Millisecond

// watchMemory watches a process until end is called or ctx ends.
func watchMemory(ctx context.Context, pid int) *memory {
	m := &memory{first: residentMiB(pid), stopped: make(chan struct{})}
	ctx, m.stop = context.WithCancel(ctx)
	go func() {
		defer close(m.stopped)
		for ctx.Err() == nil {
			m.peak = max(m.peak, residentMiB(pid))
			wait(ctx, memoryEvery, nil)
		}
	}()
	return m
}

// end returns what the process had first, and the most that it had.
func (m *memory) end() (first, peak float64) {
	m.stop()
	<-m.stopped
	return m.first, m.peak
}

// residentMiB returns 0 for a process that has none, or that is gone.
func residentMiB(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	line, _, _ := strings.Cut(rest, " kB")
	kib, _ := strconv.Atoi(strings.TrimSpace(line))
	return float64(kib) / 1024
}
