package purchase

import (
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/triangle"
)

// State is how far a purchase has come.
type State string

// The states; doc.go has the diagram.
const (
	Pending   State = "pending"
	Completed State = "completed"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// The payment methods.
const (
	External = "external" // the app collects the money itself
	Wallet   = "wallet"   // the buyer's wallet in the campaign's currency
)

// Purchase is one purchase with its items.
type Purchase struct {
	ID               uuid.UUID
	CampaignID       uuid.UUID
	UserID           string
	JobID            uuid.UUID
	Amount           int64 // minor units
	Currency         string
	PaymentMethod    string
	PaymentReference *string
	State            State
	Failure          *fault.Code
	Nonce            [fairdraw.NonceSize]byte // shown to nobody but the owner
	CreatedAt        time.Time
	CompletedAt      *time.Time
	Cancellation     *Cancellation
	Items            []Item
}

// Item is one position of a purchase.
type Item struct {
	triangle.Position
	Price int64 `json:"price"` // minor units
}
