package sale

import (
	"encoding/json"
	"fmt"
	"time"

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
	UserID    string              `json:"user_id"`
	Selection inventory.Selection `json:"selection"`
	Payment   Payment             `json:"payment"`

	Metadata metadata.Map `json:"metadata,omitempty"` // of the purchase
	By       string       `json:"by,omitempty"`       // role:client, and /user when one was signed in; of a payment by wallet
}

// Random selects a number of free positions of a layer; layer 0 means any layer.
func Random(layer, quantity int) inventory.Selection {
	return inventory.Selection{Layer: layer, Quantity: quantity}
}

// Chosen selects the given positions.
func Chosen(positions ...shape.Position) inventory.Selection {
	return inventory.Selection{Positions: positions}
}

// FromHold selects the positions of a hold.
func FromHold(id uuid.UUID) inventory.Selection { return inventory.Selection{HoldID: id} }

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

// order is a queued purchase job as a transaction reads it, and what becomes of it: it is sold,
// reserved, refused, or put off.
type order struct {
	jobID      uuid.UUID
	campaignID uuid.UUID
	client     string // of the job
	Order

	bought  purchase.Purchase // when it is sold, or with the state pending when it is reserved
	picked  []*inventory.Free // the positions that are sold or reserved
	keeps   time.Duration     // of what is reserved: until its deadline
	since   time.Time         // of what is reserved: when the hold was made that it uses; zero: it uses none
	refusal error
	putOff  bool // another transaction has locked its wallet, or tries cards of its buyer
}

func (o *order) ref() job.Ref { return job.Ref{ID: o.jobID, CampaignID: o.campaignID} }

func parseOrder(jobID, campaignID uuid.UUID, client string, payload json.RawMessage) (*order, error) {
	o := &order{jobID: jobID, campaignID: campaignID, client: client}
	if err := json.Unmarshal(payload, &o.Order); err != nil {
		return nil, fmt.Errorf("the payload of job %s: %w", jobID, err)
	}
	return o, nil
}
