package fault

import "strings"

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

// Explanation returns the explanation of c; a code the catalogue does not know
// is explained like an internal error.
func (c Code) Explanation() Explanation {
	if e, ok := explanations[c]; ok {
		return e
	}
	return explanations[InternalError]
}

// The answers to "does it help to try again?". They follow from what is
// remembered under a key: an answer that was refused at the door leaves the key
// unused; a conflict is recorded, so that a retry cannot turn it into a success
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
