package worker

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/service/payments"
	"triprize/internal/service/refunds"
	"triprize/internal/store/agenda"
	"triprize/internal/store/job"
	"triprize/internal/store/refund"
)

// refundShare is how many payments in hand stand beside one refund.
const refundShare = 4

// TakeRefunds lets the worker make card refunds, with a queue and slots of their own; db
// is the pool of payments. Call it after TakeCards, whose events wake refunds, and before Run.
func (w *Worker) TakeRefunds(provider payprovider.Refunds, db *pgxpool.Pool, settings config.Payments, registry prometheus.Registerer) {
	runner := refunds.NewRunner(db, provider, refunds.Settings{Lease: settings.Lease, Recheck: settings.Recheck}, w.logger, registry)
	if w.cards != nil {
		w.cards.events.OnRefunds(wakeRefunds)
	}
	w.shares = append(w.shares, queue.Share{Kind: string(job.KindRefund), Tasks: max(settings.Concurrency/refundShare, 1),
		Handle: w.lead(func(ctx context.Context, item agenda.Item) error { _, err := runner.Run(ctx, item); return err })})
}

// wakeRefunds makes the refunds due that events of the provider are about, in the
// transaction of the events. The sweep due-items enqueues their tasks.
func wakeRefunds(ctx context.Context, tx pgx.Tx, hints []payments.RefundHint) (found []string, err error) {
	var purchases []uuid.UUID
	var providerIDs []string
	for _, hint := range hints {
		if hint.ProviderID != "" {
			providerIDs = append(providerIDs, hint.ProviderID)
		}
		if hint.PurchaseID != nil {
			purchases = append(purchases, *hint.PurchaseID)
		}
	}
	woken, err := refund.Wake(ctx, tx, purchases, providerIDs)
	if err != nil {
		return nil, err
	}
	for _, hint := range hints {
		if hint.PurchaseID != nil && slices.Contains(woken, *hint.PurchaseID) {
			found = append(found, hint.EventID)
		}
	}
	return found, nil
}
