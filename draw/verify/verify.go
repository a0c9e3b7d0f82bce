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
	"errors"
	"fmt"
	"io"

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

// read reads a document. An error that is no *fairdraw.FormError is one of the reader.
func read(r io.Reader) (*document, error) {
	d := &document{}
	var err error
	d.Proof, err = fairdraw.ReadProof(r, func(line fairdraw.SoldLine) error {
		d.sold = append(d.sold, line)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// aboutForm tells whether an error is about the form of a document, not about reading it.
func aboutForm(err error) bool {
	_, form := errors.AsType[*fairdraw.FormError](err)
	return form
}

// named is a check with its name. After rules that failed, those that need them are not made.
type named struct {
	name       string
	needsRules bool
	check      func(*document) outcome
}

// checks are all checks after form, in their order.
var checks = []named{
	{fairdraw.CheckRules, false, (*document).checkRules},
	{fairdraw.CheckCommitment, false, (*document).checkCommitment},
	{fairdraw.CheckSoldList, true, (*document).checkSoldList},
	{fairdraw.CheckCount, true, (*document).checkCount},
	{fairdraw.CheckRoot, false, (*document).checkRoot},
	{fairdraw.CheckFreezeTime, true, (*document).checkFreezeTime},
	{fairdraw.CheckFreezeHash, false, (*document).checkFreezeHash},
	{fairdraw.CheckChain, true, (*document).checkChain},
	{fairdraw.CheckRound, true, (*document).checkRound},
	{fairdraw.CheckSignature, true, (*document).checkSignature},
	{fairdraw.CheckRandomness, false, (*document).checkRandomness},
	{fairdraw.CheckWinners, true, (*document).checkWinners},
	{fairdraw.CheckTrust, true, (*document).checkTrust},
}

// verifyRound returns nil if a signature is that of a chain's round.
type verifyRound func(chain beacon.Chain, number uint64, signature []byte) error

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

	verify verifyRound // nil: verifySignature; tests that verify one round often remember it
}

// Proof verifies a proof document. The report has its faults; an error means
// that it could not be read.
func Proof(r io.Reader, o Options) (Report, error) {
	first := newDigest(r)
	if o.verify == nil {
		o.verify = verifySignature
	}
	d, report, err := proof(first, o)
	if err != nil {
		return Report{}, fmt.Errorf("verify.Proof: %w", err)
	}
	if o.Purchase != nil {
		if err := report.purchase(d, o.Purchase); err != nil {
			return Report{}, fmt.Errorf("verify.Proof: the proof of purchase: %w", err)
		}
	}
	if o.Against != nil {
		if err := report.against(d, first, o.Against, o); err != nil {
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
func proof(r io.Reader, o Options) (*document, Report, error) {
	var report Report
	d, err := read(r)
	if err != nil && !aboutForm(err) {
		return nil, report, err
	}
	if err != nil {
		report.add(fairdraw.CheckForm, failed("%s", reasonOf(err)))
		for _, c := range checks {
			report.add(c.name, notMade("the document could not be read"))
		}
		report.noted(nil, o)
		return nil, report, nil
	}
	d.user = o
	report.CampaignID = d.CampaignID
	report.add(fairdraw.CheckForm, ok("one object in canonical form, of version %s", d.Version))
	for _, c := range checks {
		if c.needsRules && d.rulesFailed {
			report.add(c.name, notMade("it needs the rules"))
			continue
		}
		report.add(c.name, c.check(d))
	}
	report.noted(d, o)
	return d, report, nil
}

// noted compares with what the user noted. d is nil when the document could not be read.
func (r *Report) noted(d *document, o Options) {
	for _, n := range []struct {
		name   string
		noted  *fairdraw.Hash
		stated func() fairdraw.Hash
	}{
		{fairdraw.CheckNotedCommitment, o.Commitment, func() fairdraw.Hash { return d.Commitment }},
		{fairdraw.CheckNotedFreezeHash, o.FreezeHash, func() fairdraw.Hash { return d.FreezeHash }},
	} {
		switch {
		case n.noted == nil:
		case d == nil:
			r.add(n.name, notMade("the document could not be read"))
		case n.stated() != *n.noted:
			r.add(n.name, failed("you noted %s, and the document says %s", n.noted, n.stated()))
		default:
			r.add(n.name, ok("it is the one that you noted"))
		}
	}
}

// reasonOf returns the sentence about the form, without the functions it came through.
func reasonOf(err error) string {
	form, _ := errors.AsType[*fairdraw.FormError](err)
	return form.Error()
}
