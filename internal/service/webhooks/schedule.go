package webhooks

import (
	"math/rand/v2"
	"time"

	"triprize/internal/platform/webhookhttp"
	"triprize/internal/store/webhook"
)

// Schedule is how long a delivery waits after each attempt in vain. After the last of them
// it is tried once more, and then it has failed.
var Schedule = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
	2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 12 * time.Hour, 24 * time.Hour, 24 * time.Hour}

const (
	longestPause      = time.Hour // of an endpoint, so that it hears of everything within an hour of its return
	longestRetryAfter = 24 * time.Hour
	jitterPart        = 10 // waits are longer by up to a tenth, so that not all come back at once
	slowAfter         = 2 * time.Second
)

// retry returns when a delivery is tried again that was tried before times and once more;
// nil: never.
func retry(before int, answer webhookhttp.Answer) *time.Duration {
	if before >= len(Schedule) {
		return nil
	}
	wait := max(jittered(Schedule[before]), asked(answer))
	return &wait
}

// pause is how long an endpoint rests that has failed before times in a row, and once more.
func pause(before int) time.Duration {
	return jittered(min(Schedule[min(before, len(Schedule)-1)], longestPause))
}

func asked(answer webhookhttp.Answer) time.Duration {
	return min(answer.RetryAfter, longestRetryAfter)
}

func jittered(d time.Duration) time.Duration {
	return d + rand.N(d/jitterPart) //nolint:gosec // it spreads load and keeps no secret
}

// verdict says what becomes of an endpoint after a round. Its failures are those before it.
func verdict(failures int, sent []sent) (r webhook.Round) {
	unwell := false
	for _, s := range sent {
		r.Arrived = r.Arrived || s.answer.Arrived()
		r.Gone = r.Gone || s.answer.Gone()
		r.Slow = r.Slow || s.took >= slowAfter
		if s.answer.Unwell() {
			unwell = true
			r.Pause = max(r.Pause, asked(s.answer))
		}
	}
	r.Failed = !r.Arrived && len(sent) > 0 && (unwell || len(sent) > 1 || failures > 0) // one event alone may be one that the receiver cannot take
	if r.Failed {
		r.Slow = true
		r.Pause = max(r.Pause, pause(failures))
	}
	return r
}
