package ratelimit

import (
	"context"
	"errors"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
)

// Limiter checks requests against the limits of their users and clients.
type Limiter struct {
	user, client *policy // nil: there is no such limit
	address      *policy
	wrongKey     *policy // by address
	userRead     *policy
	clientRead   *policy
	gcra         *redis_rate.Limiter
	scripts      *scripts
	local        *local
	anonymous    *local // beside local, so that they use up no room of those with a credential
	budget       time.Duration

	passed, limited, away prometheus.Counter
}

// New returns a Limiter whose outcomes are counted in registry, if there is
// one. Close it.
func New(rdb redis.UniversalClient, namespace string, settings config.Limits, registry prometheus.Registerer) *Limiter {
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "triprize_rate_limits_total",
		Help: "Checks of a rate limit by outcome: passed, limited, or away (counted by this process alone, without an answer of Redis).",
	}, []string{"outcome"})
	if registry != nil {
		registry.MustRegister(outcomes)
	}
	shared := newScripts(rdb, namespace, settings.Budget)
	return &Limiter{
		user:       newPolicy("user", settings.UserRate, settings.UserBurst),
		client:     newPolicy("client", settings.ClientRate, settings.ClientBurst),
		address:    newPolicy("address", settings.AddressRate, settings.AddressBurst),
		wrongKey:   newPolicy("wrong-key", settings.AddressRate, settings.AddressBurst),
		userRead:   newPolicy("user-read", userReads*settings.UserRate, userReads*settings.UserBurst),
		clientRead: newPolicy("client-read", settings.ClientRate, settings.ClientBurst),
		gcra:       redis_rate.NewLimiter(shared),
		scripts:    shared,
		local:      newLocal(),
		anonymous:  newLocal(),
		budget:     settings.Budget,
		passed:     outcomes.WithLabelValues("passed"),
		limited:    outcomes.WithLabelValues("limited"),
		away:       outcomes.WithLabelValues("away"),
	}
}

// Close stops asking Redis; for later requests this process counts alone.
func (l *Limiter) Close() { l.scripts.checks.Close() }

// User charges one request to a user of a client.
func (l *Limiter) User(ctx context.Context, client, user string) Verdict {
	return l.charge(ctx, l.user, client, user)
}

// Client charges one request to a client.
func (l *Limiter) Client(ctx context.Context, client string) Verdict {
	return l.charge(ctx, l.client, client)
}

// userReads is how many reads a user has for each other request: a page reads several
// things before its user does one.
const userReads = 4

// Address charges one request without a credential to the address that it comes from. Each
// process counts alone, here and in the next three: what it counts costs Redis nothing.
func (l *Limiter) Address(address string) Verdict { return l.alone(l.anonymous, l.address, address) }

// WrongKey charges one request with a wrong credential to the address that it comes from.
func (l *Limiter) WrongKey(address string) Verdict { return l.alone(l.anonymous, l.wrongKey, address) }

// UserRead charges one read to a user of a client.
func (l *Limiter) UserRead(client, user string) Verdict {
	return l.alone(l.local, l.userRead, client, user)
}

// ClientRead charges one read to a client.
func (l *Limiter) ClientRead(client string) Verdict { return l.alone(l.local, l.clientRead, client) }

// alone charges one request in this process.
func (l *Limiter) alone(in *local, p *policy, owner ...string) Verdict {
	if p == nil {
		return Verdict{Allowed: true}
	}
	verdict := in.charge(p, p.key(owner...))
	if verdict.Allowed {
		l.passed.Inc()
	} else {
		l.limited.Inc()
	}
	return verdict
}

// charge charges one request to the limit p of owner, which all processes share. Redis is
// told when the slack is used up. When it does not answer within the budget, this process counts
// alone.
func (l *Limiter) charge(ctx context.Context, p *policy, owner ...string) Verdict {
	if p == nil {
		return Verdict{Allowed: true}
	}
	key := p.key(owner...)
	verdict, owed := l.local.chargeAhead(p, key)
	if owed > 0 {
		result, err := l.ask(ctx, p, key, owed)
		l.local.settle(p, key, owed, result)
		if err != nil {
			l.away.Inc()
			return l.local.charge(p, key)
		}
		verdict = p.verdict(result, owed)
	}
	if verdict.Allowed {
		l.passed.Inc()
	} else {
		l.limited.Inc()
	}
	return verdict
}

// errSuspended means that Redis is left alone for the moment.
var errSuspended = errors.New("ratelimit: Redis has not answered lately")

// ask charges n requests to a limit in Redis, or as many as are left.
func (l *Limiter) ask(ctx context.Context, p *policy, key string, n int) (*redis_rate.Result, error) {
	if l.scripts.suspended() {
		return nil, errSuspended
	}
	ctx, cancel := context.WithTimeout(ctx, l.budget)
	defer cancel()
	return l.gcra.AllowAtMost(ctx, key, p.limit, n)
}
