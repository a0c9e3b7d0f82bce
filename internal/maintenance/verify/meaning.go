package verify

import (
	"fmt"
	"slices"
)

// headline says in a few words how far a proof goes whose checks are all ok.
func headline(d *document) string {
	switch promised, witnesses := len(d.rules.Witness), d.witnesses(); {
	case promised == 0:
		return "verified"
	case len(d.stamps) == 0:
		return "verified, unwitnessed"
	case witnesses == 0:
		return "verified, stamped only by " + strangers(len(d.stamps)) + " that the operator named"
	default:
		return fmt.Sprintf("verified, witnessed by %d of %d", witnesses, promised)
	}
}

func strangers(n int) string {
	if n == 1 {
		return "an authority"
	}
	return "authorities"
}

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
	stamped, open := witnessed(d)
	return append(shows, stamped...), append(remains, open...)
}

// witnessed says what the tokens show, and what they do not.
func witnessed(d *document) (shows, remains []string) {
	n, all := d.witnesses(), len(d.stamps)
	if n > 0 {
		shows = append(shows, fmt.Sprintf("%d of the authorities that you named saw the freeze record before the round was due: the list, the secret and the choice of the round are older than the randomness.", n))
		remains = append(remains, "A witness shows that this record existed in time, not that it was the only one: an operator could have several records witnessed and keep the one whose outcome suits. "+
			"Nor does it show who made the record: the secret is public from the freeze on, and an authority stamps for anybody. What counts is the record that the operator showed to all before the round was due.")
		if all > n {
			remains = append(remains, "Anything more by the other tokens: they are of "+strangers(all-n)+" that only the operator named.")
		}
	} else {
		made := "It could have made the record afterwards, with an old time in it, choosing among the nonces and times until the outcome suited."
		if d.user.FreezeHash != nil {
			made += " It is older if you noted its freeze hash before " + due(d).String() + "."
		} else {
			made += " A freeze hash that was noted before the round was due tells."
		}
		switch {
		case all > 0:
			remains = append(remains, "That the record is older than the round. It is stamped by "+strangers(all)+" that only the operator named, which may be the operator itself: the tokens show no more than the beacon alone. "+made)
		case len(d.rules.Witness) > 0:
			remains = append(remains, "That the record is older than the round. The proof is unwitnessed: the rules promise a witness, and no token is there. "+made)
		default:
			remains = append(remains, "That the record is older than the round. The rules promise no witness. "+made)
		}
	}
	if slices.ContainsFunc(d.stamps, func(s stamp) bool { return s.early }) {
		remains = append(remains, "Which clock is right: a token is of more than a minute before the freeze record says that the list was frozen.")
	}
	return shows, remains
}
