// Package fairdraw is the draw procedure triprize-draw/1, as pure functions.
//
// Publication commits to rules and a secret. The freeze fixes the sold list as a Merkle
// root. The winners follow from both, and from the beacon's round, by HMAC-SHA-256.
// Anybody with the inputs can repeat every step, so the results of this version never
// change. docs/draw.md specifies every byte.
//
//	rules ──canonical──┐
//	secret ────────────┼─▶ Commitment          (published before the sale)
//	sold list ──Tree───┴─▶ FreezeRecord        (published before the round)
//	secret, root, randomness ─▶ Entropy ─▶ Stream ─▶ Select
//
// A frozen campaign has a [List] for everybody ([WriteList], [ReadList]). A draw leaves a
// [Proof] for everybody ([WriteProof], [ReadProof]) and a [PurchaseProof] for each buyer.
// Lists are read and written line by line. A document has one spelling; every other one is
// a [FormError].
//
// Integers are big-endian, strings are UTF-8, H is SHA-256. testdata/draw-vectors.json
// comes from an independent implementation. The script in docs/draw.md checks
// testdata/proof-vectors.json.
package fairdraw

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/google/uuid"
)

// Version names the procedure; it is part of the rules and of every hash domain.
const Version = "triprize-draw/1"

// Rules is what a campaign promises before its first sale.
type Rules struct {
	Version    string    `json:"version"`
	CampaignID uuid.UUID `json:"campaign_id"`
	BaseLength int       `json:"base_length,omitempty"` // of a triangle; another shape has none
	Layers     []Layer   `json:"layers"`
	Prizes     []Prize   `json:"prizes"`
	Beacon     *Beacon   `json:"beacon"` // nil: trust rests on the operator
	Unsold     *Unsold   `json:"unsold,omitempty"`
}

// Unsold allows a draw at the end of the sale over what is sold by then. Without it only a
// list of all positions is drawn.
type Unsold struct {
	EndsAt Instant `json:"ends_at"`
}

// Layer is one layer in the rules.
type Layer struct {
	Layer     int `json:"layer"`
	Positions int `json:"positions"`
}

// Prize is one prize. Numbers run from 1 in layer order, within a layer in the
// order given; a prize with count n is n prizes in a row.
type Prize struct {
	Number int    `json:"number"`
	Layer  int    `json:"layer"`
	Name   string `json:"name"`
}

// Beacon names the public randomness chain that the draw will wait for.
type Beacon struct {
	ChainHash Hash `json:"chain_hash"`
	PeriodS   int  `json:"period_s"` // seconds between rounds
}

// Triangle returns the layers of a triangle: layer k has k positions.
func Triangle(baseLength int) []Layer {
	layers := make([]Layer, baseLength)
	for i := range layers {
		layers[i] = Layer{Layer: i + 1, Positions: i + 1}
	}
	return layers
}

// leastBaseLength is that of the smallest campaign that is called a triangle.
const leastBaseLength = 3

// NewRules returns the rules of a campaign; prizes must be numbered already.
func NewRules(campaignID uuid.UUID, layers []Layer, prizes []Prize, beacon *Beacon) Rules {
	if prizes == nil {
		prizes = []Prize{} // the canonical form of "no prizes" is [], never null
	}
	r := Rules{Version: Version, CampaignID: campaignID, Layers: layers, Prizes: prizes, Beacon: beacon}
	if len(layers) >= leastBaseLength && slices.Equal(layers, Triangle(len(layers))) {
		r.BaseLength = len(layers)
	}
	return r
}

// Canonical returns the rules as RFC 8785 canonical JSON, the bytes that Commitment takes.
func (r Rules) Canonical() ([]byte, error) { return canonical(r) }

// ParseRules reads rules from their canonical JSON, and refuses every other spelling. What
// they say is for Check.
func ParseRules(text []byte) (Rules, error) {
	var r Rules
	if err := decodeCanonical(text, &r); err != nil {
		return Rules{}, fmt.Errorf("the rules document %w", err)
	}
	return r, nil
}

// Check returns nil if the rules are those of a campaign and can be drawn by, else what is
// wrong with them.
func (r Rules) Check(campaignID uuid.UUID) error {
	switch {
	case r.Version != Version:
		return fmt.Errorf("the rules are of version %q, not %q", r.Version, Version)
	case r.CampaignID != campaignID:
		return fmt.Errorf("the rules are those of campaign %s", r.CampaignID)
	case r.Beacon != nil && (r.Beacon.PeriodS < 1 || r.Beacon.PeriodS > math.MaxUint32):
		return fmt.Errorf("the beacon of the rules has a period of %d s", r.Beacon.PeriodS)
	}
	if err := r.checkLayers(); err != nil {
		return err
	}
	return r.checkPrizes()
}

func (r Rules) checkLayers() error {
	if len(r.Layers) == 0 {
		return errors.New("the rules have no layers")
	}
	if r.BaseLength != 0 && r.BaseLength != len(r.Layers) {
		return fmt.Errorf("the rules have %d layers, and a base length of %d", len(r.Layers), r.BaseLength)
	}
	last := 0
	for _, l := range r.Layers {
		if l.Layer <= last || l.Layer > math.MaxUint32 || l.Positions < 1 || l.Positions > math.MaxUint32 {
			return fmt.Errorf("layer %d with %d positions cannot stand after layer %d", l.Layer, l.Positions, last)
		}
		if r.BaseLength != 0 && (l.Layer != last+1 || l.Positions != l.Layer) {
			return fmt.Errorf("layer %d with %d positions is none of a triangle", l.Layer, l.Positions)
		}
		last = l.Layer
	}
	return nil
}

func (r Rules) checkPrizes() error {
	if r.Prizes == nil {
		return errors.New("the rules have no list of prizes")
	}
	left := make(map[int]int, len(r.Layers)) // positions of a layer without a prize
	for _, l := range r.Layers {
		left[l.Layer] = l.Positions
	}
	last := 0
	for i, p := range r.Prizes {
		if p.Number != i+1 || p.Layer < last {
			return fmt.Errorf("prize %d of layer %d stands at %d: prizes are numbered from 1 in the order of layers", p.Number, p.Layer, i+1)
		}
		if left[p.Layer] == 0 {
			return fmt.Errorf("prize %d: layer %d has no position for it", p.Number, p.Layer)
		}
		left[p.Layer]--
		last = p.Layer
	}
	return nil
}

// Positions returns how many positions a layer has; none of a layer that does not exist.
func (r Rules) Positions(layer int) int {
	i, ok := slices.BinarySearchFunc(r.Layers, layer, func(l Layer, number int) int { return l.Layer - number })
	if !ok {
		return 0
	}
	return r.Layers[i].Positions
}

// Count returns how many positions there are.
func (r Rules) Count() int {
	n := 0
	for _, l := range r.Layers {
		n += l.Positions
	}
	return n
}

// Commitment binds a campaign to its canonical rules and secret:
// H("triprize-draw/1 commit" || 0x00 || campaign_id || H(rules) || secret).
func Commitment(campaignID uuid.UUID, canonicalRules, secret []byte) [sha256.Size]byte {
	rulesHash := sha256.Sum256(canonicalRules)
	h := sha256.New()
	h.Write([]byte(Version + " commit\x00"))
	h.Write(campaignID[:])
	h.Write(rulesHash[:])
	h.Write(secret)
	return [sha256.Size]byte(h.Sum(nil))
}
