package ratelimit

import (
	"cmp"
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
	settings.Budget = cmp.Or(settings.Budget, 50*time.Millisecond) // then this process counts alone
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
		charged, result, err := l.ask(ctx, p, key, owed)
		switch {
		case errors.Is(err, errSuspended): // Redis has not heard of them
			l.local.settle(p, key, owed-1, 0)
		case err != nil: // it may have: to charge them twice would be worse
			l.local.settle(p, key, 0, 0)
		default:
			l.local.settle(p, key, max(0, owed-1-charged), result.ResetAfter)
		}
		if err != nil {
			l.away.Inc()
			return l.local.charge(p, key)
		}
		if verdict = p.pass(result.ResetAfter); charged < owed {
			verdict = p.refusal(result.ResetAfter, result.RetryAfter)
		}
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

// ask charges n requests to a limit in Redis. When these are too many it charges as many of those
// before the last one as are left: AllowAtMost would also charge a part of one, and lose it.
func (l *Limiter) ask(ctx context.Context, p *policy, key string, n int) (charged int, result *redis_rate.Result, err error) {
	if l.scripts.suspended() {
		return 0, nil, errSuspended
	}
	ctx, cancel := context.WithTimeout(ctx, l.budget)
	defer cancel()
	if result, err = l.gcra.AllowN(ctx, key, p.limit, n); err != nil || result.Allowed == n {
		return n, result, err
	}
	left := min(n-1, p.left(result.ResetAfter))
	if left <= 0 {
		return 0, result, nil
	}
	paid, err := l.gcra.AllowN(ctx, key, p.limit, left)
	if err != nil || paid.Allowed == 0 { // another process was faster
		return 0, result, err
	}
	result.ResetAfter = paid.ResetAfter
	return left, result, nil
}
