package main

import (
	"slices"
	"time"
)

// result is what one scenario measured in one round.
type result struct {
	figures map[string]float64
	wrong   []string // errors in answers or in the database
}

// Names of figures that every scenario has: the rate of what it counts, and latencies in ms.
const (
	rate   = ""
	median = "p50"
	p95    = "p95"
	p99    = "p99"
)

// Names of figures with the CPU time of each thing done, of all our processes and of one
// group; of cores in use; and of the most memory and open files that a process of a group has had.
const (
	cpuOfEach = "µs of cpu each"
	cpuOf     = "cpu "
	mostMiB   = "MiB "
	openFiles = "files "
)

// newResult computes the rate and the quantiles of a measurement. It sorts took.
func newResult(done int, elapsed time.Duration, took []time.Duration) result {
	slices.Sort(took)
	return result{figures: map[string]float64{rate: perSecond(done, elapsed), median: milliseconds(quantile(took, 50)),
		p95: milliseconds(quantile(took, 95)), p99: milliseconds(quantile(took, 99))}}
}

func (r *result) note(name string, value float64) { r.figures[name] = value }

// noteUsage notes the CPU time of our processes for each of the n things done while the
// window was open, and of each group: on a shared machine that time varies less than any
// rate. It notes how many cores each group used, and memory.
func (r *result) noteUsage(w *window, n int) {
	var ours float64
	for name, cores := range w.cores {
		r.note(cpuOf+name, cores)
		if name != others && name != stolen && n > 0 {
			each := cores * w.elapsed.Seconds() / float64(n) * 1e6
			r.note("µs "+name, each)
			ours += each
		}
	}
	r.note(cpuOfEach, ours)
	for _, name := range []string{"api", "worker"} {
		r.note(mostMiB+name, w.meter.memory(name))
		r.note(openFiles+name, w.files[name])
	}
}

// quantile returns the value that p percent of the sorted values lie below.
func quantile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

func perSecond(n int, elapsed time.Duration) float64 { return divide(float64(n), elapsed.Seconds()) }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// divide returns 0 when b is 0, because nothing was done in the round.
func divide(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
