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
	name   string
	limit  redis_rate.Limit
	header string // RateLimit-Policy
}

// newPolicy returns the limit of rate requests per second and burst at once,
// or nil when the rate is 0.
func newPolicy(name string, rate, burst int) *policy {
	if rate == 0 {
		return nil
	}
	window := time.Duration(burst) * time.Second / time.Duration(rate)
	return &policy{
		name:   name,
		limit:  redis_rate.Limit{Rate: rate, Burst: burst, Period: time.Second},
		header: quoted(name) + ";q=" + strconv.Itoa(burst) + ";w=" + strconv.Itoa(seconds(window)),
	}
}

// key is a digest of owner: clients choose these names, so they may be long or
// personal.
func (p *policy) key(owner ...string) string {
	digest := sha256.Sum256([]byte(strings.Join(owner, "\x00")))
	return p.name + ":" + base64.RawURLEncoding.EncodeToString(digest[:])
}

func (p *policy) verdict(result *redis_rate.Result) Verdict {
	v := Verdict{Allowed: result.Allowed > 0, Policy: p.name, Limit: p.limit.Burst, Reset: result.ResetAfter, header: p.header}
	if v.Allowed {
		v.Remaining = p.left(v.Reset)
	} else {
		v.RetryAfter = result.RetryAfter
	}
	return v
}

// left returns how many requests are left when the burst is whole again after
// reset. redis_rate rounds its own number down and says 18 when one of 20 is used.
// Redis counts in microseconds, so one microsecond is taken off before rounding.
func (p *policy) left(reset time.Duration) int {
	used := (reset - time.Microsecond).Seconds() * float64(p.limit.Rate)
	return max(0, int(float64(p.limit.Burst)-used))
}
