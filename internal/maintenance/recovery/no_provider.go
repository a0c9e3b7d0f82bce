package recovery

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/service/payments"
	"triprize/internal/service/sale"
	"triprize/internal/store/agenda"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
	"triprize/internal/store/refund"
)

// concludedAtOnce is how many payments a transaction of the sale concludes here.
const concludedAtOnce = 50

// withoutProvider is what becomes of due payments where cards are switched off, since no
// worker takes their tasks. Those whose end is known without a provider get it here: what
// was given up before anything was sent, what an operator has resolved, what was captured
// before. The others wait for a key, and say so.
func (s *Sweeper) withoutProvider(ctx context.Context, counts Counts, _ agenda.Table, due []agenda.Item) error {
	var known, waiting []payment.Ref
	err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
		if known, waiting, err = payment.EndUnsent(ctx, tx, due); err != nil || len(waiting) == 0 {
			return err
		}
		return s.sayNoKey(ctx, tx, waiting)
	})
	if err != nil {
		return err
	}
	counts["payments_waiting"] += len(waiting)
	if len(waiting) > 0 {
		s.logger.Error("payments wait: payments.stripe.key is not set", "payments", len(waiting))
	}
	for some := range slices.Chunk(known, concludedAtOnce) {
		err := s.conclude(ctx, counts, some)
		if err == nil {
			continue
		}
		if postgres.IsTransient(err) || ctx.Err() != nil {
			return err
		}
		for i, one := range some { // one of them is broken, and the others need not suffer
			if err := s.conclude(ctx, counts, some[i:i+1]); err != nil {
				s.logger.Error("a payment cannot be concluded", "purchase", one.PurchaseID, "error", err)
			}
		}
	}
	return nil
}

// refundsWithoutProvider notes that refunds wait for a key.
func (s *Sweeper) refundsWithoutProvider(ctx context.Context, counts Counts, _ agenda.Table, due []agenda.Item) error {
	n, err := refund.WaitForKey(ctx, s.db, due)
	counts["refunds_waiting"] += n
	if n > 0 {
		s.logger.Error("refunds wait: payments.stripe.key is not set", "refunds", n)
	}
	return err
}

// conclude decides what becomes of payments whose end is known. Those whose campaign is
// locked are due again later.
func (s *Sweeper) conclude(ctx context.Context, counts Counts, known []payment.Ref) error {
	jobs := make([]job.Ref, len(known))
	for i, p := range known {
		jobs[i] = job.Ref{ID: p.JobID, CampaignID: p.CampaignID}
	}
	report, err := s.seller.Conclude(ctx, jobs, sale.SkipLocked)
	if err != nil {
		return err
	}
	for _, broken := range report.Broken {
		s.logger.Error("a payment was concluded, and its job was final before", "error", broken.Error()) // a text: another job is another line
	}
	job.LogFinal(ctx, s.logger, report.Finalized)
	s.draws.Note(report.Messages...)
	counts["payments_concluded"] += len(known) - len(report.Busy)
	if _, err := s.enqueue(ctx, report.Messages); err != nil {
		s.logger.Warn("messages are not enqueued; lost-jobs will enqueue them", "messages", len(report.Messages), "error", err)
	}
	return nil
}

// sayNoKey tells of payments that they wait because cards were switched off.
func (s *Sweeper) sayNoKey(ctx context.Context, tx pgx.Tx, waiting []payment.Ref) error {
	purchases, jobs := make([]uuid.UUID, len(waiting)), make([]uuid.UUID, len(waiting))
	for i, ref := range waiting {
		purchases[i], jobs[i] = ref.PurchaseID, ref.JobID
	}
	var b pgx.Batch
	payment.QueueWaiting(&b, purchases, payment.WaitsForKey)
	job.QueueWaiting(&b, jobs, job.Waiting{Reason: payment.WaitsForKey.Text(), RetryAt: time.Now().Add(cmp.Or(s.settings.Payments.Recheck, payments.Recheck)).UTC()})
	return tx.SendBatch(ctx, &b).Close()
}
