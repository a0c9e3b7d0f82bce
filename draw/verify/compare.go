package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"triprize.example/draw/fairdraw"
)

// purchase makes the checks of a proof of purchase. d is nil when the proof document could
// not be read.
func (r *Report) purchase(d *document, from io.Reader) error {
	p, err := fairdraw.ReadPurchaseProof(from)
	if form := formOf(err); form != nil {
		r.add("purchase-form", failed("%s", form))
		r.add("purchase-campaign", notMade("the proof of purchase could not be read"))
		r.add("inclusion", notMade("the proof of purchase could not be read"))
		return nil
	}
	if err != nil {
		return err
	}
	r.add("purchase-form", ok("one object in canonical form, %d positions", len(p.Leaves)))
	r.add("purchase-campaign", d.ofCampaign(p))
	r.add("inclusion", d.included(p))
	if d != nil {
		r.Won = d.won(p)
	}
	return nil
}

func (d *document) ofCampaign(p fairdraw.PurchaseProof) Check {
	switch {
	case d == nil:
		return notMade("it needs the proof document")
	case p.CampaignID != d.CampaignID:
		return failed("it is of campaign %s", p.CampaignID)
	case p.Root != d.Root:
		return failed("it is about the root %s, and the document has another", p.Root)
	case p.Count != d.Count:
		return failed("it is about %d positions, and the document has %d", p.Count, d.Count)
	}
	return ok("it is about the same campaign and the same list")
}

func (d *document) included(p fairdraw.PurchaseProof) Check {
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

// against compares with another proof document. Documents carry no signature, and
// once the secret is public anybody can write one that holds. So a difference shows only that one
// of them is not the campaign's.
func (r *Report) against(d *document, hash []byte, o Options) error {
	if d == nil {
		r.add("against", notMade("it needs the document"))
		return nil
	}
	second := sha256.New()
	other, report, err := proof(io.TeeReader(o.Against, second), o)
	if err != nil {
		return err
	}
	r.add("against", compare(d, other, report, bytes.Equal(hash, second.Sum(nil))))
	return nil
}

func compare(d, other *document, report Report, same bool) Check {
	switch {
	case same:
		return ok("both are the same, byte for byte")
	case other == nil:
		return failed("the other is no proof document: %s", report.Checks[0].Words)
	case other.CampaignID != d.CampaignID:
		return failed("the other is of campaign %s, and says nothing about this one", other.CampaignID)
	case !report.holds():
		return failed("the other differs in %s, and does not hold by itself (%s)", differences(d, other), strings.Join(report.Failed(), ", "))
	default:
		return failed("the other differs in %s, and both hold by themselves: at most one of them is the campaign's. Neither is signed, and once the secret is public anybody can write one. "+
			"The one whose freeze_hash the operator showed before the draw is the campaign's; if it showed both, it made two", differences(d, other))
	}
}

// differences names the members that differ.
func differences(d, other *document) string {
	var names []string
	one, two := reflect.ValueOf(d.Proof), reflect.ValueOf(other.Proof)
	for i := range one.NumField() {
		if !reflect.DeepEqual(one.Field(i).Interface(), two.Field(i).Interface()) {
			names = append(names, one.Type().Field(i).Tag.Get("json"))
		}
	}
	if !slices.Equal(d.sold, other.sold) {
		names = append(names, "sold")
	}
	return strings.Join(names, ", ")
}

// voided is what a server says of a draw that may never take place: of the answer of
// GET /v1/campaigns/{id}/draw, the members from which the winners follow.
type voided struct {
	State  string                `json:"state"` // of the campaign
	Rules  *fairdraw.Rules       `json:"rules"`
	Secret *fairdraw.Hash        `json:"secret"`
	Chain  *fairdraw.ProofBeacon `json:"chain"` // without its round
	Freeze *struct {
		Hash   fairdraw.Hash         `json:"hash"`
		Record fairdraw.FreezeRecord `json:"record"`
	} `json:"freeze"`
}

// Void verifies the proof document that a draw would have left: of the answer about the draw, the list
// document, and the signature of the round (48 bytes). The winners of the report are those that would
// have won. An error means that the files could not be read, or that no winners follow from them.
func Void(draw, list io.Reader, signature []byte, o Options) (Report, error) {
	var d voided
	if err := json.NewDecoder(io.LimitReader(draw, fairdraw.MaxDocument)).Decode(&d); err != nil {
		return Report{}, fmt.Errorf("the draw cannot be read: %w", err)
	}
	var sold []fairdraw.SoldLine
	l, err := fairdraw.ReadList(list, func(line fairdraw.SoldLine) error {
		sold = append(sold, line)
		return nil
	})
	if err != nil {
		return Report{}, fmt.Errorf("the list cannot be read: %w", err)
	}
	p, err := d.proof(l, sold, signature)
	if err != nil {
		return Report{}, err
	}
	var document bytes.Buffer
	if err := fairdraw.WriteProof(&document, p, fairdraw.All(sold)); err != nil {
		return Report{}, err
	}
	return Proof(&document, o)
}

// proof returns the document without its list.
func (d voided) proof(l fairdraw.List, sold []fairdraw.SoldLine, signature []byte) (fairdraw.Proof, error) {
	switch {
	case d.State == "completed":
		return fairdraw.Proof{}, errors.New("the draw took place: its proof has the winners (GET /v1/campaigns/{id}/draw/proof)")
	case d.Rules == nil:
		return fairdraw.Proof{}, errors.New("the draw has no rules: the campaign was never published")
	case d.Rules.Beacon == nil:
		return fairdraw.Proof{}, errors.New("the draw has no beacon: its secret stays hidden until the result, so nobody can compute who would have won")
	case d.Freeze == nil:
		return fairdraw.Proof{}, errors.New("the draw has no freeze record: nothing follows from a list that was never frozen")
	case d.Chain == nil || d.Secret == nil || d.Freeze.Record.Round == nil:
		return fairdraw.Proof{}, errors.New("the draw has a beacon, but not its chain, its round, and its secret")
	case l.CampaignID != d.Freeze.Record.CampaignID:
		return fairdraw.Proof{}, fmt.Errorf("the list is of campaign %s, and the draw of %s", l.CampaignID, d.Freeze.Record.CampaignID)
	case l.Root != d.Freeze.Record.Root || l.Count != d.Freeze.Record.Count:
		return fairdraw.Proof{}, errors.New("the list is not the one of the freeze record: it has another root or count")
	}
	rules, err := d.Rules.Canonical()
	if err != nil {
		return fairdraw.Proof{}, err
	}
	record, chain := d.Freeze.Record, *d.Chain
	chain.Round, chain.Signature, chain.Randomness = *record.Round, signature, sha256.Sum256(signature)
	p := fairdraw.Proof{
		Version: record.Version, CampaignID: record.CampaignID, Rules: rules, Commitment: record.Commitment, Secret: *d.Secret, Root: record.Root,
		Count: record.Count, FrozenAt: record.FrozenAt, Round: record.Round, FreezeHash: d.Freeze.Hash, Beacon: &chain, Trust: fairdraw.TrustBeacon,
	}
	entropy := fairdraw.Entropy(p.Secret[:], p.CampaignID, p.Root, chain.Randomness[:])
	p.Winners = fairdraw.Select(d.Rules.Prizes, sold, fairdraw.NewStream(entropy))
	return p, nil
}
