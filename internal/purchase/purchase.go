package purchase

import (
	"strconv"
	"time"

	"github.com/google/uuid"

	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
)

// State is the state of a purchase.
type State string

// The states; doc.go has the diagram.
const (
	Pending        State = "pending"
	AwaitingAction State = "awaiting_action"
	Completed      State = "completed"
	Failed         State = "failed"
	Cancelled      State = "cancelled"
	Refunding      State = "refunding"
	Refunded       State = "refunded"
)

// Open reports whether a purchase in this state is not paid yet and may still be.
func (s State) Open() bool { return s == Pending || s == AwaitingAction }

// PaymentMethod is how a purchase is paid.
type PaymentMethod string

// The payment methods.
const (
	External PaymentMethod = "external" // the app collects the money itself
	Wallet   PaymentMethod = "wallet"   // the buyer's wallet in the campaign's currency
	Card     PaymentMethod = "card"     // a payment method of the provider
)

// Purchase is one purchase with its items.
type Purchase struct {
	ID               uuid.UUID
	CampaignID       uuid.UUID
	UserID           string
	JobID            uuid.UUID
	Client           string // that asked for it
	Amount           money.Amount
	Currency         string
	PaymentMethod    PaymentMethod
	PaymentReference *string
	State            State
	Failure          *fault.Code
	Nonce            [fairdraw.NonceSize]byte // secret; only its owner may see it
	CreatedAt        time.Time
	CompletedAt      *time.Time
	Cancellation     *Cancellation // of all that it had
	Partial          []PartialCancellation
	Items            []Item // without those that were cancelled in part
	Metadata         metadata.Map
}

// Rest is the price of what the purchase has: its amount, without what was cancelled in part.
func (p *Purchase) Rest() (amount money.Amount) { return PriceOf(p.Items) }

// PriceOf returns the price of items together.
func PriceOf(items []Item) (amount money.Amount) {
	for _, item := range items {
		amount += item.Price
	}
	return amount
}

// Item is one position of a purchase.
type Item = shape.Item

// Words returns the positions of items as a line of the log has them: layer/column. There are as many as one
// purchase may have.
func Words(items []Item) string {
	var text []byte
	for i, item := range items {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(text, int64(item.Layer), 10)
		text = strconv.AppendInt(append(text, '/'), int64(item.Column), 10)
	}
	return string(text)
}

// Cancellation is who cancelled a purchase, when and why.
type Cancellation struct {
	At     time.Time
	By     string  // role:client, and /user when one was signed in
	Reason *string // at most 500 characters; nil: none was given
}

// PartialCancellation is the cancellation of some positions of a purchase, which keeps others.
type PartialCancellation struct {
	JobID  uuid.UUID    `json:"job_id"`
	At     time.Time    `json:"at,omitzero"` // by the database's clock
	By     string       `json:"by"`          // as in Cancellation
	Reason string       `json:"reason,omitempty"`
	Items  []Item       `json:"positions"`
	Amount money.Amount `json:"amount"`
}
