package ratelimit

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
)

// Limiter checks requests against the limits of their users and clients.
type Limiter struct {
	user, client *policy // nil: there is no such limit
	gcra         *redis_rate.Limiter
	scripts      *scripts
	budget       time.Duration

	passed, limited, away prometheus.Counter
}

// New returns a Limiter whose outcomes are counted in registry, if there is
// one. Close it.
func New(rdb redis.UniversalClient, namespace string, settings config.Limits, registry prometheus.Registerer) *Limiter {
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "triprize_rate_limits_total",
		Help: "Requests held against a rate limit by outcome: passed, limited, or away (passed without an answer of Redis).",
	}, []string{"outcome"})
	if registry != nil {
		registry.MustRegister(outcomes)
	}
	shared := newScripts(rdb, namespace, settings.Budget)
	return &Limiter{
		user:    newPolicy("user", settings.UserRate, settings.UserBurst),
		client:  newPolicy("client", settings.ClientRate, settings.ClientBurst),
		gcra:    redis_rate.NewLimiter(shared),
		scripts: shared,
		budget:  settings.Budget,
		passed:  outcomes.WithLabelValues("passed"),
		limited: outcomes.WithLabelValues("limited"),
		away:    outcomes.WithLabelValues("away"),
	}
}

// Close stops checking; later requests pass.
func (l *Limiter) Close() { l.scripts.checks.Close() }

// Allow charges one request to a user of a client, and to the client. The
// verdict is that of the limit that refuses, or else of the one with fewer
// requests left. A request passes when Redis does not answer within the budget.
func (l *Limiter) Allow(ctx context.Context, client, user string) Verdict {
	verdict := Verdict{Allowed: true}
	if l.client == nil && (l.user == nil || user == "") {
		return verdict
	}
	if l.scripts.suspended() {
		l.away.Inc()
		return verdict
	}
	ctx, cancel := context.WithTimeout(ctx, l.budget)
	defer cancel()
	if l.user != nil && user != "" {
		checked, err := l.check(ctx, l.user, client, user)
		if err != nil {
			l.away.Inc()
			return verdict
		}
		verdict = checked
	}
	if l.client != nil && verdict.Allowed {
		checked, err := l.check(ctx, l.client, client)
		if err != nil {
			l.away.Inc()
			return verdict
		}
		if !checked.Allowed || verdict.Policy == "" || checked.Remaining < verdict.Remaining {
			verdict = checked
		}
	}
	if verdict.Allowed {
		l.passed.Inc()
	} else {
		l.limited.Inc()
	}
	return verdict
}

// check charges one request to the limit p of owner.
func (l *Limiter) check(ctx context.Context, p *policy, owner ...string) (Verdict, error) {
	result, err := l.gcra.Allow(ctx, p.key(owner...), p.limit)
	if err != nil {
		return Verdict{}, err
	}
	return p.verdict(result), nil
}
