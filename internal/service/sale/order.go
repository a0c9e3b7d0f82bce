package sale

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
)

// Order is the payload of a purchase job: buyer, selection and payment.
type Order struct {
	UserID    string    `json:"user_id"`
	Selection Selection `json:"selection"`
	Payment   Payment   `json:"payment"`

	Metadata metadata.Map `json:"metadata,omitempty"` // of the purchase
	By       string       `json:"by,omitempty"`       // role:client, and /user when one was signed in; of a payment by wallet
}

// Selection is the positions that an order wants, all or nothing: chosen or random
// free ones, or those of a hold.
type Selection struct {
	inventory.Selection
	HoldID uuid.UUID `json:"hold_id,omitzero"`
}

// Random selects a number of free positions of a layer; layer 0 means any layer.
func Random(layer, quantity int) Selection {
	return Selection{Selection: inventory.Selection{Layer: layer, Quantity: quantity}}
}

// Chosen selects the given positions.
func Chosen(positions ...shape.Position) Selection {
	return Selection{Selection: inventory.Selection{Positions: positions}}
}

// FromHold selects the positions of a hold.
func FromHold(id uuid.UUID) Selection { return Selection{HoldID: id} }

// selectionAt is the JSON pointer of an order's selection.
const selectionAt = "/selection"

// Payment says how the purchase is paid. With purchase.External the app collects the
// money, with purchase.Card the provider does.
type Payment struct {
	Method        purchase.PaymentMethod `json:"method"`
	Reference     string                 `json:"reference,omitempty"`      // of the app; for purchase.External
	PaymentMethod string                 `json:"payment_method,omitempty"` // pm_… of the provider; for purchase.Card
	ReturnURL     string                 `json:"return_url,omitempty"`     // where an authentication ends; for purchase.Card
}

// Result is the result of a succeeded purchase job.
type Result struct {
	PurchaseID uuid.UUID       `json:"purchase_id"`
	Positions  []purchase.Item `json:"positions"`
	Amount     money.Amount    `json:"amount"`
	Currency   string          `json:"currency"`
	Board      int64           `json:"board_version"` // a board that has reached it shows the positions
}

// order is a queued purchase job as a transaction reads it.
type order struct {
	jobID      uuid.UUID
	campaignID uuid.UUID
	client     string // of the job
	Order
}

func (o *order) ref() job.Ref { return job.Ref{ID: o.jobID, CampaignID: o.campaignID} }

func parseOrder(jobID, campaignID uuid.UUID, client string, payload json.RawMessage) (*order, error) {
	o := &order{jobID: jobID, campaignID: campaignID, client: client}
	if err := json.Unmarshal(payload, &o.Order); err != nil {
		return nil, fmt.Errorf("the payload of job %s: %w", jobID, err)
	}
	return o, nil
}
