package payments

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/store/agenda"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
	"triprize/internal/store/purchase"
)

// Try has a purchase paid with another payment method: after a decline, or while its buyer is
// to authenticate. Its job goes on as before. returnURL replaces where an authentication ends;
// nil: it stays. A payment that does not wait for its buyer, that is over or taken back, or that
// has had [payment.MostTries] others is a state-conflict Error; a buyer with too many cards that were
// declined or are being tried gets a decline-limit-exceeded Error, which says until when.
func (s *Service) Try(ctx context.Context, r job.Request, purchaseID uuid.UUID, buyer payment.Buyer, method string, returnURL *string) (job.Accepted, error) {
	type known struct {
		payment.Payment
		payment.Cards // the others of the buyer
	}
	lock := func(ctx context.Context, tx pgx.Tx) (k known, err error) {
		if k.Payment, err = payment.Lock(ctx, tx, purchaseID); err != nil {
			return k, err
		}
		var b pgx.Batch
		payment.QueueCards(&b, []payment.Buyer{buyer}, purchaseID, true, nil, func(_ payment.Buyer, others payment.Cards) { k.Cards = others })
		return k, tx.SendBatch(ctx, &b).Close()
	}
	edited, accepted, err := job.Edit(ctx, s.db, r, lock, func(b *pgx.Batch, k known) error {
		if err := mayTry(&k.Payment); err != nil {
			return err
		}
		if k.Count >= payment.MostDeclines {
			return payment.TooManyDeclines(k.Again)
		}
		payment.QueueTry(b, &k.Payment, method, returnURL)
		purchase.QueueAwaiting(b, purchaseID, false)
		job.QueueProgress(b, k.JobID, job.Queued, nil)
		return nil
	}, func(k known) any { return s.render(k.Payment) })
	if edited != nil {
		s.dispatch([]agenda.Item{edited.Ref().Item()})
	}
	return accepted, err
}

// mayTry returns why a payment cannot be paid with another payment method, or nil. The reason
// is for people: the write has the same conditions, and decides.
func mayTry(p *payment.Payment) error {
	switch {
	case p.CancelJob != nil || p.Ending != nil:
		return fault.New(fault.StateConflict, "the purchase waits for no other payment method: it was given up or cancelled")
	case p.Phase.Final() || p.Phase == payment.Captured:
		return fault.New(fault.StateConflict, "the purchase waits for no other payment method: its payment is over")
	case !p.Phase.AwaitsBuyer():
		return fault.New(fault.StateConflict, "the purchase waits for no other payment method now: a card is just being charged; follow the job")
	case p.Over:
		return fault.New(fault.StateConflict, "the time for another payment method was over at %s", p.OverAt().UTC().Format(time.RFC3339))
	case p.Tries >= payment.MostTries:
		return fault.New(fault.StateConflict, "%d other payment methods were tried for this purchase, which is the most", p.Tries)
	}
	return nil
}
