package verify

import (
	"crypto/sha256"
	"math/bits"
	"slices"
	"time"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
)

var quicknet = fairdraw.Hash(beacon.Quicknet().Hash())

const noBeacon = "nothing to do: the rules have no beacon"

// chain returns the chain that the document names.
func (d *document) chain() beacon.Chain {
	b := d.Beacon
	return beacon.Chain{PublicKey: b.PublicKey, GenesisTime: b.GenesisTime, GenesisSeed: b.GenesisSeed, ID: b.BeaconID, PeriodS: b.PeriodS}
}

func (d *document) checkChain() outcome {
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

func (d *document) checkRound() outcome {
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

func (d *document) checkSignature() outcome {
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

func (d *document) checkRandomness() outcome {
	if d.Beacon == nil {
		return ok("nothing to do: there is no beacon")
	}
	if got := fairdraw.Hash(sha256.Sum256(d.Beacon.Signature)); got != d.Beacon.Randomness {
		return failed("the signature gives %s, and the document says %s", got, d.Beacon.Randomness)
	}
	return ok("it is the hash of the signature")
}
