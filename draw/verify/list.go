package verify

import (
	"reflect"

	"triprize.example/draw/fairdraw"
)

func (d *document) checkRules() outcome {
	d.rulesFailed = true
	rules, err := fairdraw.ParseRules(d.Rules)
	if err != nil {
		return failed("%s", err)
	}
	if err := rules.Check(d.CampaignID); err != nil {
		return failed("%s", err)
	}
	d.rules, d.rulesFailed = rules, false
	return ok("%d positions in %d layers, %d prizes", rules.Count(), len(rules.Layers), len(rules.Prizes))
}

func (d *document) checkCommitment() outcome {
	if got := fairdraw.Hash(fairdraw.Commitment(d.CampaignID, d.Rules, d.Secret[:])); got != d.Commitment {
		return failed("rules and secret give %s, and the document says %s", got, d.Commitment)
	}
	return ok("rules and secret are those that were committed to before the sale, if %s was published then", d.Commitment)
}

func (d *document) checkSoldList() outcome {
	d.listFailed = true
	for i, line := range d.sold {
		switch at := line.Position(); {
		case i > 0 && !d.sold[i-1].Position().Before(at):
			return failed("the list is not in order at position %v", at)
		case at.Column < 1 || at.Column > d.rules.Positions(at.Layer):
			return failed("position %v is none of the rules", at)
		}
	}
	d.listFailed = false
	return ok("%d positions of the rules, each once, in order", len(d.sold))
}

func (d *document) checkCount() outcome {
	if len(d.sold) != d.Count {
		return failed("%d positions are listed, and count is %d", len(d.sold), d.Count)
	}
	switch total := d.rules.Count(); {
	case d.Count == total:
		return ok("all %d positions are sold", total)
	case d.rules.Unsold == nil:
		return failed("%d of %d positions are sold, and the rules do not allow a draw before all are", d.Count, total)
	case d.Count > total:
		return failed("%d positions are sold, and there are %d", d.Count, total)
	default:
		return ok("%d of %d positions are sold, and the rules allow a draw at the end of the sale", d.Count, total)
	}
}

func (d *document) checkRoot() outcome {
	root, err := fairdraw.RootAsItStands(d.sold)
	if err != nil {
		return failed("%s", err)
	}
	if root != d.Root {
		return failed("the list has the root %s, and the document says %s", root, d.Root)
	}
	return ok("it is the root over the list")
}

func (d *document) checkFreezeTime() outcome {
	switch {
	case d.rules.Unsold == nil:
		return ok("nothing to do: the rules have no end of the sale")
	case d.Count >= d.rules.Count():
		return ok("nothing to do: all positions are sold")
	case d.FrozenAt.Before(d.rules.Unsold.EndsAt.Time):
		return failed("frozen at %s, before the end of the sale at %s, with positions unsold", d.FrozenAt, d.rules.Unsold.EndsAt)
	default:
		return ok("frozen at %s, after the end of the sale at %s", d.FrozenAt, d.rules.Unsold.EndsAt)
	}
}

func (d *document) checkFreezeHash() outcome {
	record, err := d.Record().Canonical()
	if err != nil {
		return failed("the freeze record: %s", err)
	}
	if got := fairdraw.FreezeHash(record); got != d.FreezeHash {
		return failed("the freeze record has the hash %s, and the document says %s", got, d.FreezeHash)
	}
	return ok("it is the hash of the freeze record; compare it with the one that was shown before the draw")
}

func (d *document) checkWinners() outcome {
	if d.listFailed {
		return notMade("it needs a list that is sorted, of positions of the rules")
	}
	var randomness []byte
	if d.Beacon != nil {
		randomness = d.Beacon.Randomness[:]
	}
	if n := len(d.rules.Prizes); n != len(d.Winners) { // before the selection, which may take long
		return failed("there are %d prizes, and the document has %d", n, len(d.Winners))
	}
	entropy := fairdraw.Entropy(d.Secret[:], d.CampaignID, d.Root, randomness)
	want := fairdraw.Winners(fairdraw.Select(d.rules.Prizes, d.sold, fairdraw.NewStream(entropy)))
	awarded := 0
	for i, w := range want {
		if !reflect.DeepEqual(w, d.Winners[i]) {
			return failed("the draw gives: %s; the document says: %s", describe(w), describe(d.Winners[i]))
		}
		if w.Column != nil {
			awarded++
		}
	}
	return ok("the draw gives the same %d winners of %d prizes", awarded, len(want))
}

func (d *document) checkTrust() outcome {
	want := fairdraw.TrustOperator
	if d.rules.Beacon != nil {
		want = fairdraw.TrustBeacon
	}
	if d.Trust != want {
		return failed("it says %q, and with these rules it is %q", d.Trust, want)
	}
	return ok("it says what the rules say: %s", want)
}
