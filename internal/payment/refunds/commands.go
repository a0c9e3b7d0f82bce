package refunds

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
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

// Resolve notes that a refund was made by hand, with the reason: by an app
// one of its client that was listed for it, by an operator, who sees everything, a card refund that the provider has
// refused, or refuses to report. A request for the other kind gets a forbidden Error; a
// refund in another state is a state-conflict Error.
func (s *Service) Resolve(ctx context.Context, r job.Request, who access.Grant, id uuid.UUID, by, reason string) (job.Accepted, error) {
	return s.edit(ctx, r, who, id, func(b *pgx.Batch, known payment.Refund) error {
		if err := mayResolve(known, !who.All()); err != nil {
			return err
		}
		queueResolve(b, id, by, reason)
		if known.Method == payment.RefundToCard {
			purchase.QueueFollow(b, known.PurchaseID)
		}
		payment.QueueSteps(b, payment.Step{PurchaseID: known.PurchaseID, Event: payment.StepRefundResolved, Detail: &reason})
		return nil
	})
}

// mostResolved is how many refunds one request resolves at most.
const mostResolved = 1000

// campaignResolved is what a request for the refunds of a campaign has done.
type campaignResolved struct {
	CampaignID uuid.UUID `json:"campaign_id"`
	Resolved   int       `json:"resolved"`
	More       bool      `json:"more"` // of those that Resolve would accept
}

// ResolveCampaign is [Service.Resolve] for refunds of a campaign, [mostResolved] at most: those that
// the app, or else an operator, may resolve one by one now. An unknown campaign is a not-found Error.
func (s *Service) ResolveCampaign(ctx context.Context, r job.Request, who access.Grant, by, reason string) (job.Accepted, error) {
	return job.Once(ctx, s.db, r, func(tx pgx.Tx) (any, error) {
		if _, err := campaign.Get(ctx, tx, r.CampaignID); err != nil {
			return nil, err
		}
		method := payment.RefundToCard
		if !who.All() {
			method = payment.RefundExternal
		}
		purchases, more, err := resolveOfCampaign(ctx, tx, who, r.CampaignID, method, by, reason, mostResolved)
		if err != nil {
			return nil, err
		}
		steps := make([]payment.Step, len(purchases))
		for i, id := range purchases {
			steps[i] = payment.Step{PurchaseID: id, Event: payment.StepRefundResolved, Detail: &reason}
		}
		var b pgx.Batch
		if method == payment.RefundToCard {
			purchase.QueueFollow(&b, purchases...)
		}
		payment.QueueSteps(&b, steps...)
		return campaignResolved{r.CampaignID, len(purchases), more}, fault.At(tx.SendBatch(ctx, &b).Close(), "refunds.ResolveCampaign")
	})
}

func mayResolve(known payment.Refund, asApp bool) error {
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
	}
	return nil
}

func (s *Service) edit(ctx context.Context, r job.Request, who access.Grant, id uuid.UUID, decide func(b *pgx.Batch, known payment.Refund) error) (job.Accepted, error) {
	lock := func(ctx context.Context, tx pgx.Tx) (payment.Refund, error) {
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

// resolved are the assignments that resolve a refund r: $1 and $2 say by whom and why. One by card
// is then about what others have left: they may be what was done by hand, and if one fails later
// its money must be owed again. An attempt may have been made at the provider: it is due until the
// refunds of the intent are listed.
const resolved = `amount = CASE WHEN method = 'card' THEN greatest(least(amount, ` + leftSQL + `), 0) ELSE amount END,
		    provider_id = CASE WHEN method <> 'card' OR amount <= ` + leftSQL + ` THEN provider_id END,
		    state = 'resolved', version = version + 1, lease_until = NULL, due_at = CASE WHEN method = 'card' AND attempt > 0 THEN clock_timestamp() END,
		    faults = 0, stuck = false, waiting_since = NULL, resolved_by = $1, resolve_reason = $2,
		    finished_at = coalesce(finished_at, clock_timestamp())`

// queueResolve notes that a refund was made by hand, by whom and why: one that was
// listed, one that the provider has refused, or one that is stuck and that no worker has:
// a worker could still make that one. A worker that still has it is fenced.
func queueResolve(b *pgx.Batch, id uuid.UUID, by, reason string) {
	b.Queue(`UPDATE refunds r SET `+resolved+` WHERE id = $3 AND `+resolvable, by, reason, id).
		Exec(payment.OrConflict("refund %s: only a refund that is listed, or whose waiting_for is operator and that no worker has, can be resolved by hand", id))
}

// resolveOfCampaign is [queueResolve] for up to limit refunds of a campaign that were paid by one method.
// It passes over those that another transaction has locked, and resolves one card refund of a purchase: what
// is left for the next one depends on that. It returns the purchase of each, and whether
// there are more.
func resolveOfCampaign(ctx context.Context, tx pgx.Tx, who access.Grant, campaignID uuid.UUID, method payment.RefundMethod, by, reason string, limit int) (purchases []uuid.UUID, more bool, err error) {
	purchases, err = postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], `
		WITH chosen AS MATERIALIZED (
			SELECT id, purchase_id FROM refunds WHERE campaign_id = $3 AND method = $4 AND ($6::text IS NULL OR client = $6) AND `+resolvable+` ORDER BY id LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED)
		UPDATE refunds r SET `+resolved+` WHERE id = ANY(ARRAY(SELECT DISTINCT ON (CASE WHEN $4 = 'card' THEN purchase_id ELSE id END) id FROM chosen ORDER BY CASE WHEN $4 = 'card' THEN purchase_id ELSE id END, id)) RETURNING purchase_id`, by, reason, campaignID, string(method), limit, who.Client())
	if err == nil {
		err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM refunds WHERE campaign_id = $1 AND method = $2 AND ($3::text IS NULL OR client = $3) AND `+resolvable+`)`, campaignID, string(method), who.Client()).Scan(&more)
	}
	return purchases, more, fault.At(err, "refunds.resolveOfCampaign(%s)", campaignID)
}
