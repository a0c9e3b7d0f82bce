package verify

import "fmt"

// meaning says in words what a proof shows whose checks are all ok, and what it does not.
// docs/draw.md has the same as a table of who could do what.
func meaning(d *document) (shows, remains []string) {
	shows = []string{
		"The winners follow from the rules, the secret and the list of sold positions. Nobody picked them by hand.",
		fmt.Sprintf("Rules and secret belong to the commitment %s. If you know it from before the sale, neither was changed.", d.Commitment),
	}
	remains = []string{
		"Whether the list has every purchase: a buyer sees it with the proof of its own purchase (--purchase).",
		"Who made this document. It is not signed, and once the secret is public anybody can write another one that holds, with another list. " +
			"Compare its commitment with the one that was published before the sale, and its freeze hash with the one that was shown before the draw.",
		"Whether the operator made only one. If it showed you two freeze hashes for one campaign, it made two. That also happens when its database was restored from a backup; it owes an explanation either way.",
	}
	if d.rules.Beacon == nil {
		remains = append(remains, "With trust in the operator alone: it chose the secret, and could try many before it published one. "+
			"Who knows the secret can compute the winners of any list: it could buy the last positions, choose nonces, or hold the freeze back until the outcome suits. The proof does not show whether that was done.")
		return shows, remains
	}
	shows = append(shows, fmt.Sprintf("The draw took round %d of a public beacon, which nobody could know before %s. The freeze record names it, and says that the list was frozen at %s.",
		*d.Round, due(d), d.FrozenAt))
	remains = append(remains, "Whether the operator held a draw back whose outcome it did not like: a campaign that stays in drawing long after its round was due is a sign of it. Its round and secret are public then, and anybody can compute the outcome.")
	if len(d.Witness) > 0 {
		shows = append(shows, fmt.Sprintf("%d independent authorities saw the freeze record before the round was due: the list, the secret and the choice of the round are older than the randomness.", len(d.Witness)))
		remains = append(remains, "A witness shows that this record existed in time, not that it was the only one: an operator could have several records witnessed and keep the one whose outcome suits. "+
			"Nor does it show who made the record: the secret is public from the freeze on, and an authority stamps for anybody. What counts is the record that the operator showed to all before the round was due.")
		return shows, remains
	}
	remains = append(remains, "The proof is unwitnessed: only the operator's word, and whoever saw the freeze record in time, say that the record is older than the round. "+
		"It could have made it afterwards, with an old time in it, choosing among the nonces and times until the outcome suited.")
	return shows, remains
}
