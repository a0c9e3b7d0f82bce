package verify

import (
	"crypto/sha256"
	"math/bits"
	"reflect"
	"slices"
	"time"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
)

func (d *document) checkRules() Check {
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

func (d *document) checkCommitment() Check {
	if got := fairdraw.Hash(fairdraw.Commitment(d.CampaignID, d.Rules, d.Secret[:])); got != d.Commitment {
		return failed("rules and secret give %s, and the document says %s", got, d.Commitment)
	}
	return ok("rules and secret are those that were committed to before the sale, if %s was published then", d.Commitment)
}

func (d *document) checkSoldList() Check {
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

func (d *document) checkCount() Check {
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

func (d *document) checkRoot() Check {
	root, err := fairdraw.RootOf(d.sold)
	if err != nil {
		return failed("%s", err)
	}
	if root != d.Root {
		return failed("the list has the root %s, and the document says %s", root, d.Root)
	}
	return ok("it is the root over the list")
}

func (d *document) checkFreezeTime() Check {
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

func (d *document) checkFreezeHash() Check {
	record, err := d.Record().Canonical()
	if err != nil {
		return failed("the freeze record: %s", err)
	}
	if got := fairdraw.FreezeHash(record); got != d.FreezeHash {
		return failed("the freeze record has the hash %s, and the document says %s", got, d.FreezeHash)
	}
	return ok("it is the hash of the freeze record; compare it with the one that was shown before the draw")
}

func (d *document) checkWinners() Check {
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
	want := fairdraw.Select(d.rules.Prizes, d.sold, fairdraw.NewStream(entropy))
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

func (d *document) checkTrust() Check {
	want := fairdraw.TrustOperator
	if d.rules.Beacon != nil {
		want = fairdraw.TrustBeacon
	}
	if d.Trust != want {
		return failed("it says %q, and with these rules it is %q", d.Trust, want)
	}
	return ok("it says what the rules say: %s", want)
}

var quicknet = fairdraw.Hash(beacon.Quicknet().Hash())

const noBeacon = "nothing to do: the rules have no beacon"

// chain returns the chain that the document names.
func (d *document) chain() beacon.Chain {
	b := d.Beacon
	return beacon.Chain{PublicKey: b.PublicKey, GenesisTime: b.GenesisTime, GenesisSeed: b.GenesisSeed, ID: b.BeaconID, PeriodS: b.PeriodS}
}

func (d *document) checkChain() Check {
	bound := d.rules.Beacon
	switch {
	case bound == nil && d.Beacon == nil:
		return ok(noBeacon)
	case bound == nil:
		return failed("there is a beacon, and the rules have none")
	case d.Beacon == nil:
		return failed("there is no beacon, and the rules have one")
	case d.Beacon.PeriodS != bound.PeriodS:
		return failed("its period is %d s, and %d s in the rules", d.Beacon.PeriodS, bound.PeriodS)
	case d.Beacon.ChainHash != bound.ChainHash:
		return failed("it is the chain %s, and %s in the rules", d.Beacon.ChainHash, bound.ChainHash)
	}
	if got := fairdraw.Hash(d.chain().Hash()); got != d.Beacon.ChainHash {
		return failed("its data have the hash %s, and it says %s", got, d.Beacon.ChainHash)
	}
	if d.Beacon.ChainHash == quicknet {
		return ok("it is drand's quicknet")
	}
	test := ""
	if d.Beacon.BeaconID == beacon.TestID {
		test = ". This is a test chain: its maker knows every round beforehand"
	}
	if !slices.Contains(d.user.Chains, d.Beacon.ChainHash) {
		d.chainUnknown = true
		return failed("the chain %s is not known: its maker may know its rounds early. If you trust it, name it (--chain-hash)%s", d.Beacon.ChainHash, test)
	}
	return ok("it is the chain that you named%s", test)
}

func (d *document) checkRound() Check {
	switch {
	case d.rules.Beacon == nil && d.Round == nil:
		return ok(noBeacon)
	case d.rules.Beacon == nil:
		return failed("there is a round, and the rules have no beacon")
	case d.Round == nil:
		return failed("there is no round, and the rules have a beacon")
	case d.Beacon == nil:
		return failed("the freeze record names a round, and there is none")
	case d.Beacon.Round != *d.Round:
		return failed("the freeze record names round %d, and the beacon is of round %d", *d.Round, d.Beacon.Round)
	case d.Beacon.PeriodS < 1:
		return failed("a period of %d s has no rounds", d.Beacon.PeriodS)
	}
	now := d.chain().RoundAt(d.FrozenAt.Time)
	if *d.Round < now+fairdraw.RoundsAhead || *d.Round > now+fairdraw.MostRoundsAhead {
		return failed("round %d was due when the list was frozen, so %d to %d may be taken, not %d", now, now+fairdraw.RoundsAhead, now+fairdraw.MostRoundsAhead, *d.Round)
	}
	return ok("round %d was due at %s, %d rounds after the list was frozen", *d.Round, due(d), *d.Round-now)
}

// due returns when the round is due; of one that no clock will reach, a time that is later than all tokens.
func due(d *document) fairdraw.Instant {
	const never = 1 << 60                                                                     // seconds
	if high, low := bits.Mul64(*d.Round, uint64(d.Beacon.PeriodS)); high > 0 || low > never { //nolint:gosec // form bounds it
		return fairdraw.At(time.Unix(never, 0))
	}
	return fairdraw.At(d.chain().DueAt(*d.Round))
}

func (d *document) checkSignature() Check {
	switch {
	case d.Beacon == nil && d.rules.Beacon == nil:
		return ok(noBeacon)
	case d.Beacon == nil:
		return notMade("it needs the beacon")
	}
	if err := d.user.verify(d.chain(), d.Beacon.Round, d.Beacon.Signature); err != nil {
		return failed("%s", err)
	}
	return ok("it is the chain's signature of round %d", d.Beacon.Round)
}

func (d *document) checkRandomness() Check {
	if d.Beacon == nil {
		return ok("nothing to do: there is no beacon")
	}
	if got := fairdraw.Hash(sha256.Sum256(d.Beacon.Signature)); got != d.Beacon.Randomness {
		return failed("the signature gives %s, and the document says %s", got, d.Beacon.Randomness)
	}
	return ok("it is the hash of the signature")
}
