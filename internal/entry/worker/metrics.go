package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/store/job"
)

type metrics struct {
	jobs      *prometheus.CounterVec   // by kind and outcome
	latency   *prometheus.HistogramVec // by kind
	positions prometheus.Counter
	batchSize prometheus.Histogram
	batchTime prometheus.Histogram
	busy      prometheus.Counter
	faults    prometheus.Counter
	givenUp   prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_jobs_settled_total", Help: "Jobs made final by this worker, by kind and outcome (succeeded, or the code of the problem).",
		}, []string{"kind", "outcome"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "triprize_job_duration_seconds", Help: "Time from acceptance to the commit of the outcome.",
			Buckets: []float64{.005, .01, .025, .05, .1, .15, .25, .4, .75, 1.5, 3, 6, 15, 60},
		}, []string{"kind"}),
		positions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_positions_sold_total", Help: "Positions sold by this worker.",
		}),
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "triprize_purchase_batch_jobs", Help: "Jobs in one purchase transaction.", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		batchTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "triprize_purchase_batch_duration_seconds", Help: "Duration of one purchase transaction.",
			Buckets: prometheus.ExponentialBuckets(.001, 2, 13),
		}),
		busy: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_purchase_campaign_busy_total", Help: "Jobs put off to a later batch because their campaign or their wallet was locked.",
		}),
		faults: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_transient_faults_total", Help: "Attempts put off by a transient fault, such as a lost connection.",
		}),
		givenUp: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_jobs_given_up_total", Help: "Jobs settled as internal-error after too many deliveries. Must stay 0.",
		}),
	}
	registry.MustRegister(m.jobs, m.latency, m.positions, m.batchSize, m.batchTime, m.busy, m.faults, m.givenUp)
	return m
}

// settled counts outcomes of one kind.
func (m *metrics) settled(kind job.Kind, outcomes []job.Outcome) {
	now := time.Now()
	for _, o := range outcomes {
		outcome := string(job.Succeeded)
		if o.Problem != nil {
			outcome = string(o.Problem.Code)
		}
		m.jobs.WithLabelValues(string(kind), outcome).Inc()
		m.latency.WithLabelValues(string(kind)).Observe(now.Sub(uuidv7.MadeAt(o.ID)).Seconds())
	}
}
