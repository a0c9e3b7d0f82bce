// Package ratelimit limits the requests of users, clients and addresses (GCRA, in Redis).
//
// [Limiter.Client] and [Limiter.User] charge one request each and return a [Verdict]. All api processes
// share the limits. A process allows a twentieth of a burst, but at least four requests, its slack, by its own count, and
// then charges it in Redis at once. So a single process never exceeds the limit, and each of several exceeds it by at
// most its slack. Requests that are still uncharged when the burst has recovered are charged later: then up to the slack
// too few are allowed. A burst under 20 has no slack.
//
//	ns:rate:user:<digest of client and user>  when the user has its whole burst again
//	ns:rate:client:<digest of client>         the same for the client
//
// Requests without a credential are charged to their address ([Limiter.Address]), in each process
// separately. The limit of a user is per client, because two clients may use the same user name.
//
// Without Redis each process counts separately. After Redis has lost its keys, all have a whole burst.
package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
)

// Limiter checks requests against the limits of their users and clients.
type Limiter struct {
	user, client *policy // nil: no limit
	address      *policy
	wrongKey     *policy // by address
	userRead     *policy
	clientRead   *policy
	gcra         *redis_rate.Limiter
	scripts      *scripts
	local        *local
	anonymous    *local // separate, so that they evict no owners with a credential
	budget       time.Duration

	passed, limited, unavailable prometheus.Counter
}

// New returns a Limiter. registry may be nil. Close the Limiter.
func New(rdb redis.UniversalClient, namespace string, settings config.Limits, registry prometheus.Registerer) *Limiter {
	outcomes := promauto.With(registry).NewCounterVec(prometheus.CounterOpts{Name: "triprize_rate_limits_total",
		Help: "Checks of a rate limit by outcome: passed, limited, or unavailable (counted by this process alone, because Redis did not answer)."}, []string{"outcome"})
	settings.Budget = cmp.Or(settings.Budget, 50*time.Millisecond) // then this process counts separately
	shared := newScripts(rdb, namespace, settings.Budget)
	return &Limiter{
		user:        newPolicy("user", settings.UserRate, settings.UserBurst),
		client:      newPolicy("client", settings.ClientRate, settings.ClientBurst),
		address:     newPolicy("address", settings.AddressRate, settings.AddressBurst),
		wrongKey:    newPolicy("wrong-key", settings.AddressRate, settings.AddressBurst),
		userRead:    newPolicy("user-read", userReads*settings.UserRate, userReads*settings.UserBurst),
		clientRead:  newPolicy("client-read", settings.ClientRate, settings.ClientBurst),
		gcra:        redis_rate.NewLimiter(shared),
		scripts:     shared,
		local:       newLocal(),
		anonymous:   newLocal(),
		budget:      settings.Budget,
		passed:      outcomes.WithLabelValues("passed"),
		limited:     outcomes.WithLabelValues("limited"),
		unavailable: outcomes.WithLabelValues("unavailable"),
	}
}

// Close ends the use of Redis; later requests are counted by this process alone.
func (l *Limiter) Close() { l.scripts.checks.Close() }

// User charges one request to a user of a client.
func (l *Limiter) User(ctx context.Context, client, user string) Verdict {
	return l.chargeShared(ctx, l.user, client, user)
}

// Client charges one request to a client.
func (l *Limiter) Client(ctx context.Context, client string) Verdict {
	return l.chargeShared(ctx, l.client, client)
}

// userReads is how many reads a user has per other request: a page reads several resources per action.
const userReads = 4

// Address charges one request without a credential to its address. Each process counts separately, here and in
// the next three, which costs Redis nothing.
func (l *Limiter) Address(address string) Verdict {
	return l.chargeLocal(l.anonymous, l.address, address)
}

// WrongKey charges one request with a wrong credential to its address.
func (l *Limiter) WrongKey(address string) Verdict {
	return l.chargeLocal(l.anonymous, l.wrongKey, address)
}

// UserRead charges one read to a user of a client.
func (l *Limiter) UserRead(client, user string) Verdict {
	return l.chargeLocal(l.local, l.userRead, client, user)
}

// ClientRead charges one read to a client.
func (l *Limiter) ClientRead(client string) Verdict {
	return l.chargeLocal(l.local, l.clientRead, client)
}

// chargeLocal charges one request in this process only.
func (l *Limiter) chargeLocal(in *local, p *policy, owner ...string) Verdict {
	if p == nil {
		return Verdict{Allowed: true}
	}
	return l.count(in.charge(p, p.key(owner...)))
}

func (l *Limiter) count(verdict Verdict) Verdict {
	if verdict.Allowed {
		l.passed.Inc()
	} else {
		l.limited.Inc()
	}
	return verdict
}

// chargeShared charges one request to the shared limit p of owner, in Redis if the slack is used up. If Redis does
// not answer within the budget, this process counts separately.
func (l *Limiter) chargeShared(ctx context.Context, p *policy, owner ...string) Verdict {
	if p == nil {
		return Verdict{Allowed: true}
	}
	key := p.key(owner...)
	verdict, owed := l.local.chargeAhead(p, key)
	if owed > 0 {
		charged, result, err := l.chargeRedis(ctx, p, key, owed)
		switch {
		case errors.Is(err, errSuspended): // Redis has not charged them
			l.local.settle(p, key, owed-1, 0)
		case err != nil: // it may have: charging them twice would be worse
			l.local.settle(p, key, 0, 0)
		default:
			l.local.settle(p, key, max(0, owed-1-charged), result.ResetAfter)
		}
		if err != nil {
			l.unavailable.Inc()
			return l.local.charge(p, key)
		}
		if verdict = p.pass(result.ResetAfter); charged < owed {
			verdict = p.refusal(result.ResetAfter, result.RetryAfter)
		}
	}
	return l.count(verdict)
}

// errSuspended means that the breaker is open.
var errSuspended = errors.New("ratelimit: Redis has not answered lately")

// chargeRedis charges n requests to a limit in Redis. If they exceed it, it charges as many of the first n-1 as are
// left: AllowAtMost would also charge a fraction of a request.
func (l *Limiter) chargeRedis(ctx context.Context, p *policy, key string, n int) (charged int, result *redis_rate.Result, err error) {
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
	rest, err := l.gcra.AllowN(ctx, key, p.limit, left)
	if err != nil || rest.Allowed == 0 { // another process was faster
		return 0, result, err
	}
	result.ResetAfter = rest.ResetAfter
	return left, result, nil
}
