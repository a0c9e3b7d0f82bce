package ratelimit

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
)

// policy is a limit with its name in the headers.
type policy struct {
	name     string
	limit    redis_rate.Limit
	interval time.Duration // in which the burst recovers one request
	slack    int           // requests that are allowed before they are charged in Redis
	header   string        // RateLimit-Policy
}

// slackDivisor is the divisor of the burst that gives the slack.
const slackDivisor = 20

// newPolicy returns a limit of rate requests per second and burst at once, or nil if the rate is 0.
func newPolicy(name string, rate, burst int) *policy {
	if rate == 0 {
		return nil
	}
	window := time.Duration(burst) * time.Second / time.Duration(rate)
	return &policy{
		name:     name,
		limit:    redis_rate.Limit{Rate: rate, Burst: burst, Period: time.Second},
		interval: time.Second / time.Duration(rate),
		slack:    burst / slackDivisor,
		header:   quoted(name) + ";q=" + strconv.Itoa(burst) + ";w=" + strconv.Itoa(seconds(window)),
	}
}

// key returns a digest of owner: clients choose these names, so they may be long or personal.
func (p *policy) key(owner ...string) string {
	digest := sha256.Sum256([]byte(strings.Join(owner, "\x00")))
	return p.name + ":" + base64.RawURLEncoding.EncodeToString(digest[:])
}

// pass is the verdict for an allowed request; the burst has recovered after reset.
func (p *policy) pass(reset time.Duration) Verdict {
	return Verdict{Allowed: true, Policy: p.name, Limit: p.limit.Burst, Remaining: p.left(reset), Reset: reset, header: p.header}
}

// refusal is the verdict for a request that would be allowed after wait.
func (p *policy) refusal(reset, wait time.Duration) Verdict {
	return Verdict{Policy: p.name, Limit: p.limit.Burst, Reset: reset, RetryAfter: wait, header: p.header}
}

// left returns how many requests are left if the burst has recovered after reset. redis_rate rounds down and
// returns 18 if one of 20 is used. Redis counts in microseconds, so one is subtracted before rounding.
func (p *policy) left(reset time.Duration) int {
	used := (reset - time.Microsecond).Seconds() * float64(p.limit.Rate)
	return max(0, int(float64(p.limit.Burst)-used))
}
