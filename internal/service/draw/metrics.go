package draw

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
)

type metrics struct{ attempts *prometheus.CounterVec }

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "triprize_draw_attempts_total",
		Help: "Attempts at draws by this worker, by outcome: drawn (the job is final), refused (the campaign cannot be drawn), waiting (for a round or a timestamp), busy (another worker has it), fenced (another worker took over), finalized (nothing was left to do), failed.",
	}, []string{"outcome"})}
	if registry != nil {
		registry.MustRegister(m.attempts)
	}
	return m
}

// failed is how an attempt ends that can only be tried again.
const failed = "failed"

// nameOf names how an attempt has ended.
func nameOf(outcome job.Outcome, err error) string {
	_, waits := errors.AsType[*Waiting](err)
	switch {
	case err == nil && outcome.Problem == nil:
		return "drawn"
	case err == nil:
		return "refused"
	case waits:
		return "waiting"
	case errors.Is(err, ErrBusy):
		return "busy"
	case errors.Is(err, campaign.ErrFenced):
		return "fenced"
	case errors.Is(err, job.ErrFinal):
		return "finalized"
	}
	return failed
}
