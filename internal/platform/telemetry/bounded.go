package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bounded is a collector that asks somebody else, who may not answer.
type bounded struct {
	prometheus.Collector
	patience time.Duration
	asking   atomic.Bool
}

// Bounded lets a collector take no longer than patience: what it has not told by
// then is left out, and all other metrics are there. While an answer is still out
// it is not asked again.
func Bounded(c prometheus.Collector, patience time.Duration) prometheus.Collector {
	return &bounded{Collector: c, patience: patience}
}

// Collect implements prometheus.Collector.
func (b *bounded) Collect(out chan<- prometheus.Metric) {
	if !b.asking.CompareAndSwap(false, true) {
		return
	}
	told := make(chan prometheus.Metric)
	left := make(chan struct{}) // closed when nobody listens any more
	defer close(left)
	go func() {
		defer b.asking.Store(false)
		defer close(told)
		all := make(chan prometheus.Metric)
		go func() { defer close(all); b.Collector.Collect(all) }()
		for m := range all { // to the end, so that the collector is not stuck with a metric in hand
			select {
			case told <- m:
			case <-left:
			}
		}
	}()
	over := time.NewTimer(b.patience)
	defer over.Stop()
	for {
		select {
		case m, ok := <-told:
			if !ok {
				return
			}
			out <- m
		case <-over.C:
			return
		}
	}
}
