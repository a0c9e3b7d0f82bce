package worker

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/job/delivery"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/payment/refunds"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
)

// cardTasks is the part of a worker that processes payments.
type cardTasks struct {
	db          *pgxpool.Pool
	runner      *cards.Runner
	events      *cards.Events
	settlements *delivery.Batcher
}

// paymentTasks is how many payments a worker processes at once.
const paymentTasks = 64

// eventTasks is how many event tasks a worker runs at once. Each processes many events.
const eventTasks = 2

// settleInterval is the time between two batches of settlements in a shard. Payments finish one by one, at
// the pace of the provider's calls. Without the interval each would have its own transaction, which costs
// as much as one for many.
const settleInterval = 200 * time.Millisecond

// settleRetry is the delay of a settlement whose campaign or payment stays locked.
const settleRetry = time.Second

// callMargin is how much longer than its own timeout a call may take before it is canceled. After leaseTime,
// which is longer, another worker may continue a payment or refund.
const (
	callMargin = time.Second
	leaseTime  = 15 * time.Second
)

// paymentsPerRefund is the ratio of payment slots to refund slots.
const paymentsPerRefund = 4

// TakeCards lets the worker process card payments and refunds, with separate queues, slots and connections,
// so that a slow provider affects nothing else. db is a pool of their own. Call it before Run.
func (w *Worker) TakeCards(provider payprovider.Provider, db *pgxpool.Pool, settings config.Payments, registry prometheus.Registerer) {
	slots, leaseFor, recheck := cmp.Or(settings.Concurrency, paymentTasks), cmp.Or(settings.Lease, leaseTime), cmp.Or(settings.Recheck, cards.Recheck)
	refunder := refunds.NewRunner(db, provider, refunds.Settings{Lease: leaseFor, Recheck: recheck}, w.logger, registry)
	w.cards = &cardTasks{
		db: db,
		runner: cards.NewRunner(db, provider, cards.Settings{Lease: leaseFor, CallTimeout: cmp.Or(settings.Stripe.Timeout, payprovider.CallTimeout) + callMargin,
			Recheck: recheck, ReturnURL: settings.ReturnURL, Livemode: settings.Stripe.Live(), Release: w.seller.Release}, w.logger, registry),
		events:      cards.NewEvents(db, provider, w.logger, registry),
		settlements: w.processor.Batcher(job.KindPayment, slots, settleInterval, w.batch(w.seller.SettlePayments)),
	}
	w.consumers = append(w.consumers,
		w.processor.Items(string(job.KindPayment), postgres.TxPayment, slots, w.processPayment),
		queue.Consumer{Kind: string(job.KindEvent), Concurrency: eventTasks, Handle: w.processEvents},
		w.processor.Items(string(job.KindRefund), postgres.TxRefund, max(slots/paymentsPerRefund, 1),
			func(ctx context.Context, item lease.Item) error { _, err := refunder.Run(ctx, item); return err }))
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "triprize_payments_connections_in_use",
		Help: "Connections to Postgres that payments of this worker use."}, func() float64 { return float64(db.Stat().AcquiredConns()) }))
}

// processPayment advances a payment as far as possible. A call ends at its own timeout and not with the
// task; while the worker drains, no further call begins.
func (w *Worker) processPayment(ctx context.Context, item lease.Item) error {
	result, err := w.cards.runner.Run(w.processor.Draining(), item) //nolint:contextcheck // see above
	if err != nil {
		return err
	}
	w.dispatcher.Dispatch(job.Tasks(result.Messages)...)
	if result.Announce {
		w.processor.Announce(result.Ref.PurchaseID)
	}
	if result.Outcome == cards.Settle {
		err = w.cards.settlements.Do(ctx, result.Job())
	}
	if errors.Is(err, delivery.ErrLocked) {
		return payment.Leases.Snooze(ctx, w.db, result.Ref.Item(), settleRetry)
	}
	if errors.Is(err, queue.ErrSnoozed) || delivery.IsTransient(err) { // the worker shuts down, or the database is down
		return nil
	}
	return err
}

// processEvents processes events of the provider until there are none.
func (w *Worker) processEvents(ctx context.Context, _ queue.Task, _ bool) error {
	ctx = postgres.As(ctx, postgres.TxPayment)
	for w.processor.Draining().Err() == nil {
		done, err := w.cards.events.Process(ctx)
		if err != nil {
			w.processor.Faulted()
			w.logger.Warn("events of the provider are not processed; the sweep due-items will retry", "error", err)
			return nil
		}
		w.dispatchDue(payment.Items(done.Payments))
		if !done.More {
			return nil
		}
	}
	return nil
}
