package refunds

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// Service carries out what people decide about refunds.
type Service struct {
	db     postgres.Beginner
	render func(payment.Refund) any
}

// NewService returns a Service; db is a pool, or a view of it for transactions that may
// wait for locks. render makes the answer's body from a refund.
func NewService(db postgres.Beginner, render func(payment.Refund) any) *Service {
	return &Service{db: db, render: render}
}

// Retry opens a card refund again that the provider has refused, or has one that is stuck
// checked now: it must wait for an operator. Any other is a state-conflict Error, and an
// unknown one a not-found Error. by goes into the timeline of the purchase when it is
// opened again.
func (s *Service) Retry(ctx context.Context, r job.Request, id uuid.UUID, by string) (job.Accepted, error) {
	return s.edit(ctx, r, access.Everything(), id, func(b *pgx.Batch, known payment.Refund) error {
		if known.Method != payment.RefundToCard {
			return fault.New(fault.StateConflict, "the purchase was paid by %s; only card refunds can be retried", known.Method)
		}
		if !known.ForOperator() {
			return fault.New(fault.StateConflict, "the refund is %s; only a refund whose waiting_for is operator can be retried", known.State)
		}
		if !known.State.Refused() {
			queueWake(b, id)
			return nil
		}
		queueRetry(b, id)
		detail := "tried again by " + by
		payment.QueueSteps(b, payment.Step{PurchaseID: known.PurchaseID, Event: payment.StepRefundOpen, Detail: &detail})
		return nil
	})
}

// ByHand is a refund that was made by hand, over what was returned: all that is due of it.
type ByHand struct {
	ID     uuid.UUID
	Amount money.Amount
}

// Resolve notes that a refund was made by hand, with the reason: by an app
// one of its client that was listed for it, by an operator, who sees everything, a card refund that the provider has
// refused, or refuses to report. A request for the other kind gets a forbidden Error; a
// refund in another state, or over another amount by now, is a state-conflict Error.
func (s *Service) Resolve(ctx context.Context, r job.Request, who access.Grant, made ByHand, by, reason string) (job.Accepted, error) {
	return s.edit(ctx, r, who, made.ID, func(b *pgx.Batch, known payment.Refund) error {
		if err := mayResolve(known, !who.All(), made.Amount); err != nil {
			return err
		}
		queueResolve(b, known, by, reason)
		queueFollow(b, known)
		return nil
	})
}

// campaignResolved is what a request for the refunds of a campaign has done.
type campaignResolved struct {
	CampaignID uuid.UUID    `json:"campaign_id"`
	Resolved   int          `json:"resolved"`
	Amount     money.Amount `json:"amount"`
}

// ResolveCampaign is [Service.Resolve] for refunds of a campaign: all, or none. An unknown campaign or refund is
// a not-found Error.
func (s *Service) ResolveCampaign(ctx context.Context, r job.Request, who access.Grant, made []ByHand, by, reason string) (job.Accepted, error) {
	return job.Once(ctx, s.db, r, func(tx pgx.Tx) (any, error) {
		if _, err := campaign.Get(ctx, tx, r.CampaignID); err != nil {
			return nil, err
		}
		amounts := make(map[uuid.UUID]money.Amount, len(made))
		for _, one := range made {
			amounts[one.ID] = one.Amount
		}
		if len(amounts) < len(made) {
			return nil, fault.New(fault.InvalidRequest, "a refund is named twice")
		}
		if _, err := tx.Exec(ctx, lockPayments, slices.Collect(maps.Keys(amounts))); err != nil {
			return nil, fault.At(err, "refunds.ResolveCampaign")
		}
		ids, err := postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], `
			SELECT id FROM refunds WHERE id = ANY($1) AND campaign_id = $2 AND ($3::text IS NULL OR client = $3) ORDER BY id FOR NO KEY UPDATE`,
			slices.Collect(maps.Keys(amounts)), r.CampaignID, who.Client())
		if err != nil {
			return nil, fault.At(err, "refunds.ResolveCampaign")
		}
		if len(ids) < len(amounts) {
			return nil, fault.New(fault.NotFound, "%d of these %d refunds are not of this campaign", len(amounts)-len(ids), len(amounts))
		}
		resolved, err := payment.GetRefunds(ctx, tx, ids)
		if err != nil {
			return nil, err
		}
		var b pgx.Batch
		done := campaignResolved{CampaignID: r.CampaignID}
		for _, known := range resolved { // what is due of one stays so when one before it of its purchase is resolved
			if err := mayResolve(known, !who.All(), amounts[known.ID]); err != nil {
				return nil, err
			}
			queueResolve(&b, known, by, reason)
			done.Resolved, done.Amount = done.Resolved+1, done.Amount+known.Due
		}
		queueFollow(&b, resolved...)
		return done, fault.At(postgres.Send(ctx, tx, &b), "refunds.ResolveCampaign")
	})
}

// mayResolve returns why a refund cannot be resolved by hand over an amount, or nil. The reason
// is for people: the write has the same conditions, and decides.
func mayResolve(known payment.Refund, asApp bool, amount money.Amount) error {
	currency := money.Currency(known.Currency)
	switch {
	case known.Method == payment.RefundToWallet:
		return fault.New(fault.StateConflict, "the wallet was already credited")
	case known.Method == payment.RefundExternal && !asApp:
		return fault.New(fault.Forbidden, "the app has the money of this purchase; only an app can resolve its refund")
	case known.Method == payment.RefundToCard && asApp:
		return fault.New(fault.Forbidden, "only an operator can resolve a card refund")
	case known.Method == payment.RefundExternal && known.State != payment.RefundListed:
		return fault.New(fault.StateConflict, "the refund is %s already", known.State)
	case known.Method == payment.RefundToCard && known.ForOperator() && !known.State.Refused() && known.LeaseUntil != nil && known.LeaseUntil.After(time.Now()):
		return fault.New(fault.StateConflict, "a worker is checking this refund with the provider; retry in a moment")
	case known.Method == payment.RefundToCard && !known.ForOperator():
		return fault.New(fault.StateConflict, "the refund is %s; only a refund whose waiting_for is operator can be resolved by hand", known.State)
	case known.Due != amount:
		return fault.New(fault.StateConflict, "refund %s: %s are to be returned now, and not %s; others may have returned a part. Read it again", known.ID, currency.Format(known.Due), currency.Format(amount))
	}
	return nil
}

// lockPayments locks the payments of refunds: whoever records another refund of one holds it, and what is due depends on that.
const lockPayments = `SELECT FROM payments WHERE purchase_id = ANY(ARRAY(SELECT purchase_id FROM refunds WHERE id = ANY($1))) ORDER BY purchase_id FOR NO KEY UPDATE`

func (s *Service) edit(ctx context.Context, r job.Request, who access.Grant, id uuid.UUID, decide func(b *pgx.Batch, known payment.Refund) error) (job.Accepted, error) {
	lock := func(ctx context.Context, tx pgx.Tx) (payment.Refund, error) {
		if _, err := tx.Exec(ctx, lockPayments, []uuid.UUID{id}); err != nil {
			return payment.Refund{}, fault.At(err, "refunds.edit(%s)", id)
		}
		if _, err := tx.Exec(ctx, `SELECT FROM refunds WHERE id = $1 AND ($2::text IS NULL OR client = $2) FOR NO KEY UPDATE`, id, who.Client()); err != nil {
			return payment.Refund{}, fault.At(err, "refunds.edit(%s)", id)
		}
		return payment.GetRefund(ctx, tx, who, id) // in a later statement: it sees what the lock has waited for
	}
	_, accepted, err := job.Edit(ctx, s.db, r, lock, decide, s.render)
	return accepted, err
}

// queueRetry opens a refund again that the provider has refused. The key of the next
// attempt is stored with it. A worker that still has the refund is fenced.
func queueRetry(b *pgx.Batch, id uuid.UUID) {
	b.Queue(`
		UPDATE refunds r
		SET state = 'open', version = version + 1, lease_until = NULL, due_at = clock_timestamp(), attempt = attempt + 1,
		    attempt_at = clock_timestamp(), asked = amount, provider_id = NULL, failure = NULL, faults = 0, stuck = false, waiting_since = NULL
		WHERE id = $1 AND method = 'card' AND number IS NOT NULL AND state IN ('failed', 'canceled')
		  AND NOT `+beingMade, id).
		Exec(payment.OrConflict("refund %s: the provider has not rejected the refund, or another refund of the purchase is being made", id))
}

// queueWake makes a stuck refund due now. The worker that has it checks it again when it
// is done.
func queueWake(b *pgx.Batch, id uuid.UUID) {
	b.Queue(`
		UPDATE refunds SET `+lease.Woken+`
		WHERE id = $1 AND method = 'card' AND stuck AND state IN ('open', 'pending', 'requires_action')`, id).
		Exec(payment.OrConflict("refund %s: the refund is not stuck", id))
}

// resolvable is the condition of refunds that can be resolved by hand.
const resolvable = `number IS NOT NULL AND (method = 'external' AND state = 'listed' OR method = 'card' AND state IN ('failed', 'canceled')
		  OR method = 'card' AND stuck AND state IN ('open', 'pending', 'requires_action') AND (lease_until IS NULL OR lease_until <= clock_timestamp()))`

// queueResolve notes that a refund was made by hand, by whom and why, over all that is due of it: one that was
// listed, one that the provider has refused, or one that is stuck and that no worker has:
// a worker could still make that one. A worker that still has it is fenced.
//
// One by card is then about what others have left: they may be what was done by hand, and if one fails later
// its money must be owed again. An attempt may have been made at the provider, or an event has reported
// a refund by others: it is due until the refunds of the intent are listed.
func queueResolve(b *pgx.Batch, known payment.Refund, by, reason string) {
	b.Queue(`
		UPDATE refunds r SET amount = $4, provider_id = CASE WHEN amount = $4 THEN provider_id END,
		    state = 'resolved', version = version + 1, lease_until = NULL, due_at = CASE WHEN method = 'card' AND (attempt > 0 OR due_at IS NOT NULL) THEN clock_timestamp() END,
		    faults = 0, stuck = false, waiting_since = NULL, resolved_by = $1, resolve_reason = $2, finished_at = coalesce(finished_at, clock_timestamp())
		WHERE id = $3 AND `+resolvable+` AND `+payment.DueSQL+` = $4`, by, reason, known.ID, int64(known.Due)).
		Exec(payment.OrConflict("refund %s has just changed; read it again", known.ID))
	payment.QueueSteps(b, payment.Step{PurchaseID: known.PurchaseID, Event: payment.StepRefundResolved, Detail: &reason})
}

// queueFollow lets the purchases of card refunds that were resolved follow, all at once: they are locked in one order.
func queueFollow(b *pgx.Batch, resolved ...payment.Refund) {
	var purchases []uuid.UUID
	for _, r := range resolved {
		if r.Method == payment.RefundToCard {
			purchases = append(purchases, r.PurchaseID)
		}
	}
	if len(purchases) > 0 {
		purchase.QueueFollow(b, purchases...)
	}
}
