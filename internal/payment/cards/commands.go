package cards

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// Service carries out what operators decide about payments that wait, and what buyers change.
type Service struct {
	db       postgres.Beginner
	provider payprovider.Provider // nil: there is none
	dispatch func([]lease.Item)
	render   func(payment.Payment) any
}

// NewService returns a Service. db is a pool, or a view of it for transactions that may
// wait for locks. provider may be nil. dispatch gets payments that are due since a commit, and what it does may
// be lost; nil: the sweep due-items finds them. render makes the answer's body
// from a payment.
func NewService(db postgres.Beginner, provider payprovider.Provider, dispatch func([]lease.Item), render func(payment.Payment) any) *Service {
	if dispatch == nil {
		dispatch = func([]lease.Item) {}
	}
	return &Service{db: db, provider: provider, dispatch: dispatch, render: render}
}

// Retry has a waiting payment checked now: the provider is asked again. It has the disputes and refunds listed of one
// that is finished with money. Any other that does not wait is a state-conflict Error, as is one that waits for a key or is
// finished while there is none; an unknown one is a not-found Error.
func (s *Service) Retry(ctx context.Context, r job.Request, purchaseID uuid.UUID) (job.Accepted, error) {
	return s.edit(ctx, r, purchaseID, func(b *pgx.Batch, known payment.Payment) error {
		isFinished := known.Phase == payment.Settled || known.Phase == payment.RefundDue
		if known.WaitsFor() == "" && !isFinished {
			return fault.New(fault.StateConflict, "the payment does not wait for the provider or an operator; it is in phase %s", known.Phase)
		}
		if (known.WaitsFor() == payment.WaitsForKey || isFinished) && s.provider == nil {
			return fault.New(fault.StateConflict, "cards are disabled: the provider cannot be queried until payments.stripe.key is set")
		}
		payment.QueueWake(b, purchaseID)
		return nil
	})
}

// Resolve ends a payment that waits for an operator with what the operator has found. From then on
// it goes the way of every payment: see [payment.QueueResolve]. Who it was and
// the reason go into the timeline of the purchase. A payment that a worker could still lead
// on, or that has changed since it was read, is a state-conflict Error.
//
// That it is paid is not believed: the provider is asked, before the transaction. What has succeeded
// there stays so.
func (s *Service) Resolve(ctx context.Context, r job.Request, purchaseID uuid.UUID, says payment.Resolution) (job.Accepted, error) {
	var there payprovider.Intent
	var notPaid error
	if says.Found == payment.FoundPaid {
		there, notPaid = s.paidThere(ctx, purchaseID)
	}
	return s.edit(ctx, r, purchaseID, func(b *pgx.Batch, known payment.Payment) error {
		if err := mayResolve(&known, says, time.Now()); err != nil {
			return err
		}
		if notPaid != nil {
			return notPaid
		}
		payment.QueueResolve(b, purchaseID, says, there)
		detail := fmt.Sprintf("%s, says %s: %s", strings.TrimSpace(string(says.Found)+" "+says.Reference), says.By, says.Reason)
		payment.QueueSteps(b, payment.Step{PurchaseID: purchaseID, Event: payment.StepResolved, Detail: &detail})
		return nil
	})
}

// insideTransaction is for how long a transaction waits for the provider: less than Postgres lets it be idle.
const insideTransaction = 3 * time.Second

// paidThere asks the provider about a payment. It returns an Error unless all of its money is there.
func (s *Service) paidThere(ctx context.Context, purchaseID uuid.UUID) (there payprovider.Intent, err error) {
	const otherwise = "; if the money came in another way, resolve it as paid-out-of-band"
	if s.provider == nil {
		return there, fault.New(fault.StateConflict, "cards are disabled: the provider cannot be queried whether it has the money%s", otherwise)
	}
	var known payment.Payment
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
		known, _, err = payment.Get(ctx, tx, purchaseID)
		return err
	})
	if err != nil || known.IntentID == nil { // without one it cannot be resolved
		return there, err
	}
	if postgres.Outer(ctx) != nil { // a transaction waits meanwhile
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, insideTransaction)
		defer cancel()
	}
	there, err = s.provider.Intent(ctx, *known.IntentID)
	switch {
	case err != nil && payprovider.AsError(err, string(fetch)).Kind == payprovider.KindRefused:
		return there, fault.Wrap(fault.StateConflict, err, "the provider does not know this payment"+otherwise)
	case err != nil:
		return there, fault.Wrap(fault.Unavailable, err, "the provider cannot be queried whether it has the money; retry"+otherwise)
	case there.ID != *known.IntentID || there.Status != payprovider.Succeeded || there.Received != known.Amount || there.Currency != known.Currency:
		return there, fault.New(fault.StateConflict, "the provider says that the payment is %s with %s received of %s%s", there.Status,
			money.Currency(there.Currency).Format(there.Received), money.Currency(known.Currency).Format(known.Amount), otherwise)
	}
	return there, nil
}

// mayResolve returns why a payment cannot be resolved by hand, or nil. The reason is for
// people: the write has the same conditions, and decides.
func mayResolve(p *payment.Payment, says payment.Resolution, now time.Time) error {
	switch {
	case p.WaitsFor() != payment.WaitsForOperator:
		return fault.New(fault.StateConflict, "only a payment that waits for an operator can be resolved by hand; this one is in phase %s", p.Phase)
	case p.IntentID == nil:
		return fault.New(fault.StateConflict, "the payment has not reached the provider and ends automatically at %s", p.OverAt().UTC().Format(time.RFC3339))
	case p.Phase.BeforeCapture():
		return fault.New(fault.StateConflict, "the payment may still be paid until %s; then it is cancelled at the provider. Resolve it if it still waits after that",
			p.OverAt().UTC().Format(time.RFC3339))
	case p.LeaseUntil != nil && p.LeaseUntil.After(now):
		return fault.New(fault.StateConflict, "a worker is checking this payment with the provider; retry in a moment")
	case p.Version != says.Version:
		return fault.New(fault.StateConflict, "the payment has changed since you read it: it has version %d, and not %d; read it again", p.Version, says.Version)
	case (p.Phase == payment.Settled || p.Phase == payment.RefundDue) && says.Found == payment.FoundUnpaid:
		return fault.New(fault.StateConflict, "the payment was paid out of band: refund the provider's money there, then resolve it as paid-out-of-band once more")
	}
	return nil
}

// edit decides about a payment that is locked; what else the decision depends on is read after the lock.
func (s *Service) edit(ctx context.Context, r job.Request, purchaseID uuid.UUID, decide func(b *pgx.Batch, known payment.Payment) error, read ...func(b *pgx.Batch)) (job.Accepted, error) {
	lock := func(ctx context.Context, tx pgx.Tx) (payment.Payment, error) {
		known, err := payment.Lock(ctx, tx, purchaseID)
		var b pgx.Batch
		for _, queue := range read {
			queue(&b)
		}
		if err == nil {
			err = postgres.Send(ctx, tx, &b)
		}
		return known, err
	}
	edited, accepted, err := job.Edit(ctx, s.db, r, lock, decide, s.render)
	if edited != nil {
		postgres.AfterCommit(ctx, func() { s.dispatch([]lease.Item{edited.Ref().Item()}) })
	}
	return accepted, err
}

// Try has a purchase paid with another payment method: after a decline, or while its buyer is
// to authenticate. Its job goes on as before. returnURL replaces where an authentication ends;
// nil: it stays. A payment that does not wait for its buyer, that is over or taken back, or that
// has had [payment.MaxTries] others is a state-conflict Error; a buyer with too many cards that were
// declined or are being tried gets a decline-limit-exceeded Error, which says until when.
func (s *Service) Try(ctx context.Context, r job.Request, purchaseID uuid.UUID, buyer payment.Buyer, method string, returnURL *string) (job.Accepted, error) {
	var others payment.Cards // of the buyer
	return s.edit(ctx, r, purchaseID, func(b *pgx.Batch, known payment.Payment) error {
		if err := mayTry(&known); err != nil {
			return err
		}
		if others.Count >= payment.MaxDeclines {
			return payment.TooManyDeclines(others.Again)
		}
		payment.QueueTry(b, &known, method, returnURL)
		purchase.QueueAwaiting(b, purchaseID, false)
		job.QueueProgress(b, known.PurchaseID, job.Queued, nil)
		return nil
	}, func(b *pgx.Batch) {
		payment.QueueCards(b, []payment.Buyer{buyer}, purchaseID, true, nil, func(_ payment.Buyer, counted payment.Cards) { others = counted })
	})
}

// mayTry returns why a payment cannot be paid with another payment method, or nil. The reason
// is for people: the write has the same conditions, and decides.
func mayTry(p *payment.Payment) error {
	switch {
	case p.CancelJob != nil || p.Ending != nil:
		return fault.New(fault.StateConflict, "the purchase does not wait for another payment method: it has expired or was cancelled")
	case p.Phase.Final() || p.Phase == payment.Captured:
		return fault.New(fault.StateConflict, "the purchase does not wait for another payment method: its payment has ended")
	case !p.Phase.AwaitsBuyer():
		return fault.New(fault.StateConflict, "the purchase does not wait for another payment method: a card is being charged; follow the job")
	case p.Over:
		return fault.New(fault.StateConflict, "the time for another payment method ended at %s", p.OverAt().UTC().Format(time.RFC3339))
	case p.Tries >= payment.MaxTries:
		return fault.New(fault.StateConflict, "%d other payment methods were tried for this purchase, which is the maximum", p.Tries)
	}
	return nil
}
