// Package verify checks proof documents of draws offline, and computes everything again.
//
//	form ─▶ rules ─▶ commitment  sold-list  count  root  freeze-time  freeze-hash
//	              ─▶ chain  round  signature  randomness
//	              ─▶ winners  trust
//	with values that the user noted: noted-commitment  noted-freeze-hash
//	with a proof of purchase:       purchase-form  purchase-campaign  inclusion
//	with another proof document:    against
//
// docs/draw.md has the meaning of each check. A check takes its inputs as they stand in
// the document, so one fault fails few checks. A check that depends on a fault is not
// made, and never counts as verified. The package needs no clock, network or settings.
//
// It is one of three verifiers that share no code above the arithmetic of a draw. The
// others are the page /verify and the script in docs/draw.md.
package verify

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
)

// document is a proof document in memory: about 64 bytes a sold position.
type document struct {
	fairdraw.Proof
	sold []fairdraw.SoldLine
	user Options

	rules       fairdraw.Rules
	rulesFailed bool
	listFailed  bool

	chainUnknown bool // it is a chain of the rules, but neither quicknet nor named
}

// formOf returns what is wrong with the form of a document; nil if an error is not about that.
func formOf(err error) *fairdraw.FormError {
	form, _ := errors.AsType[*fairdraw.FormError](err)
	return form
}

// named is a check with its name. After rules that failed, those that need them are not made.
type named struct {
	name       string
	needsRules bool
	check      func(*document) Check
}

// checks are all checks after form, in their order.
var checks = []named{
	{"rules", false, (*document).checkRules},
	{"commitment", false, (*document).checkCommitment},
	{"sold-list", true, (*document).checkSoldList},
	{"count", true, (*document).checkCount},
	{"root", false, (*document).checkRoot},
	{"freeze-time", true, (*document).checkFreezeTime},
	{"freeze-hash", false, (*document).checkFreezeHash},
	{"chain", true, (*document).checkChain},
	{"round", true, (*document).checkRound},
	{"signature", true, (*document).checkSignature},
	{"randomness", false, (*document).checkRandomness},
	{"winners", true, (*document).checkWinners},
	{"trust", true, (*document).checkTrust},
}

func verifySignature(chain beacon.Chain, number uint64, signature []byte) error {
	_, err := chain.Verify(number, signature)
	return err
}

// Options are what a verification takes besides the document.
type Options struct {
	Chains     []fairdraw.Hash // hashes of chains to accept besides quicknet's
	Commitment *fairdraw.Hash  // that the user noted before the sale; nil: none
	FreezeHash *fairdraw.Hash  // that the user noted before the draw; nil: none
	Purchase   io.Reader       // a proof of purchase; nil: none
	Against    io.Reader       // another proof document of the campaign; nil: none

	// verify checks a signature of a round. nil: verifySignature; tests that verify one round often remember it.
	verify func(chain beacon.Chain, number uint64, signature []byte) error
}

// Proof verifies a proof document. The report has its faults; an error means
// that it could not be read.
func Proof(r io.Reader, o Options) (Report, error) {
	hash := sha256.New()
	if o.verify == nil {
		o.verify = verifySignature
	}
	d, report, err := proof(io.TeeReader(r, hash), o)
	if err != nil {
		return Report{}, fmt.Errorf("verify.Proof: %w", err)
	}
	if o.Purchase != nil {
		if err := report.purchase(d, o.Purchase); err != nil {
			return Report{}, fmt.Errorf("verify.Proof: the proof of purchase: %w", err)
		}
	}
	if o.Against != nil {
		if err := report.against(d, hash.Sum(nil), o); err != nil {
			return Report{}, fmt.Errorf("verify.Proof: the other document: %w", err)
		}
	}
	report.Headline = "not verified"
	if report.OK = report.holds(); !report.OK {
		report.Won = nil
		report.OnlyChainUnknown = d != nil && d.chainUnknown && len(report.notOK()) == 1
		return report, nil
	}
	report.Headline, report.Winners = "verified", d.Winners
	report.Shows, report.Remains = meaning(d)
	return report, nil
}

// proof makes the checks of one document. The document is nil when its form is wrong.
func proof(r io.Reader, o Options) (d *document, report Report, err error) {
	d = &document{user: o}
	d.Proof, err = fairdraw.ReadProof(r, func(line fairdraw.SoldLine) error {
		d.sold = append(d.sold, line)
		return nil
	})
	form := formOf(err)
	switch {
	case form != nil:
		report.add("form", failed("%s", form))
		d = nil
	case err != nil:
		return nil, report, err
	default:
		report.CampaignID = d.CampaignID
		report.add("form", ok("one object in canonical form, of version %s", d.Version))
	}
	made := slices.Clip(checks)
	if o.Commitment != nil {
		made = append(made, named{"noted-commitment", false, func(d *document) Check { return noted(*o.Commitment, d.Commitment) }})
	}
	if o.FreezeHash != nil {
		made = append(made, named{"noted-freeze-hash", false, func(d *document) Check { return noted(*o.FreezeHash, d.FreezeHash) }})
	}
	for _, c := range made {
		switch {
		case d == nil:
			report.add(c.name, notMade("the document could not be read"))
		case c.needsRules && d.rulesFailed:
			report.add(c.name, notMade("it needs the rules"))
		default:
			report.add(c.name, c.check(d))
		}
	}
	return d, report, nil
}

// noted compares what the user noted with what the document states.
func noted(noted, stated fairdraw.Hash) Check {
	if stated != noted {
		return failed("you noted %s, and the document says %s", noted, stated)
	}
	return ok("it is the one that you noted")
}
