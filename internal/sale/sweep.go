package sale

import (
	"context"
	"log/slog"
	"time"

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

// WithoutProvider is the part of the sweep due-items for due payments where cards are switched off,
// since no worker takes their tasks. Those whose end is known without a provider get it here: what
// was given up before anything was sent, what an operator has resolved, what was captured before.
// The others record that they wait for a key, and are due again after Recheck.
type WithoutProvider struct {
	DB      postgres.Pool
	Seller  *Seller
	Enqueue job.Enqueuer
	Recheck time.Duration
	Logger  *slog.Logger
}

// Sweep returns the sweep.
func (s WithoutProvider) Sweep() sweep.Sweep {
	return sweep.Sweep{Counts: []string{"payments_due", "payments_enqueued", "payments_waiting", "payments_finalized"},
		Run: func(ctx context.Context, run sweep.Run) error {
			return payment.Leases.EachDue(ctx, run, s.DB, s.Recheck, func(due []lease.Item) error { return s.end(ctx, run, due) })
		}}
}

// end ends those of the due payments whose end is known.
func (s WithoutProvider) end(ctx context.Context, run sweep.Run, due []lease.Item) error {
	var known, waiting []payment.Ref
	err := postgres.InTx(ctx, s.DB, func(tx pgx.Tx) (err error) {
		if known, waiting, err = payment.EndUnsent(ctx, tx, due); err != nil || len(waiting) == 0 {
			return err
		}
		purchases := payment.PurchasesOf(waiting)
		var b pgx.Batch
		payment.QueueWaiting(&b, purchases, payment.WaitsForKey)
		job.QueueWaiting(&b, purchases, job.Blocked{Reason: payment.WaitsForKey.Text(), RetryAt: time.Now().Add(s.Recheck).UTC()})
		return tx.SendBatch(ctx, &b).Close()
	})
	if err != nil {
		return err
	}
	run.Counts["payments_waiting"] += len(waiting)
	if len(waiting) > 0 {
		s.Logger.Error("payments wait: payments.stripe.key is not set", "payments", len(waiting))
	}
	for _, one := range known {
		switch err := s.settle(ctx, run, one); {
		case postgres.IsTransient(err) || ctx.Err() != nil:
			return err
		case err != nil: // the others need not suffer
			s.Logger.Error("a payment cannot be finalized", "purchase", one.PurchaseID, "error", err)
		}
	}
	return nil
}

// settle decides what becomes of a payment whose end is known. One whose campaign is locked is
// due again later.
func (s WithoutProvider) settle(ctx context.Context, run sweep.Run, known payment.Ref) error {
	report, err := s.Seller.SettlePayments(ctx, []job.Ref{known.Job()}, job.SkipLocked)
	if err != nil {
		return err
	}
	for _, broken := range report.Broken {
		s.Logger.Error("a payment was finalized, and its job was final before", "error", broken.Error()) // a text: another job is another line
	}
	job.LogFinal(ctx, s.Logger, report.Outcomes)
	run.Counts["payments_finalized"] += 1 - len(report.Busy)
	if _, err := s.Enqueue(ctx, report.Messages); err != nil {
		s.Logger.Warn("messages are not enqueued; lost-jobs will enqueue them", "messages", len(report.Messages), "error", err)
	}
	return nil
}
