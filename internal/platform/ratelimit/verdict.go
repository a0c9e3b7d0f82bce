package ratelimit

import (
	"iter"
	"strconv"
	"time"
)

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
