package fairdraw

import (
	"crypto/sha256"

	"github.com/google/uuid"

	"triprize/internal/domain/triangle"
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
	Witness    []Hash    `json:"witness,omitempty"` // SHA-256 of each authority's root certificate (DER)
}

// Unsold allows a draw at the end of the sale over what is sold by then. Without it only a
// list of all positions is drawn.
type Unsold struct {
	EndsAt Instant `json:"ends_at"`
}

// Layer is one row of the triangle in the rules.
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

// NewRules returns the rules of a campaign; prizes must be numbered already.
func NewRules(campaignID uuid.UUID, baseLength int, prizes []Prize, beacon *Beacon) Rules {
	layers := make([]Layer, baseLength)
	for i := range layers {
		layers[i] = Layer{Layer: i + 1, Positions: triangle.InLayer(i + 1)}
	}
	if prizes == nil {
		prizes = []Prize{} // the canonical form of "no prizes" is [], never null
	}
	return Rules{Version: Version, CampaignID: campaignID, BaseLength: baseLength, Layers: layers, Prizes: prizes, Beacon: beacon}
}

// Canonical returns the rules as RFC 8785 canonical JSON, the bytes that Commitment takes.
func (r Rules) Canonical() ([]byte, error) { return canonical(r) }

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
