package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bounded limits how long a collector may take, such as one that asks a server.
type bounded struct {
	prometheus.Collector
	patience time.Duration
	asking   atomic.Bool
}

// Bounded lets a collector take no longer than patience. Later metrics are
// left out, so that it does not delay others. While it is
// still busy it is not asked again.
func Bounded(c prometheus.Collector, patience time.Duration) prometheus.Collector {
	return &bounded{Collector: c, patience: patience}
}

// Collect implements prometheus.Collector.
func (b *bounded) Collect(out chan<- prometheus.Metric) {
	if !b.asking.CompareAndSwap(false, true) {
		return
	}
	told := make(chan prometheus.Metric)
	left := make(chan struct{}) // closed when Collect has returned
	defer close(left)
	go func() {
		defer b.asking.Store(false)
		defer close(told)
		all := make(chan prometheus.Metric)
		go func() { defer close(all); b.Collector.Collect(all) }()
		for m := range all { // to the end, so that the collector does not block
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
