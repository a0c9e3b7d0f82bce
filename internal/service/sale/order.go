package sale

import (
	"encoding/json"

	"github.com/google/uuid"

	"triprize/internal/domain/triangle"
)

// Order is what a purchase job carries: who wants what, and how it is paid.
type Order struct {
	UserID    string    `json:"user_id"`
	Selection Selection `json:"selection"`
	Payment   Payment   `json:"payment"`
}

// Selection asks for positions, all or nothing, in one of three ways: a number
// of random free ones, chosen ones, or those that a hold keeps.
type Selection struct {
	Layer     int                 `json:"layer,omitempty"` // 0: anywhere in the triangle
	Quantity  int                 `json:"quantity,omitempty"`
	Positions []triangle.Position `json:"positions,omitempty"`
	HoldID    uuid.UUID           `json:"hold_id,omitzero"`
}

// random tells whether the positions are for us to pick.
func (s Selection) random() bool { return len(s.Positions) == 0 && s.HoldID == uuid.Nil }

// size is how many positions the selection asks for; of a hold that is known
// only from the hold.
func (s Selection) size() int { return max(s.Quantity, len(s.Positions)) }

// Payment says how the purchase is paid. With "external" the app has the money.
type Payment struct {
	Method    string `json:"method"`
	Reference string `json:"reference,omitempty"`
}

// Result is what a succeeded purchase job answers.
type Result struct {
	PurchaseID uuid.UUID        `json:"purchase_id"`
	Positions  []ResultPosition `json:"positions"`
	Amount     int64            `json:"amount"` // minor units
	Currency   string           `json:"currency"`
}

// ResultPosition is one bought position.
type ResultPosition struct {
	Layer  int   `json:"layer"`
	Column int   `json:"column"`
	Price  int64 `json:"price"` // minor units
}

// order is a queued purchase job as the batch reads it.
type order struct {
	jobID      uuid.UUID
	campaignID uuid.UUID
	Order
}

func parseOrder(jobID, campaignID uuid.UUID, payload json.RawMessage) (order, error) {
	o := order{jobID: jobID, campaignID: campaignID}
	err := json.Unmarshal(payload, &o.Order)
	return o, err
}
