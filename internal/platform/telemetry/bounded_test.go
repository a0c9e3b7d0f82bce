package telemetry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/telemetry"
)

// halting tells one metric at once and the next when it is let go.
type halting struct {
	asked int
	on    chan struct{}
}

var telling = prometheus.NewDesc("told", "", []string{"when"}, nil)

func (h *halting) Describe(out chan<- *prometheus.Desc) { out <- telling }

func (h *halting) Collect(out chan<- prometheus.Metric) {
	h.asked++
	out <- prometheus.MustNewConstMetric(telling, prometheus.GaugeValue, 1, "at once")
	<-h.on
	out <- prometheus.MustNewConstMetric(telling, prometheus.GaugeValue, 1, "later")
}

func TestACollectorThatHangsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &halting{on: make(chan struct{})}
		registry := prometheus.NewRegistry()
		registry.MustRegister(telemetry.Bounded(slow, 2*time.Second), prometheus.NewGauge(prometheus.GaugeOpts{Name: "another"}))
		expect := func(what string, told, atMost int, within time.Duration) {
			t.Helper()
			began := time.Now()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, f := range families {
				if f.GetName() == "told" {
					n = len(f.GetMetric())
				}
			}
			if took := time.Since(began); n != told || len(families) > atMost || took > within {
				t.Errorf("%s: %d told, %d families in %s", what, n, len(families), took)
			}
		}
		expect("while it hangs", 1, 2, 2*time.Second)
		expect("while the first answer is still out", 0, 1, 0)
		if slow.asked != 1 {
			t.Errorf("it was asked %d times", slow.asked)
		}
		close(slow.on)
		synctest.Wait()
		expect("when it answers again", 2, 2, 0)
	})
}
