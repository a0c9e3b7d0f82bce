package verify

import (
	"fmt"
	"io"

	"triprize.example/draw/fairdraw"
)

// purchase makes the checks of a proof of purchase. d is nil when the proof document could
// not be read.
func (r *Report) purchase(d *document, from io.Reader) error {
	p, err := fairdraw.ReadPurchaseProof(from)
	if err != nil && !aboutForm(err) {
		return err
	}
	if err != nil {
		r.add(fairdraw.CheckPurchaseForm, failed("%s", reasonOf(err)))
		r.add(fairdraw.CheckPurchaseCampaign, notMade("the proof of purchase could not be read"))
		r.add(fairdraw.CheckInclusionPath, notMade("the proof of purchase could not be read"))
		return nil
	}
	r.add(fairdraw.CheckPurchaseForm, ok("one object in canonical form, %d positions", len(p.Leaves)))
	if d == nil {
		r.add(fairdraw.CheckPurchaseCampaign, notMade("it needs the proof document"))
	} else {
		r.add(fairdraw.CheckPurchaseCampaign, d.ofCampaign(p))
	}
	r.add(fairdraw.CheckInclusionPath, d.included(p))
	if d != nil {
		r.Won = d.won(p)
	}
	return nil
}

func (d *document) ofCampaign(p fairdraw.PurchaseProof) outcome {
	switch {
	case p.CampaignID != d.CampaignID:
		return failed("it is of campaign %s", p.CampaignID)
	case p.Root != d.Root:
		return failed("it is about the root %s, and the document has another", p.Root)
	case p.Count != d.Count:
		return failed("it is about %d positions, and the document has %d", p.Count, d.Count)
	}
	return ok("it is about the same campaign and the same list")
}

func (d *document) included(p fairdraw.PurchaseProof) outcome {
	if err := p.CheckPaths(); err != nil {
		return failed("%s", err)
	}
	if d == nil {
		return notMade("the paths lead to the root of the proof of purchase; the list is missing")
	}
	for _, leaf := range p.Leaves {
		if leaf.Index >= len(d.sold) || d.sold[leaf.Index] != leaf.Line() {
			return failed("line %d of the list is not position %d/%d of this purchase", leaf.Index, leaf.Layer, leaf.Column)
		}
	}
	return ok("the list has all %d positions of this purchase, under this buyer", len(p.Leaves))
}

// won returns the prizes of the positions in a proof of purchase.
func (d *document) won(p fairdraw.PurchaseProof) (prizes []fairdraw.ProofWinner) {
	own := make(map[fairdraw.Position]bool, len(p.Leaves))
	for _, leaf := range p.Leaves {
		own[leaf.Line().Position()] = true
	}
	for _, w := range d.Winners {
		if w.Column != nil && own[fairdraw.Position{Layer: w.Layer, Column: *w.Column}] {
			prizes = append(prizes, w)
		}
	}
	return prizes
}

// describe says who won a prize.
func describe(w fairdraw.ProofWinner) string {
	if w.Column == nil || w.PurchaseID == nil {
		return fmt.Sprintf("prize %d (%s, layer %d) not awarded", w.Prize, w.Name, w.Layer)
	}
	return fmt.Sprintf("prize %d (%s) to position %d/%d of purchase %s", w.Prize, w.Name, w.Layer, *w.Column, *w.PurchaseID)
}
