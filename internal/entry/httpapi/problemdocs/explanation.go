package problemdocs

import (
	"strings"

	"triprize/internal/domain/fault"
)

// Explanation is what the manual says about a code, in the words of whoever
// wrote the request. Names of headers, members and paths stand in `backquotes`;
// there is no other markup.
type Explanation struct {
	Happened string // a paragraph: what was found, and what became of the request
	Retry    string // whether sending it again helps, and with which Idempotency-Key
	Remedy   string // what to do: one step a line, in order
}

// Steps returns the steps of the remedy.
func (e Explanation) Steps() []string { return strings.Split(e.Remedy, "\n") }

// Explain returns the explanation of a code; one that is not in the catalogue is
// explained like an internal error.
func Explain(c fault.Code) Explanation {
	if e, ok := explanations[c]; ok {
		return e
	}
	return explanations[fault.InternalError]
}

// The answers to "does it help to try again?". They follow from what is
// remembered under a key: a request that was refused before anything was done leaves
// the key unused; a conflict is recorded, so that a retry cannot turn it into a success
// that nobody waits for any more.
const (
	retryChanged  = "No. The same request gets the same answer: change it first."
	retryRepaired = "Once that is put right, with the same `Idempotency-Key`: nothing was done under it."
	retrySameKey  = "Yes, with the same `Idempotency-Key`, after the seconds in `Retry-After`."
	retryFreshKey = "Later, with a fresh `Idempotency-Key`: the old one is answered with this refusal again."
	retryFinal    = "No. This is a final answer."
)

// steps puts the steps of a remedy together.
func steps(all ...string) string { return strings.Join(all, "\n") }
