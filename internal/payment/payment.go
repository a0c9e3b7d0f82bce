// Package payment owns payments and refunds, their dated steps, and the provider's events.
//
// A payment of a purchase at the provider, see [Payment]:
//
//		reserved ─▶ creating ─▶ confirming ─┬─▶ action ─────┐
//		   │            │           │  ▲    ├─▶ declined ───┤
//		   │            │           │  │    ├─▶ processing ─┼─▶ capturing ─▶ captured ─┬─▶ settled
//		   │            │           │  └────┴───────────────┘                    ▲     └─▶ refund_due
//		   └────────────┴───────────┴──▶ expiring ─┬─▶ ended ─▶ cancelled ───────┤
//		                                           └─▶ late ─▶ ended ────────────┘
//
//	  - reserved: positions are reserved, nothing was sent.
//	  - creating: the idempotency key of an intent is stored; it is being created.
//	  - confirming: the intent's id is stored, and it may be confirmed. From now on only
//	    data from the provider can end this payment.
//	  - action, processing: the buyer must authenticate; a slow method takes its time.
//	  - declined: the buyer may bring another payment method until declined_until, see
//	    [QueueTry]. It is confirmed on the same intent.
//	  - capturing: authorized, and the reservation stands: the money may be taken now.
//	  - captured: the provider has the money. A transaction of the sale gives it the
//	    positions (settled) or a refund (refund_due).
//	  - expiring: given up, for the reason in ending. The intent is being cancelled, and its
//	    positions stay reserved until that is certain.
//	  - late: the provider will not cancel it. Its positions are free, and late money is
//	    refunded.
//	  - ended: it was cancelled at the provider, or there never was an intent. Its positions
//	    can be freed.
//	  - settled, refund_due, cancelled: final. Only money on a cancelled one makes it captured
//	    again.
//
// A payment in an unexpected state waits for an operator, see [QueueResolve].
//
// A refund, for every way of payment, see [Refund]. Refunds of ours are numbered from 1 on for
// each purchase. Those that others have made at the provider, out of band, have no number.
//
//		card      open ─▶ pending ⇄ requires_action ─▶ succeeded
//		            ▲        └───────────┴──────┬──────────┘
//		            │                           ▼
//		            └──────── retry ─── failed, canceled ─▶ resolved
//		wallet    succeeded
//		external  listed ─▶ resolved
//		out of band   pending, requires_action, succeeded, failed, canceled: as the provider reports
//
//	  - open: a refund is to be made at the provider. attempt says whether its idempotency
//	    key is stored: from then on it may exist there.
//	  - pending, requires_action: it exists, and its end is not known. The second waits for
//	    the buyer.
//	  - succeeded: the money is with the buyer or on its way. Even then a bank can send it
//	    back, and the provider says failed.
//	  - failed, canceled: the provider has refused it, and failure says why. An operator retries
//	    it, with a key of its own, or resolves it.
//	  - stuck, beside open, pending and requires_action: the provider refuses to report it,
//	    refuses the key, or has not answered for long. An operator retries or resolves it; it
//	    continues automatically when the provider answers.
//	  - listed: the app has the money, so the app refunds and resolves it.
//	  - resolved: refunded by hand. Final.
//
// Refunds are inserted in the transaction that takes the purchase, or a part of it, back. One of a
// purchase is made at a time: each asks for what the others leave.
//
// Payments and card refunds are leased items, see package lease. Sub-packages do the work: cards
// processes payments and events, refunds makes refunds, reconciliation compares the provider's
// balance with ours.
//
// Locks: payments come after campaigns, then refunds; both before positions, purchases and jobs.
package payment

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
)

// Phase is how far a payment has come; the package comment has the diagram.
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
	PurchaseID uuid.UUID // its job has the same id
	CampaignID uuid.UUID
	Version    int64
}

const refColumns = `p.purchase_id, p.campaign_id, p.version`

// refsInto reads rows of refColumns.
func refsInto(refs *[]Ref) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*refs, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Ref])
		return err
	}
}

// Job returns the job of the purchase.
func (r Ref) Job() job.Ref { return job.Ref{ID: r.PurchaseID, CampaignID: r.CampaignID} }

// Item returns the payment as a leased item.
func (r Ref) Item() lease.Item {
	return lease.Item{ID: r.PurchaseID, Version: r.Version, Kind: "payment"}
}

// PurchasesOf returns the purchases of payments, whose ids are those of their jobs.
func PurchasesOf(refs []Ref) []uuid.UUID {
	ids := make([]uuid.UUID, len(refs))
	for i, ref := range refs {
		ids[i] = ref.PurchaseID
	}
	return ids
}

// Items returns payments as leased items.
func Items(refs []Ref) []lease.Item {
	items := make([]lease.Item, len(refs))
	for i, ref := range refs {
		items[i] = ref.Item()
	}
	return items
}

// Payment is the payment of a purchase at a provider.
type Payment struct {
	PurchaseID    uuid.UUID
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
	Livemode      *bool // whether its intent moves money; nil: the provider has not reported it
	Received      money.Amount
	NextAction    *string
	Ending        *Ending
	Uncancellable bool
	Decline       *payprovider.Decline
	CancelJob     *uuid.UUID
	CancelledBy   *string
	CancelReason  *string
	Faults        int
	WaitingFor    *BlockedReason
	LastError     *string // what the provider has said, while it waits; for operators only
	DisputedAt    *time.Time
	Dispute       *payprovider.Dispute // the relevant one; nothing is released because of it
	Disputed      money.Amount         // by disputes that are lost
	Overlap       money.Amount         // of that, what refunds have given back too, and is the same money: see overlap_of in the migrations
	CreatedAt     time.Time
	FinishedAt    *time.Time
	ResolvedAs    *Finding // what an operator has said of it; nil: nobody had to
	ResolvedBy    *string  // role:client
	ResolveReason *string
	Reference     *string // of money that was paid out of band
}

// PaidOutOfBand reports whether an operator has said that the money came in another way. Then the
// provider should have none of it.
func (p *Payment) PaidOutOfBand() bool { return p.ResolvedAs != nil && *p.ResolvedAs == FoundOutOfBand }

// Resolved reports whether an operator has said how it ended, and nothing of ours depends on what the
// provider says of it any more.
func (p *Payment) Resolved() bool {
	return p.Phase == Cancelled && p.ResolvedAs != nil || p.Phase.Final() && p.PaidOutOfBand()
}

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
	return Ref{PurchaseID: p.PurchaseID, CampaignID: p.CampaignID, Version: p.Version}
}

// columns are the fields of a Payment, in order.
const columns = `p.purchase_id, p.campaign_id, p.amount, p.currency, p.payment_method, p.return_url, p.phase, p.version, p.lease_until,
	p.due_at, p.wakes, p.deadline, p.latest, p.awaits_until, p.kept_since, p.declined_until, p.over_at <= clock_timestamp(), p.attempt, p.attempt_at, p.tries,
	coalesce(extract(epoch FROM clock_timestamp() - p.attempt_at) * interval '1 second', interval '0'), p.intent_id, p.intent_status, p.livemode, p.received,
	p.next_action, p.ending, p.uncancellable, p.decline, p.cancel_job, p.cancelled_by, p.cancel_reason, p.faults, p.waiting_for, p.last_error,
	p.disputed_at, p.dispute, p.amount_disputed, CASE WHEN p.disputed_at IS NULL THEN 0 ELSE overlap_of(p) END, p.created_at, p.finished_at, p.resolved_as, p.resolved_by, p.resolve_reason, p.resolve_reference`

var scan = pgx.RowToStructByPos[Payment]

// Get returns the payment of a purchase, and false when it has none.
func Get(ctx context.Context, db postgres.DB, purchaseID uuid.UUID) (p Payment, ok bool, err error) {
	p, err = postgres.CollectOne(ctx, db, scan, `SELECT `+columns+` FROM payments p WHERE purchase_id = $1`, purchaseID)
	ok, err = postgres.Found(err)
	return p, ok, fault.At(err, "payment.Get(%s)", purchaseID)
}

// QueueGet reads the payments of purchases into a map. It leaves out those that have none.
func QueueGet(b *pgx.Batch, purchases []uuid.UUID, into map[uuid.UUID]*Payment) {
	b.Queue(`SELECT `+columns+` FROM payments p WHERE purchase_id = ANY($1)`, purchases).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scan)
		for _, p := range found {
			into[p.PurchaseID] = &p
		}
		return err
	})
}

// OfIntent returns the payment that has an intent of the provider, and false when it is not known here.
func OfIntent(ctx context.Context, db postgres.DB, intent string) (p Payment, ok bool, err error) {
	p, err = postgres.CollectOne(ctx, db, scan, `SELECT `+columns+` FROM payments p WHERE intent_id = $1`, intent)
	ok, err = postgres.Found(err)
	return p, ok, fault.At(err, "payment.OfIntent(%s)", intent)
}

// Step is a dated step of a payment or of its refund, for the timeline of the purchase.
type Step struct {
	PurchaseID uuid.UUID
	At         time.Time // set by the database
	Event      string    // one of the Step constants
	Detail     *string   // for people; nil: the event says it all
	Declined   bool      `db:"-"` // a bank has declined a card: it counts, see [QueueCards]
}

// The events of steps.
const (
	StepReserved        = "reserved"        // positions are reserved for the payment
	StepPaymentStarted  = "payment-started" // the intent exists at the provider
	StepActionRequired  = "action-required"
	StepActionDone      = "action-done"
	StepProcessing      = "processing"
	StepAuthorized      = "authorized"
	StepCaptured        = "captured"
	StepDeclined        = "declined"
	StepMethodChanged   = "payment-method-changed" // the buyer has brought another one
	StepExpired         = "expired"
	StepExtended        = "reservation-extended"
	StepReleased        = "released"         // the positions are free again
	StepHeldAgain       = "held-again"       // the hold that the purchase used keeps the positions again
	StepLate            = "payment-late"     // money that came after the release
	StepResolved        = "payment-resolved" // by hand
	StepRefundOpen      = "refund-requested"
	StepRefundPending   = "refund-pending"
	StepRefundAction    = "refund-requires-action"
	StepRefunded        = "refunded"
	StepRefundFailed    = "refund-failed"
	StepRefundResolved  = "refund-resolved"           // by hand
	StepOutOfBand       = "refunded-out-of-band"      // at the provider, and not by us
	StepOutOfBandFailed = "out-of-band-refund-failed" // after all: nothing was refunded
	StepDisputed        = "disputed"
	StepDisputeClosed   = "dispute-closed"
)

// QueueSteps records steps, at the present moment of the database.
func QueueSteps(b *pgx.Batch, steps ...Step) {
	n := len(steps)
	purchases, events, details := make([]uuid.UUID, n), make([]string, n), make([]*string, n)
	for i, s := range steps {
		purchases[i], events[i], details[i] = s.PurchaseID, s.Event, s.Detail
	}
	b.Queue(`INSERT INTO payment_steps (purchase_id, event, detail) SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[])`, purchases, events, details).
		Exec(postgres.Exactly(n, "new steps"))
}

// StepsOf returns the steps of purchases, the oldest first.
func StepsOf(ctx context.Context, db postgres.DB, purchases []uuid.UUID) ([]Step, error) {
	steps, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Step], `
		SELECT purchase_id, at, event, detail FROM payment_steps WHERE purchase_id = ANY($1) ORDER BY purchase_id, number`, purchases)
	return steps, fault.At(err, "payment.StepsOf")
}
