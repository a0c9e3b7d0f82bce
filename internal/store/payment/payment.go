package payment

import (
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/store/agenda"
)

// Phase is how far a payment has come; doc.go has the diagram.
type Phase string

// The phases.
const (
	Reserved     Phase = "reserved"
	Creating     Phase = "creating"
	Confirming   Phase = "confirming"
	Action       Phase = "action"
	CardDeclined Phase = "declined"
	Processing   Phase = "processing"
	Capturing    Phase = "capturing"
	Captured     Phase = "captured"
	Expiring     Phase = "expiring"
	Late         Phase = "late"
	Ended        Phase = "ended"
	Settled      Phase = "settled"
	RefundDue    Phase = "refund_due"
	Cancelled    Phase = "cancelled"
)

// Final reports whether a payment in this phase is finished, unless an event says
// otherwise.
func (p Phase) Final() bool { return p == Settled || p == RefundDue || p == Cancelled }

// BeforeCapture reports whether a payment in this phase can still be given up without a
// refund.
func (p Phase) BeforeCapture() bool {
	switch p {
	case Reserved, Creating, Confirming, Action, CardDeclined, Processing:
		return true
	}
	return false
}

// AwaitsBuyer reports whether a payment in this phase waits for a step of its buyer.
func (p Phase) AwaitsBuyer() bool { return p == Action || p == CardDeclined }

// Ending is why a payment is given up.
type Ending string

// The endings.
const (
	Expired           Ending = "expired"            // the time of its reservation is over
	Declined          Ending = "declined"           // the card was declined
	Refused           Ending = "refused"            // the provider refuses the request itself, such as an unknown payment method
	CancelledByBuyer  Ending = "cancelled"          // by a cancellation job
	CampaignCancelled Ending = "campaign-cancelled" // with its campaign
	Unpaid            Ending = "unpaid"             // an operator has found that nothing was paid
)

// Ref names a payment at a version.
type Ref struct {
	PurchaseID uuid.UUID
	CampaignID uuid.UUID
	JobID      uuid.UUID
	Version    int64
}

const refColumns = `p.purchase_id, p.campaign_id, p.job_id, p.version`

// Item returns the payment as an agenda item.
func (r Ref) Item() agenda.Item {
	return agenda.Item{ID: r.PurchaseID, Version: r.Version, Kind: "payment"}
}

// Items returns payments as agenda items.
func Items(refs []Ref) []agenda.Item {
	items := make([]agenda.Item, len(refs))
	for i, ref := range refs {
		items[i] = ref.Item()
	}
	return items
}

// Payment is the payment of a purchase at a provider.
type Payment struct {
	PurchaseID    uuid.UUID
	JobID         uuid.UUID
	CampaignID    uuid.UUID
	Amount        money.Amount
	Currency      string
	PaymentMethod string // pm_… of the provider
	ReturnURL     *string
	Phase         Phase
	Version       int64
	LeaseUntil    *time.Time
	DueAt         *time.Time
	Wakes         int
	Deadline      time.Time
	Latest        time.Time
	AwaitsUntil   *time.Time // no buyer is awaited longer, since the sale has ended; nil: it has no end
	KeptSince     time.Time  // from when its user's time with the positions counts; it moves with the deadline
	DeclinedUntil *time.Time // after a decline, until when another payment method may come
	Over          bool       // it was time to give it up when this was read, by the database's clock
	Attempt       int
	AttemptAt     *time.Time
	Tries         int           // with other payment methods than the first
	KeyAge        time.Duration // of the key of the attempt when this was read; 0: there is none
	IntentID      *string
	IntentStatus  *string
	Livemode      *bool // whether its intent moves money; nil: the provider has not told
	Received      money.Amount
	NextAction    *string
	Ending        *Ending
	Uncancellable bool
	Decline       *payprovider.Decline
	CancelJob     *uuid.UUID
	CancelledBy   *string
	CancelReason  *string
	Faults        int
	WaitingFor    *Wait
	LastError     *string // what the provider has said, while it waits; for operators only
	DisputedAt    *time.Time
	Dispute       *Dispute
	Disputed      money.Amount // by disputes that are lost
	CreatedAt     time.Time
	FinishedAt    *time.Time
	ResolvedAs    *Finding // what an operator has said of it; nil: nobody had to
	ResolvedBy    *string  // role:client
	ResolveReason *string
}

// SeenTo reports whether an operator has said that nothing was paid, and nothing of ours
// depends on it any more.
func (p *Payment) SeenTo() bool { return p.Phase == Cancelled && p.ResolvedAs != nil }

// OverAt returns when the payment is given up, as the column over_at has it.
func (p *Payment) OverAt() time.Time {
	over := p.Deadline
	if p.Phase.AwaitsBuyer() {
		over = sooner(over, p.AwaitsUntil)
	}
	if p.Phase == CardDeclined {
		over = sooner(over, p.DeclinedUntil)
	}
	return over
}

func sooner(t time.Time, other *time.Time) time.Time {
	if other != nil && other.Before(t) {
		return *other
	}
	return t
}

// Ref returns the name of the payment at its version.
func (p *Payment) Ref() Ref {
	return Ref{PurchaseID: p.PurchaseID, CampaignID: p.CampaignID, JobID: p.JobID, Version: p.Version}
}
