package verify

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"triprize.example/draw/fairdraw"
)

// Status is how a check ended.
type Status string

// How a check ends. A check that was not made never counts as verified.
const (
	OK      Status = "ok"
	Failed  Status = "failed"
	NotMade Status = "not-made"
)

// Check is the outcome of one check.
type Check struct {
	Name   string `json:"name"` // of the list in docs/draw.md
	Status Status `json:"status"`
	Words  string `json:"words"` // what was found, or why not
}

// Report is what a verification found.
type Report struct {
	OK         bool                   `json:"ok"`       // every check is
	Headline   string                 `json:"headline"` // "verified", or "not verified"
	CampaignID uuid.UUID              `json:"campaign_id"`
	Checks     []Check                `json:"checks"`
	Won        []fairdraw.ProofWinner `json:"won,omitempty"`     // prizes of the proof of purchase, if everything is ok
	Winners    []fairdraw.ProofWinner `json:"winners,omitempty"` // if everything is ok
	Shows      []string               `json:"shows"`             // what the proof shows; empty when a check is not ok
	Remains    []string               `json:"remains"`           // what it does not show

	// OnlyChainUnknown tells that all other checks are ok: the draw is as good as its chain.
	OnlyChainUnknown bool `json:"only_chain_unknown,omitempty"`
}

// Failed returns the names of the checks that failed.
func (r Report) Failed() (names []string) {
	for _, c := range r.Checks {
		if c.Status == Failed {
			names = append(names, c.Name)
		}
	}
	return names
}

// shown is a text of a document as it may stand on a terminal: a false document must not
// move the cursor over what was found.
func shown(text string) string {
	const longest = 2000 // bytes: it may quote a document
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// outcome is how a check ended, and why.
type outcome struct {
	status Status
	words  string
}

func ok(format string, args ...any) outcome     { return outcome{OK, fmt.Sprintf(format, args...)} }
func failed(format string, args ...any) outcome { return outcome{Failed, fmt.Sprintf(format, args...)} }
func notMade(format string, args ...any) outcome {
	return outcome{NotMade, fmt.Sprintf(format, args...)}
}

func (r *Report) add(name string, o outcome) {
	r.Checks = append(r.Checks, Check{name, o.status, shown(o.words)})
}

// notOK are the checks that are not.
func (r *Report) notOK() []Check {
	return slices.DeleteFunc(slices.Clone(r.Checks), func(c Check) bool { return c.Status == OK })
}

// holds tells whether all checks so far are ok.
func (r *Report) holds() bool { return len(r.notOK()) == 0 }
