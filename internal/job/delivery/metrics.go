package delivery

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/platform/telemetry"
)

type metrics struct {
	jobs      *prometheus.CounterVec   // by kind and outcome
	latency   *prometheus.HistogramVec // by kind and outcome
	attempts  *prometheus.CounterVec   // by kind and delivery
	underWay  *prometheus.GaugeVec     // by kind
	batchSize *prometheus.HistogramVec // by kind
	batchTime *prometheus.HistogramVec // by kind
	snoozed   *prometheus.CounterVec   // by kind
	faults    prometheus.Counter
	givenUp   *prometheus.CounterVec // by kind
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_jobs_finalized_total", Help: "Jobs made final by this worker, by kind and outcome (succeeded, or the code of the problem).",
		}, []string{"kind", "outcome"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "triprize_job_duration_seconds", Help: "Time from acceptance to the commit of the outcome.",
			Buckets: []float64{.005, .01, .025, .05, .1, .15, .25, .4, .75, 1, 1.5, 3, 6, 15, 60},
		}, []string{"kind", "outcome"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_job_attempts_total", Help: "Jobs that this worker began to process, by kind and delivery: first, or again (an earlier delivery failed).",
		}, []string{"kind", "delivery"}),
		underWay: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "triprize_jobs_under_way", Help: "Jobs that this worker is processing, by kind.",
		}, []string{"kind"}),
		batchSize: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "triprize_batch_jobs", Help: "Jobs in one batch of a shard.", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}, []string{"kind"}),
		batchTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "triprize_batch_duration_seconds", Help: "Duration of one batch of a shard, including its waits for locked rows.",
			Buckets: prometheus.ExponentialBuckets(.001, 2, 13),
		}, []string{"kind"}),
		snoozed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_jobs_snoozed_total", Help: "Jobs requeued to a later batch because their campaign or a wallet was locked, by kind.",
		}, []string{"kind"}),
		faults: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "triprize_transient_faults_total", Help: "Attempts that a transient fault interrupted, such as a lost connection.",
		}),
		givenUp: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_jobs_given_up_total", Help: "Jobs finalized as internal-error after too many deliveries, by kind. Must stay 0.",
		}, []string{"kind"}),
	}
	registry.MustRegister(m.jobs, m.latency, m.attempts, m.underWay, m.batchSize, m.batchTime, m.snoozed, m.faults, m.givenUp)
	return m
}

// expect initializes the metrics of a kind's outcomes to 0.
func (m *metrics) expect(kind job.Kind) {
	m.jobs.WithLabelValues(string(kind), string(job.Succeeded))
	for _, outcome := range []job.State{job.Succeeded, job.Failed} {
		m.latency.WithLabelValues(string(kind), string(outcome))
	}
}

// expectMessages initializes those of a kind that has messages.
func (m *metrics) expectMessages(kind job.Kind) {
	telemetry.Expect(m.givenUp, kind)
	m.begun(kind, 0, false)()
	m.begun(kind, 0, true)()
}

// begun counts jobs that are being processed until ended is called.
func (m *metrics) begun(kind job.Kind, jobs int, redelivered bool) (ended func()) {
	delivery, n := "first", float64(jobs)
	if redelivered {
		delivery = "redelivered"
	}
	m.attempts.WithLabelValues(string(kind), delivery).Add(n)
	underWay := m.underWay.WithLabelValues(string(kind))
	underWay.Add(n)
	return func() { underWay.Sub(n) }
}

// completed counts outcomes of one kind.
func (m *metrics) completed(kind job.Kind, outcomes []job.Outcome) {
	now := time.Now()
	for _, o := range outcomes {
		outcome, state := string(job.Succeeded), job.Succeeded
		if o.Problem != nil {
			outcome, state = string(o.Problem.Code), job.Failed
		}
		m.jobs.WithLabelValues(string(kind), outcome).Inc()
		m.latency.WithLabelValues(string(kind), string(state)).Observe(now.Sub(uuidv7.MadeAt(o.ID)).Seconds())
	}
}
