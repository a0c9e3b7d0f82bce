package fairdraw

import (
	"encoding/json"

	"github.com/google/uuid"
)

// The levels of trust of a draw.
const (
	TrustOperator = "operator" // no beacon: the operator knew the secret, and could buy last
	TrustBeacon   = "beacon"
)

// Proof is the proof document without its list of sold positions, which may be long. Its
// canonical JSON, with the list as "sold", is the document.
type Proof struct {
	Version    string          `json:"version"`
	CampaignID uuid.UUID       `json:"campaign_id"`
	Rules      json.RawMessage `json:"rules"` // canonical JSON
	Commitment Hash            `json:"commitment"`
	Secret     Hash            `json:"secret"`
	Root       Hash            `json:"root"`
	Count      int             `json:"count"`
	FrozenAt   Instant         `json:"frozen_at"`
	Round      *uint64         `json:"round"`
	FreezeHash Hash            `json:"freeze_hash"`
	Beacon     *ProofBeacon    `json:"beacon"`
	Winners    []ProofWinner   `json:"winners"`
	Trust      string          `json:"trust"`
}

// ProofBeacon is the round of the beacon, with everything that verifies it.
type ProofBeacon struct {
	ChainHash   Hash   `json:"chain_hash"`
	PublicKey   Bytes  `json:"public_key"`
	GenesisTime int64  `json:"genesis_time"` // Unix seconds
	GenesisSeed Bytes  `json:"genesis_seed"`
	BeaconID    string `json:"beacon_id"`
	PeriodS     int    `json:"period_s"`
	Round       uint64 `json:"round"`
	Signature   Bytes  `json:"signature"`
	Randomness  Hash   `json:"randomness"`
}

// ProofWinner is the outcome of one prize. Of a prize that is not awarded, Awarded is false
// and there are no column and purchase; of any other, Awarded is left out.
type ProofWinner struct {
	Prize      int        `json:"prize"`
	Name       string     `json:"name"`
	Layer      int        `json:"layer"`
	Column     *int       `json:"column,omitempty"`
	PurchaseID *uuid.UUID `json:"purchase_id,omitempty"`
	Awarded    *bool      `json:"awarded,omitempty"`
}

// Record returns the freeze record that the document stands on. The secret is in it if the
// record was made with a beacon.
func (p Proof) Record() FreezeRecord {
	r := FreezeRecord{
		Version: p.Version, CampaignID: p.CampaignID, Commitment: p.Commitment, Root: p.Root, Count: p.Count,
		FrozenAt: p.FrozenAt, Round: p.Round,
	}
	if p.Round != nil {
		r.Secret = &p.Secret
	}
	return r
}
