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
	batchSize *prometheus.HistogramVec // by kind
	batchTime *prometheus.HistogramVec // by kind
	putOff    *prometheus.CounterVec   // by kind
	faults    prometheus.Counter
	givenUp   prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_jobs_finalized_total", Help: "Jobs made final by this worker, by kind and outcome (succeeded, or the code of the problem).",
		}, []string{"kind", "outcome"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "triprize_job_duration_seconds", Help: "Time from acceptance to the commit of the outcome.",
			Buckets: []float64{.005, .01, .025, .05, .1, .15, .25, .4, .75, 1.5, 3, 6, 15, 60},
		}, []string{"kind"}),
		positions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_positions_sold_total", Help: "Positions sold by this worker.",
		}),
		batchSize: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "triprize_batch_jobs", Help: "Jobs in one batch of a shard.", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}, []string{"kind"}),
		batchTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "triprize_batch_duration_seconds", Help: "Duration of one batch of a shard, with its waits for locked rows.",
			Buckets: prometheus.ExponentialBuckets(.001, 2, 13),
		}, []string{"kind"}),
		putOff: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_jobs_put_off_total", Help: "Jobs put off to a later batch because their campaign or a wallet was locked, by kind.",
		}, []string{"kind"}),
		faults: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_transient_faults_total", Help: "Attempts put off by a transient fault, such as a lost connection.",
		}),
		givenUp: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_jobs_given_up_total", Help: "Jobs finalized as internal-error after too many deliveries. Must stay 0.",
		}),
	}
	registry.MustRegister(m.jobs, m.latency, m.positions, m.batchSize, m.batchTime, m.putOff, m.faults, m.givenUp)
	return m
}

// finalized counts outcomes of one kind.
func (m *metrics) finalized(kind job.Kind, outcomes []job.Outcome) {
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
