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

// Shown is a text of a document as it may stand on a terminal: a false document must not
// move the cursor over what was found.
func Shown(text string) string {
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

func ok(format string, args ...any) Check      { return checked(OK, format, args...) }
func failed(format string, args ...any) Check  { return checked(Failed, format, args...) }
func notMade(format string, args ...any) Check { return checked(NotMade, format, args...) }

func checked(status Status, format string, args ...any) Check {
	return Check{Status: status, Words: Shown(fmt.Sprintf(format, args...))}
}

func (r *Report) add(name string, c Check) {
	c.Name = name
	r.Checks = append(r.Checks, c)
}

// notOK are the checks that are not.
func (r *Report) notOK() []Check {
	return slices.DeleteFunc(slices.Clone(r.Checks), func(c Check) bool { return c.Status == OK })
}

// holds tells whether all checks so far are ok.
func (r *Report) holds() bool { return len(r.notOK()) == 0 }

// meaning says in words what a proof shows whose checks are all ok, and what it does not.
// docs/draw.md has the same as a table of who could do what.
func meaning(d *document) (shows, remains []string) {
	shows = []string{"The winners follow from the rules, the secret and the list of sold positions."}
	remains = []string{
		"Whether the list has every purchase: a buyer sees it with the proof of its own purchase (--purchase).",
		"The author of this document. It is not signed, and once the secret is public anybody can write another one that holds, with another list.",
		"Whether the operator made only one. If it showed you two freeze hashes for one campaign, it made two. That also happens when its database was restored from a backup; it owes an explanation either way.",
	}
	if d.user.Commitment != nil {
		shows = append(shows, "Nothing changed in rules and secret since you noted their commitment.")
	} else {
		remains = append(remains, "That rules and secret were fixed before the sale. If you noted the commitment then, name it (--commitment).")
	}
	if d.user.FreezeHash != nil {
		shows = append(shows, "Nothing changed after the list was frozen: you noted the hash of the freeze record.")
	} else {
		remains = append(remains, "That nothing changed after the list was frozen. If you noted the freeze hash before the draw, name it (--freeze-hash).")
	}
	if d.rules.Beacon == nil {
		return shows, append(remains, "With trust in the operator alone: it chose the secret, and could try many before it published one. "+
			"With the secret it can compute the winners of any list: it could buy the last positions, choose nonces, or hold the freeze back until the outcome suits. The proof does not show whether that was done.")
	}
	shows = append(shows, fmt.Sprintf("The draw took round %d of the beacon, which nobody could know before %s, unless most of the beacon's members work together. The freeze record names it, and says that the list was frozen at %s.",
		*d.Round, due(d), d.FrozenAt))
	remains = append(remains, "Whether the operator held a draw back whose outcome it did not like: a campaign that stays in drawing long after its round was due is a sign of it. Its round, list and secret are public then, and anybody can compute the outcome.")
	if d.Beacon.ChainHash != quicknet {
		remains = append(remains, "That nobody knew the round: you named its chain, and the maker of a chain can know every round beforehand.")
	}
	made := "That the record is older than the round. It could have been made afterwards, with an old time in it, choosing among the nonces and times until the outcome suited."
	if d.user.FreezeHash != nil {
		made += " It is older if you noted its freeze hash before " + due(d).String() + "."
	} else {
		made += " A freeze hash that was noted before the round was due tells."
	}
	return shows, append(remains, made)
}
