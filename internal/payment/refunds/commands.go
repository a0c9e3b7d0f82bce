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
		return lock(ctx, tx, who, id)
	}
	_, accepted, err := job.Edit(ctx, s.db, r, lock, decide, s.render)
	return accepted, err
}
