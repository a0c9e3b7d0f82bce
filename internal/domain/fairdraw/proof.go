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
	Witness    [][]byte        `json:"witness"` // RFC 3161 tokens (DER); as text, base64. Empty: unwitnessed
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

// SoldLine is a sold position as it is published: it does not show who the buyer is.
type SoldLine struct {
	Layer      int       `json:"layer"`
	Column     int       `json:"column"`
	PurchaseID uuid.UUID `json:"purchase_id"`
	Holder     Hash      `json:"holder"` // H(nonce || user_id)
}

// PurchaseProof shows a buyer that its positions are among the frozen ones. It is for the
// buyer only: it has the nonce.
type PurchaseProof struct {
	CampaignID uuid.UUID   `json:"campaign_id"`
	Root       Hash        `json:"root"`
	Count      int         `json:"count"`
	Leaves     []ProofLeaf `json:"leaves"`
}

// ProofLeaf is one leaf with its RFC 9162 inclusion path.
type ProofLeaf struct {
	Layer      int       `json:"layer"`
	Column     int       `json:"column"`
	PurchaseID uuid.UUID `json:"purchase_id"`
	Nonce      Bytes     `json:"nonce"` // NonceSize bytes
	UserID     string    `json:"user_id"`
	Index      int       `json:"index"` // from 0, in the order of layer and column
	Path       []Hash    `json:"path"`
}
