package sale

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
)

// ExpiredReservations is the sweep that expires payments whose deadline is over and that no worker has
// leased. From then on the provider is asked, and its answer decides what becomes of their positions.
func ExpiredReservations(db postgres.Pool) sweep.Sweep {
	return sweep.Sweep{Name: "expired-reservations", Every: 10 * time.Second, Counts: []string{"found", "expired"},
		Run: func(ctx context.Context, run sweep.Run) error {
			return run.Batches(func(limit int) (int, error) {
				n, err := ExpireReservations(ctx, db, limit)
				run.Counts["found"] += n
				run.Counts["expired"] += n
				return n, err
			})
		}}
}

// finalizedAtOnce is how many payments a transaction finalizes here.
const finalizedAtOnce = 50

// withoutProvider is the part of the sweep due-items that sees to payments where cards are switched off.
type withoutProvider struct {
	db      postgres.Pool
	seller  *Seller
	enqueue job.Enqueuer
	recheck time.Duration
	logger  *slog.Logger
}

// WithoutProvider is the part of the sweep due-items for due payments where cards are switched off,
// since no worker takes their tasks. Those whose end is known without a provider get it here: what
// was given up before anything was sent, what an operator has resolved, what was captured before.
// The others record that they wait for a key, and are due again after recheck.
func WithoutProvider(db postgres.Pool, seller *Seller, enqueue job.Enqueuer, recheck time.Duration, logger *slog.Logger) sweep.Sweep {
	s := &withoutProvider{db, seller, enqueue, recheck, logger}
	return sweep.Sweep{Counts: []string{"payments_due", "payments_enqueued", "payments_waiting", "payments_finalized"},
		Run: func(ctx context.Context, run sweep.Run) error {
			return payment.Leases.EachDue(ctx, run, db, recheck, func(due []lease.Item) error { return s.end(ctx, run, due) })
		}}
}

// end ends those of the due payments whose end is known.
func (s *withoutProvider) end(ctx context.Context, run sweep.Run, due []lease.Item) error {
	var known, waiting []payment.Ref
	err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) (err error) {
		if known, waiting, err = payment.EndUnsent(ctx, tx, due); err != nil || len(waiting) == 0 {
			return err
		}
		return s.recordNoKey(ctx, tx, waiting)
	})
	if err != nil {
		return err
	}
	run.Counts["payments_waiting"] += len(waiting)
	if len(waiting) > 0 {
		s.logger.Error("payments wait: payments.stripe.key is not set", "payments", len(waiting))
	}
	for some := range slices.Chunk(known, finalizedAtOnce) {
		err := s.finalizePayments(ctx, run, some)
		if err == nil {
			continue
		}
		if postgres.IsTransient(err) || ctx.Err() != nil {
			return err
		}
		for i, one := range some { // one of them is broken, and the others need not suffer
			if err := s.finalizePayments(ctx, run, some[i:i+1]); err != nil {
				s.logger.Error("a payment cannot be finalized", "purchase", one.PurchaseID, "error", err)
			}
		}
	}
	return nil
}

// finalizePayments decides what becomes of payments whose end is known. Those whose campaign is
// locked are due again later.
func (s *withoutProvider) finalizePayments(ctx context.Context, run sweep.Run, known []payment.Ref) error {
	jobs := make([]job.Ref, len(known))
	for i, p := range known {
		jobs[i] = job.Ref{ID: p.JobID, CampaignID: p.CampaignID}
	}
	report, err := s.seller.FinalizePayments(ctx, jobs, SkipLocked)
	if err != nil {
		return err
	}
	for _, broken := range report.Broken {
		s.logger.Error("a payment was finalized, and its job was final before", "error", broken.Error()) // a text: another job is another line
	}
	job.LogFinal(ctx, s.logger, report.Finalized)
	run.Counts["payments_finalized"] += len(known) - len(report.Busy)
	if _, err := s.enqueue(ctx, report.Messages); err != nil {
		s.logger.Warn("messages are not enqueued; lost-jobs will enqueue them", "messages", len(report.Messages), "error", err)
	}
	return nil
}

// recordNoKey records that payments wait because cards were switched off.
func (s *withoutProvider) recordNoKey(ctx context.Context, tx pgx.Tx, waiting []payment.Ref) error {
	purchases, jobs := make([]uuid.UUID, len(waiting)), make([]uuid.UUID, len(waiting))
	for i, ref := range waiting {
		purchases[i], jobs[i] = ref.PurchaseID, ref.JobID
	}
	var b pgx.Batch
	payment.QueueWaiting(&b, purchases, payment.WaitsForKey)
	job.QueueWaiting(&b, jobs, job.Waiting{Reason: payment.WaitsForKey.Text(), RetryAt: time.Now().Add(s.recheck).UTC()})
	return tx.SendBatch(ctx, &b).Close()
}
