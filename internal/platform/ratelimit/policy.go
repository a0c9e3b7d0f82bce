package ratelimit

import (
	"crypto/sha256"
	"encoding/base64"
	"iter"
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

// The slack is a part of the burst, but at least minSlack where there is any: bursts of users are small.
const (
	slackDivisor = 20
	minSlack     = 4
)

// newPolicy returns a limit of rate requests per second and burst at once, or nil if the rate is 0.
func newPolicy(name string, rate, burst int) *policy {
	if rate == 0 {
		return nil
	}
	window := time.Duration(burst) * time.Second / time.Duration(rate)
	slack := burst / slackDivisor
	if slack > 0 {
		slack = max(slack, minSlack)
	}
	return &policy{
		name:     name,
		limit:    redis_rate.Limit{Rate: rate, Burst: burst, Period: time.Second},
		interval: time.Second / time.Duration(rate),
		slack:    slack,
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

// Verdict is whether a request is allowed, with the state of the limit that decided.
type Verdict struct {
	Allowed    bool
	Policy     string        // name of the limit; empty: none was checked, or Redis did not answer
	Limit      int           // requests at once
	Remaining  int           // of these, how many are left now
	Reset      time.Duration // until Remaining is Limit again
	RetryAfter time.Duration // until one is left; 0 when allowed

	header string // RateLimit-Policy
}

// Stricter returns the verdict of two to report: the one that rejects, or else the one with fewer requests left.
func (v Verdict) Stricter(other Verdict) Verdict {
	switch {
	case !v.Allowed || other.Policy == "":
		return v
	case !other.Allowed || v.Policy == "" || other.Remaining < v.Remaining:
		return other
	}
	return v
}

// RetryAfterSeconds returns the value of Retry-After: at least 1 for a rejected request, else 0.
func (v Verdict) RetryAfterSeconds() int {
	if v.Allowed {
		return 0
	}
	return seconds(v.RetryAfter)
}

// Headers returns the header fields of draft-ietf-httpapi-ratelimit-headers-11, or none if no limit was checked:
//
//	RateLimit-Policy: "user";q=20;w=2   20 requests at once, and again after 2 s without any
//	RateLimit: "user";r=5;t=2           5 left; all are back in 2 s
//
// Seconds are rounded up. For a rejected request t equals Retry-After, because the draft forbids less.
func (v Verdict) Headers() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		if v.Policy == "" {
			return
		}
		window := seconds(v.Reset)
		if !v.Allowed {
			window = v.RetryAfterSeconds()
		}
		left := quoted(v.Policy) + ";r=" + strconv.Itoa(v.Remaining) + ";t=" + strconv.Itoa(window)
		_ = yield("RateLimit-Policy", v.header) && yield("RateLimit", left)
	}
}

// seconds rounds up to whole seconds, and to at least one.
func seconds(d time.Duration) int {
	return max(1, int((d+time.Second-1)/time.Second))
}

func quoted(name string) string { return `"` + name + `"` }
