package problemdocs

import (
	"strings"

	"triprize/internal/domain/fault"
)

// Explanation is what the manual says about a code, for the developer of a client.
// Names of headers, members and paths are in `backquotes`; there is no other markup.
type Explanation struct {
	Happened string // a paragraph: what is wrong, and what was done about the request
	Retry    string // whether sending it again helps, and with which Idempotency-Key
	Remedy   string // what to do: one step a line, in order
}

// Steps returns the steps of the remedy.
func (e Explanation) Steps() []string { return strings.Split(e.Remedy, "\n") }

// Explain returns the explanation of a code; that of an internal error for an
// unknown code.
func Explain(c fault.Code) Explanation {
	if e, ok := explanations[c]; ok {
		return e
	}
	return explanations[fault.InternalError]
}

// The answers to "does it help to try again?". They follow from what is recorded
// under a key. A request that was refused before anything was done leaves the key
// unused. A conflict is recorded, so that a late retry cannot succeed after the
// client has given up.
const (
	retryChanged  = "No. The same request gets the same answer: change it first."
	retryRepaired = "Yes, once that is corrected, with the same `Idempotency-Key`: nothing was done under it."
	retrySameKey  = "Yes, with the same `Idempotency-Key`, after the seconds in `Retry-After`."
	retryFreshKey = "Later, with a fresh `Idempotency-Key`: the old one gets this refusal again."
	retryFinal    = "No. This is a final answer."
)

// steps joins the steps of a remedy.
func steps(all ...string) string { return strings.Join(all, "\n") }
