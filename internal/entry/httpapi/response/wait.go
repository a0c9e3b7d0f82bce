package response

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"triprize/internal/store/job"
)

// Wait is how a client wants to wait for a job (Prefer: wait=10).
type Wait struct {
	Longest    time.Duration // 0: it does not wait
	UntilFinal bool          // until=final: an action that the buyer owes is no reason to answer
}

// WaitIn returns the wait that a Prefer header asks for, as long as longest at most:
// wait=N, and perhaps the parameter until=final (RFC 7240).
func WaitIn(prefer string, longest time.Duration) (w Wait) {
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
		w.Longest = min(time.Duration(min(seconds, 1<<20))*time.Second, longest)
		for parameter := range strings.SplitSeq(parameters, ";") {
			name, value := nameAndValue(parameter)
			w.UntilFinal = w.UntilFinal || name == "until" && strings.EqualFold(value, "final")
		}
		return w
	}
	return Wait{}
}

// nameAndValue reads name=value, the name in small letters and the value without quotes.
func nameAndValue(text string) (name, value string) {
	name, value, _ = strings.Cut(text, "=")
	return strings.ToLower(strings.TrimSpace(name)), strings.Trim(strings.TrimSpace(value), `"`)
}

// String is the wait as Preference-Applied says it.
func (w Wait) String() string {
	text := "wait=" + strconv.Itoa(int(w.Longest.Seconds()))
	if w.UntilFinal {
		text += "; until=final"
	}
	return text
}

// Enough tells whether a job has come as far as the client waits for.
func (w Wait) Enough(j job.Job) bool {
	return j.State.Final() || j.State == job.AwaitingAction && !w.UntilFinal
}

// FinalStatus is the status of a POST whose job is final: 200 for a client that
// preferred to wait, always 202 for others.
func (w Wait) FinalStatus() int {
	if w.Longest > 0 {
		return http.StatusOK
	}
	return http.StatusAccepted
}
