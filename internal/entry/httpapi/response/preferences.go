// Package response has what the answers to several operations share.
//
// That is entity tags, the results of commands and jobs, pages of lists, event streams, and
// bodies that are sent as slowly as they are read.
package response

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/job"
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

// Enough reports whether a job has come as far as the client waits for.
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

// Accepted returns the media type that a client likes best, of those that an answer can have
// (RFC 9110, section 12.5.1): the first one, unless it asks for another. Media types are compared
// without case, and without parameters but q.
func Accepted(c *fiber.Ctx, offers ...string) string {
	header := string(bytes.Join(c.Request().Header.PeekAll(fiber.HeaderAccept), []byte(",")))
	best, most := offers[0], [3]float64{}
	for _, offer := range offers {
		if w := weightOf(header, offer); w[0] > 0 && slices.Compare(w[:], most[:]) > 0 {
			best, most = offer, w
		}
	}
	return best
}

// weightOf returns the weight that a header gives to a media type, by that of its most exact range: the
// quality, how exact it is (3: the type; 2: type/*; 1: */*), and minus its place in the header.
func weightOf(header, media string) (found [3]float64) {
	family, _, _ := strings.Cut(media, "/")
	at := 0.0
	for text := range strings.SplitSeq(header, ",") {
		at++
		name, parameters, _ := strings.Cut(text, ";")
		w := [3]float64{1, 0, -at}
		switch name = strings.TrimSpace(name); {
		case strings.EqualFold(name, media):
			w[1] = 3
		case strings.EqualFold(name, family+"/*"):
			w[1] = 2
		case name == "*/*":
			w[1] = 1
		}
		for parameter := range strings.SplitSeq(parameters, ";") {
			if key, value, _ := strings.Cut(parameter, "="); strings.EqualFold(strings.TrimSpace(key), "q") {
				if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && q >= 0 && q <= 1 {
					w[0] = q
				}
			}
		}
		if w[1] > found[1] || w[1] > 0 && w[1] == found[1] && w[0] > found[0] {
			found = w
		}
	}
	return found
}
