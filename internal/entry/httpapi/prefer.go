package httpapi

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"triprize/internal/store/job"
)

// preferredWait is how a client wants to wait for a job (Prefer: wait=10).
type preferredWait struct {
	longest    time.Duration // 0: it does not wait
	untilFinal bool          // until=final: an action that the buyer owes is no reason to answer
}

// waitIn returns the wait that a Prefer header asks for, as long as longest at most:
// wait=N, and perhaps the parameter until=final (RFC 7240).
func waitIn(prefer string, longest time.Duration) (w preferredWait) {
	for preference := range strings.SplitSeq(prefer, ",") {
		first, parameters, _ := strings.Cut(preference, ";")
		name, value := nameAndValue(first)
		if name != "wait" {
			continue
		}
		seconds, err := strconv.Atoi(value)
		if err != nil || seconds <= 0 {
			continue
		}
		w.longest = min(time.Duration(min(seconds, 1<<20))*time.Second, longest)
		for parameter := range strings.SplitSeq(parameters, ";") {
			name, value := nameAndValue(parameter)
			w.untilFinal = w.untilFinal || name == "until" && strings.EqualFold(value, "final")
		}
		return w
	}
	return preferredWait{}
}

// nameAndValue reads name=value, the name in small letters and the value without quotes.
func nameAndValue(text string) (name, value string) {
	name, value, _ = strings.Cut(text, "=")
	return strings.ToLower(strings.TrimSpace(name)), strings.Trim(strings.TrimSpace(value), `"`)
}

// String is the wait as Preference-Applied says it.
func (w preferredWait) String() string {
	text := "wait=" + strconv.Itoa(int(w.longest.Seconds()))
	if w.untilFinal {
		text += "; until=final"
	}
	return text
}

// enough tells whether a job has come as far as the client waits for.
func (w preferredWait) enough(j job.Job) bool {
	return j.State.Final() || j.State == job.AwaitingAction && !w.untilFinal
}

// finalStatus is the status of a POST whose job is final: 200 for a client that
// preferred to wait, always 202 for others.
func (w preferredWait) finalStatus() int {
	if w.longest > 0 {
		return http.StatusOK
	}
	return http.StatusAccepted
}

// actionRetryAfter is after how many seconds to ask again whether the buyer has done what
// is awaited.
const actionRetryAfter = 2

// askAgainAfter returns after how many seconds a client should ask for a job again: not
// before it goes on, if that is known.
func (s *Server) askAgainAfter(j job.Job) int {
	seconds := s.backlog.retryAfter(j.Kind)
	if j.State == job.AwaitingAction {
		seconds = max(seconds, actionRetryAfter)
	}
	if j.Progress != nil && j.Progress.Waiting != nil {
		seconds = max(seconds, int(math.Ceil(time.Until(j.Progress.Waiting.RetryAt).Seconds())))
	}
	return min(seconds, maxRetryAfter)
}
