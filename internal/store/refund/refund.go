package refund

import (
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/money"
	"triprize/internal/store/agenda"
)

// State is how far a refund has come; doc.go has the diagram.
type State string

// The states.
const (
	Open           State = "open"
	Pending        State = "pending"
	RequiresAction State = "requires_action"
	Succeeded      State = "succeeded"
	Failed         State = "failed"
	Canceled       State = "canceled" // in the provider's spelling
	Listed         State = "listed"
	Resolved       State = "resolved"
)

// Finished reports whether the money is given back, as far as anybody knows.
func (s State) Finished() bool { return s == Succeeded || s == Resolved }

// Refused reports whether the provider has refused the refund, so that it waits for an
// operator.
func (s State) Refused() bool { return s == Failed || s == Canceled }

// Method is how the purchase was paid, and how the money goes back.
type Method string

// The methods.
const (
	Wallet   Method = "wallet"   // credited in the transaction that makes the row
	Card     Method = "card"     // at the provider
	External Method = "external" // by the app
)

// Reason is why money goes back.
type Reason string

// The reasons.
const (
	PurchaseCancelled Reason = "cancelled" // or a part of it
	CampaignCancelled Reason = "campaign-cancelled"
	LatePayment       Reason = "late-payment"
	OutOfBand         Reason = "out-of-band" // by hand at the provider: it is not ours
)

// Refund is money of one purchase that goes back, by us or out of band.
type Refund struct {
	ID            uuid.UUID
	PurchaseID    uuid.UUID
	CampaignID    uuid.UUID
	UserID        string
	Method        Method
	Amount        money.Amount // 0 of one of ours that is finished: others had left nothing
	Currency      string       // ISO 4217, capitals
	Reason        Reason
	State         State
	Version       int64
	LeaseUntil    *time.Time
	DueAt         *time.Time
	Wakes         int
	Attempt       int // of making it; 0: nothing was sent yet
	AttemptAt     *time.Time
	Asked         money.Amount  // amount with which the key of the attempt was stored; Amount may be less since
	KeyAge        time.Duration // of the key of the attempt when this was read; 0: there is none
	ProviderID    *string       // re_… of the last attempt
	Failure       *string       // why the provider has refused it, or what is wrong with it
	Faults        int           // attempts in vain in a row
	Stuck         bool          // the provider refuses to tell of it, refuses the key, or has not answered for long
	ResolvedBy    *string       // role:client of who resolved it by hand, and /user when one was signed in
	ResolveReason *string
	CreatedAt     time.Time
	Age           time.Duration // when this was read, by the database's clock
	FinishedAt    *time.Time
}

// ForOperator reports whether an operator has to see to the refund, or to the key: the
// provider has refused it, or it is stuck. One that needs an action waits for its buyer.
func (r *Refund) ForOperator() bool {
	return r.Reason != OutOfBand && (r.State.Refused() || r.Stuck && (r.State == Open || r.State == Pending || r.State == RequiresAction))
}

// Item returns the refund as an agenda item.
func (r *Refund) Item() agenda.Item {
	return agenda.Item{ID: r.ID, Version: r.Version, Kind: "refund"}
}
