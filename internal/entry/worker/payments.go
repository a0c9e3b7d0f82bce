package worker

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/telemetry"
	"triprize/internal/service/payments"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
)

// Cards is what a worker needs to lead payments: a provider, and connections that are
// for payments alone.
type Cards struct {
	Provider payprovider.Payments
	Events   payprovider.Reader
	DB       *pgxpool.Pool // postgres.Open with payments.max_connections
}

// cards is the part of a worker that leads payments. Its tasks are no messages of the
// outbox: a payment is its own agenda (see the store payment). So nothing is claimed in
// Redis, no delivery is counted, and a task is never tried again: whatever fails, the
// payment is due again at some time, and the sweep unsettled-payments finds it.
type cards struct {
	runner      *payments.Runner
	events      *payments.Events
	conclusions *finalizer
	calls       context.Context // of calls of the provider: ends when the worker shuts down, and then no further one begins
	endCalls    context.CancelFunc
}

// eventTasks is how many tasks about events a worker has in hand at once. Each works
// off many events.
const eventTasks = 2

// concludeEvery is how far apart the batches of conclusions of a lane begin. Payments end
// one by one, at the pace of the provider's calls: each would have a transaction of its
// own, which costs as much as one for many.
const concludeEvery = 200 * time.Millisecond

// payRunnerSettings returns the runner's part of the settings.
func payRunnerSettings(s config.Payments) payments.Settings {
	return payments.Settings{Lease: s.Lease, CallTimeout: s.Stripe.Timeout + callMargin, Recheck: s.Recheck, ReturnURL: s.ReturnURL, Livemode: s.Stripe.Live()}
}

// callMargin is how much longer than its own timeout a call may take, until it is cut
// off. The setting payments.lease leaves room for it.
const callMargin = time.Second

// TakeCards lets the worker lead payments, with a queue, slots and connections of their
// own, so that a slow provider is felt by nobody else. Call it before Run.
func (w *Worker) TakeCards(c Cards, settings config.Payments, registry prometheus.Registerer) {
	w.cards = &cards{
		runner:      payments.NewRunner(c.DB, c.Provider, payRunnerSettings(settings), w.logger, registry),
		events:      payments.NewEvents(c.DB, c.Events, w.logger, registry),
		conclusions: newFinalizer(job.KindPayment, w.seller.Conclude, settings.Concurrency),
	}
	w.cards.conclusions.every = concludeEvery
	w.cards.calls, w.cards.endCalls = context.WithCancel(context.Background())
	for _, l := range w.lanes {
		l.add(w.cards.conclusions)
	}
	w.shares = append(w.shares,
		queue.Share{Kind: string(job.KindPayment), Tasks: settings.Concurrency, Handle: w.settlePayment},
		queue.Share{Kind: string(job.KindEvent), Tasks: eventTasks, Handle: w.finalizeEvents})
	registry.MustRegister(telemetry.Bounded(newPaymentGauges(c.DB, w.logger), gaugesPatience))
}

// dispatchPayments enqueues payments at once, if this worker's fleet has a provider:
// otherwise nobody would take the tasks.
func (w *Worker) dispatchPayments(refs []payment.Ref) {
	if w.cards != nil {
		w.payments.Payments(refs)
	}
}

// settlePayment leads the payment of a task as far as it goes now.
func (w *Worker) settlePayment(ctx context.Context, task queue.Task, _ bool) error {
	ref, err := payments.RefOf(task)
	if err != nil {
		w.logger.Error("a task of no payment was dropped", "error", err)
		return nil
	}
	result, err := w.cards.runner.Run(w.cards.calls, ref) //nolint:contextcheck // a call ends by its own timeout, and not with the task
	if err != nil {
		w.metrics.faults.Inc()
		w.logger.Warn("a payment could not be led on; it is due again when its lease is over", "purchase", ref.PurchaseID, "error", err)
		return nil
	}
	if result.Announce {
		w.afterCommit.changed(result.Ref.JobID)
	}
	if result.Outcome == payments.Conclude {
		w.conclude(ctx, result.Job())
	}
	return nil
}

// conclude takes a payment through its lane. When its campaign stays locked it gives up:
// the payment is due again soon, and meanwhile its slot is for others.
func (w *Worker) conclude(ctx context.Context, ref job.Ref) {
	s := w.cards.conclusions
	if s.locked.has([]job.Ref{ref}, time.Now()) {
		return
	}
	items := []*item{{Ref: ref}}
	for len(items) > 0 {
		left, transient, err := w.pass(ctx, s, items)
		if err != nil {
			if !isTransient(err) {
				w.logger.Error("a payment could not be concluded; it is due again soon", "job", ref.ID, "error", err)
			}
			return
		}
		if transient || len(left) > 0 && stubborn(left) {
			s.locked.note(left, time.Now())
			return
		}
		now := time.Now()
		for _, it := range left {
			it.rest(now, 0)
			if w.pause(ctx, time.Until(it.restsUntil)) != nil {
				return
			}
		}
		items = left
	}
}

// finalizeEvents works off events of the provider until there are none.
func (w *Worker) finalizeEvents(ctx context.Context, _ queue.Task, _ bool) error {
	for w.cards.calls.Err() == nil {
		done, err := w.cards.events.Work(ctx)
		if err != nil {
			w.metrics.faults.Inc()
			w.logger.Warn("events of the provider are not worked off; the sweep unsettled-payments will see to it", "error", err)
			return nil
		}
		w.payments.Payments(done.Payments)
		if !done.More {
			return nil
		}
	}
	return nil
}
