package drawing

import (
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"triprize.example/draw/beacon"
	"triprize/internal/campaign"
	"triprize/internal/job"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
)

// Triggers counts and logs the draws that this process has triggered.
type Triggers struct {
	draws  *prometheus.CounterVec
	logger *slog.Logger
}

// NewTriggers registers the counters, all at 0.
func NewTriggers(registry prometheus.Registerer, logger *slog.Logger) *Triggers {
	t := &Triggers{logger: logger, draws: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_draws_triggered_total",
		Help: "Jobs of draws made by this process, by trigger: sell_out, sale_end, operator (over HTTP), sweep (an earlier job was given up)."}, []string{"by"})}
	registry.MustRegister(t.draws)
	for _, by := range []job.By{job.BySellOut, job.BySaleEnd, job.ByOperator, job.BySweep} {
		t.draws.WithLabelValues(string(by))
	}
	return t
}

// Note notes the draws of committed messages; nil Triggers note nothing.
func (t *Triggers) Note(made ...job.Message) {
	if t == nil {
		return
	}
	for _, m := range made {
		for _, ref := range m.Jobs {
			t.draws.WithLabelValues(string(m.By)).Inc()
			line := []any{"by", m.By, "campaign", ref.CampaignID, "job", ref.ID}
			if m.By == job.BySellOut || m.By == job.BySaleEnd { // others ask for the draw of a campaign that is drawing
				line = append(line, "from", campaign.Active, "to", campaign.Drawing)
			}
			t.logger.Info("draw triggered", append(line, m.From.Attrs()...)...)
		}
	}
}

type metrics struct {
	attempts *prometheus.CounterVec
	duration *prometheus.HistogramVec
	held     prometheus.Histogram
}

// How attempts end.
const (
	drawn     = "drawn"
	refused   = "refused"
	waits     = "waiting"
	busy      = "busy"
	fenced    = "fenced"
	finalized = "finalized"
	failed    = "failed" // it can only be tried again
)

// Why draws wait and attempts fail.
const (
	causeBeacon   = "beacon"
	causeKey      = "key"
	causePostgres = "postgres"
	causeInternal = "internal"
)

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_draw_attempts_total",
			Help: "Attempts at draws by this worker, by outcome: drawn (the job is final), refused (the campaign cannot be drawn), waiting (for a round), busy (another worker has it), fenced (another worker took over), finalized (nothing was left to do), failed. cause tells why it waits or failed: beacon, key, postgres, internal.",
		}, []string{"outcome", "cause"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "triprize_draw_attempt_duration_seconds", Help: "Duration of one attempt at a draw. Between two attempts a draw waits, for the beacon too: that is not in it.",
			Buckets: prometheus.ExponentialBuckets(.005, 2, 14),
		}, []string{"outcome"}),
		held: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "triprize_execution_lock_held_seconds", Help: "How long this worker has held the execution lock of a campaign, when it gives it back or has lost it.",
			Buckets: prometheus.ExponentialBuckets(.005, 2, 14),
		}),
	}
	for outcome, causes := range map[string][]string{drawn: {""}, refused: {""}, busy: {""}, fenced: {""}, finalized: {""},
		waits: {causeBeacon, causePostgres}, failed: {causeBeacon, causeKey, causePostgres, causeInternal}} {
		m.duration.WithLabelValues(outcome)
		for _, cause := range causes {
			m.attempts.WithLabelValues(outcome, cause)
		}
	}
	if registry != nil {
		registry.MustRegister(m.attempts, m.duration, m.held)
	}
	return m
}

// ended counts an attempt.
func (m *metrics) ended(outcome, cause string, since time.Time) {
	m.attempts.WithLabelValues(outcome, cause).Inc()
	m.duration.WithLabelValues(outcome).Observe(time.Since(since).Seconds())
}

// endOf returns how an attempt has ended, and the cause when it waits or has failed.
func endOf(outcome job.Outcome, err error) (name, cause string) {
	wait, waiting := errors.AsType[*Snoozed](err)
	_, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil && outcome.Problem == nil:
		return drawn, ""
	case err == nil:
		return refused, ""
	case waiting:
		return waits, wait.cause
	case errors.Is(err, ErrBusy):
		return busy, ""
	case errors.Is(err, campaign.ErrFenced):
		return fenced, ""
	case errors.Is(err, job.ErrFinal):
		return finalized, ""
	case errors.Is(err, keyring.ErrOpen):
		return failed, causeKey
	case errors.Is(err, beacon.ErrSignature):
		return failed, causeBeacon
	case answered, postgres.IsTransient(err):
		return failed, causePostgres
	}
	return failed, causeInternal
}
