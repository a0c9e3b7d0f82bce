package worker

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/service/payments"
	"triprize/internal/service/refunds"
	"triprize/internal/store/job"
	"triprize/internal/store/refund"
)

// refunder is the part of a worker that makes card refunds. Its tasks are no messages of
// the outbox, as those of payments: a refund is its own agenda.
type refunder struct {
	runner     *refunds.Runner
	dispatcher *refunds.Dispatcher
}

// refundShare is how many payments in hand stand beside one refund.
const refundShare = 4

// TakeRefunds lets the worker make card refunds, with a queue and slots of their own; db
// is the pool of payments. Call it after TakeCards, whose events wake refunds, and before Run.
func (w *Worker) TakeRefunds(provider payprovider.Refunds, db *pgxpool.Pool, settings config.Payments, registry prometheus.Registerer) {
	w.refunds = &refunder{
		runner:     refunds.NewRunner(db, provider, refunds.Settings{Lease: settings.Lease, Recheck: settings.Recheck}, w.logger, registry),
		dispatcher: refunds.NewDispatcher(w.client, w.logger, registry),
	}
	if w.cards != nil {
		w.cards.events.OnRefunds(w.wakeRefunds)
	}
	w.shares = append(w.shares, queue.Share{Kind: string(job.KindRefund), Tasks: max(settings.Concurrency/refundShare, 1), Handle: w.settleRefund})
}

// wakeRefunds makes the refunds due that events of the provider are about, in the
// transaction of the events. The sweep unsettled-payments enqueues their tasks.
func (w *Worker) wakeRefunds(ctx context.Context, tx pgx.Tx, hints []payments.RefundHint) (found []string, err error) {
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
	of := make(map[uuid.UUID]bool, len(woken))
	for _, ref := range woken {
		of[ref.PurchaseID] = true
	}
	for _, hint := range hints {
		if hint.PurchaseID != nil && of[*hint.PurchaseID] {
			found = append(found, hint.EventID)
		}
	}
	return found, nil
}

// dispatchRefunds enqueues new refunds at once, if this worker's fleet makes refunds.
func (w *Worker) dispatchRefunds(refs []refund.Ref) {
	if w.refunds != nil {
		w.refunds.dispatcher.Dispatch(refs)
	}
}

// close waits until what was dispatched is enqueued.
func (r *refunder) close() {
	if r != nil {
		r.dispatcher.Close()
	}
}

// settleRefund does the refund of a task as far as it goes now. A task is never tried
// again: whatever fails, the refund is due again at some time.
func (w *Worker) settleRefund(ctx context.Context, task queue.Task, _ bool) error {
	ref, err := refunds.RefOf(task)
	if err != nil {
		w.logger.Error("a task of no refund was dropped", "error", err)
		return nil
	}
	select {
	case <-w.draining: // others have it when it is due
		return nil
	default:
	}
	if _, err := w.refunds.runner.Run(ctx, ref); err != nil {
		w.metrics.faults.Inc()
		w.logger.Error("a refund could not be led on; it is due again when its lease is over", "refund", ref.ID, "purchase", ref.PurchaseID, "error", err)
	}
	return nil
}
