package payment

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

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
	StepReassigned      = "reassigned"       // other positions for late money
	StepResolved        = "payment-resolved" // by hand
	StepRefundOpen      = "refund-requested"
	StepRefundPending   = "refund-pending"
	StepRefundAction    = "refund-requires-action"
	StepRefunded        = "refunded"
	StepRefundFailed    = "refund-failed"
	StepRefundResolved  = "refund-resolved"           // by hand
	StepOutOfBand       = "refunded-out-of-band"      // at the provider, and not by us
	StepOutOfBandFailed = "out-of-band-refund-failed" // after all: nothing was given back
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
