package stripesim

import (
	"math"
	"sync"

	"golang.org/x/time/rate"
)

// limits count requests as Stripe does: all together, and each endpoint.
type limits struct {
	mu       sync.Mutex
	all      *rate.Limiter
	endpoint float64
	of       map[string]*rate.Limiter
}

func newLimits(all, endpoint int) *limits {
	return &limits{all: limiter(perSecond(all)), endpoint: perSecond(endpoint), of: make(map[string]*rate.Limiter)}
}

// perSecond reads a setting; a negative one is no limit.
func perSecond(n int) float64 {
	if n < 0 {
		return math.Inf(1)
	}
	return float64(n)
}

func limiter(per float64) *rate.Limiter {
	if math.IsInf(per, 1) {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(per), int(per))
}

// admit returns why a request is too many; empty if it is not.
func (l *limits) admit(endpoint string) string {
	l.mu.Lock()
	one := l.of[endpoint]
	if one == nil {
		one = limiter(l.endpoint)
		l.of[endpoint] = one
	}
	l.mu.Unlock()
	switch {
	case !one.Allow():
		return "endpoint-rate"
	case !l.all.Allow():
		return "global-rate"
	}
	return ""
}
