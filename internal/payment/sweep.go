package payment

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
)

// RefundsWithoutProvider is the part of the sweep due-items for due refunds where cards are switched
// off: they wait for a key.
func RefundsWithoutProvider(db postgres.Pool, recheck time.Duration, logger *slog.Logger) sweep.Sweep {
	return sweep.Sweep{Counts: []string{"refunds_due", "refunds_enqueued", "refunds_waiting"}, Run: func(ctx context.Context, run sweep.Run) error {
		return RefundLeases.EachDue(ctx, run, db, recheck, func(due []lease.Item) error {
			n, err := RefundsWaitForKey(ctx, db, due)
			run.Counts["refunds_waiting"] += n
			if n > 0 {
				logger.Error("refunds wait: payments.stripe.key is not set", "refunds", n)
			}
			return err
		})
	}}
}

// Escalation is the part of the sweep due-items that gives payments and refunds to the operators that
// have waited for a key or the provider for too long. They go on by themselves all the same.
func Escalation(db postgres.Pool, logger *slog.Logger) sweep.Sweep {
	const after = 6 * time.Hour // longer than an outage that one would sit out
	return sweep.Sweep{Counts: []string{"payments_escalated", "refunds_escalated"}, Run: func(ctx context.Context, run sweep.Run) error {
		err := errors.Join(run.Batches(func(limit int) (int, error) {
			n, err := Escalate(ctx, db, after, limit)
			run.Counts["payments_escalated"] += n
			return n, err
		}), run.Batches(func(limit int) (int, error) {
			n, err := EscalateRefunds(ctx, db, after, limit)
			run.Counts["refunds_escalated"] += n
			return n, err
		}))
		if payments, refunds := run.Counts["payments_escalated"], run.Counts["refunds_escalated"]; payments+refunds > 0 {
			logger.Error("payments or refunds wait for the provider too long: they are the operators'", "payments", payments, "refunds", refunds, "after", after)
		}
		return err
	}}
}

// Prunes delete the provider's events when the provider forgets them, too.
func Prunes(db postgres.Pool) []sweep.Prune {
	return []sweep.Prune{sweep.OlderThan("events_deleted", db, 30*24*time.Hour, DeleteEvents)}
}
