package worker

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/drawing"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/platform/audit"
	"triprize/internal/platform/telemetry"
	"triprize/internal/webhook"
)

// Gauges reads what waits in Postgres: for operators, for workers, also where cards are disabled, and what the
// sweep audit has found. With an error it returns what could be read.
func (w *Worker) Gauges(ctx context.Context) (all []prometheus.Metric, err error) {
	for _, read := range []func(context.Context, add) error{w.waitingGauges, w.auditGauges, w.webhookGauges, w.cardGauges} {
		bounded, cancel := context.WithTimeout(ctx, gaugesTimeout) // a slow group delays the others, and does not end them
		failed := read(bounded, func(name, help string, value float64, label ...string) {
			all = append(all, telemetry.SystemGauge(name, help, value, label...))
		})
		cancel()
		err = errors.Join(err, failed)
	}
	return all, err
}

// gaugesTimeout bounds the reads of one group of gauges.
const gaugesTimeout = 2 * time.Second

// add reports a gauge.
type add func(name, help string, value float64, label ...string)

func (w *Worker) waitingGauges(ctx context.Context, add add) error {
	waiting, err1 := payment.CountWaiting(ctx, w.db, 0)
	refunds, err2 := payment.CountRefundsForOperator(ctx, w.db)
	open, err3 := reconciliation.CountOpen(ctx, w.db)
	draws, err4 := drawing.CountUnderWay(ctx, w.db)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	for waiter, n := range waiting {
		add("payments_waiting_for", "Payments that wait, by what for: operator (a person must resolve the payment or the key: see GET /v1/payments), key (cards are disabled), provider (it does not answer, or is busy). Operator and key should stay 0.",
			float64(n), "waiter", string(waiter))
	}
	add("refunds_waiting_for_operator", "Card refunds that an operator must resolve, or whose key an operator must fix: GET /v1/refunds lists them. Should stay 0.", float64(refunds))
	for kind, n := range open {
		add("payment_discrepancies_open", "Discrepancies between the provider's ledger and ours that are open: neither explained nor closed, by kind: GET /v1/payment-discrepancies lists them. Should stay 0.",
			float64(n), "kind", string(kind))
	}
	add("draws_waiting", "Draws that wait for a beacon round, or whose last attempt failed: GET /v1/campaigns/{id}/draw has the reason.", float64(draws.Waits))
	for _, table := range []lease.Table{payment.Leases, payment.RefundLeases, webhook.Leases} {
		age, err := table.OldestDue(ctx, w.db)
		if err != nil {
			return err
		}
		add("lease_oldest_due_seconds", "For how long the oldest item without a task has been due, by table: payments, refunds, webhook_endpoints. More than some seconds means that no scheduler runs.",
			age.Seconds(), "table", table.Name)
	}
	return nil
}

func (w *Worker) auditGauges(ctx context.Context, add add) error {
	states, err := audit.States(ctx, w.db)
	for _, s := range states {
		add("audit_violations", "Open violations of an invariant that the sweep audit found: triprize audit --stored lists them. Must stay 0.", float64(s.Violations), "check", s.Check)
		add("audit_last_check_timestamp_seconds", "When the sweep audit last checked an invariant, on a part of the rows.", float64(s.LookedAt.UnixMilli())/1000, "check", s.Check)
	}
	return err
}

func (w *Worker) webhookGauges(ctx context.Context, add add) error {
	if w.sender == nil {
		return nil
	}
	now, err := webhook.CountWaiting(ctx, w.db)
	if err != nil {
		return err
	}
	add("webhook_endpoints_due", "Endpoints of apps with due events that are not paused.", float64(now.Endpoints))
	add("webhook_endpoints_paused", "Endpoints of apps that are paused because deliveries failed.", float64(now.Paused))
	add("webhook_endpoints_disabled", "Endpoints of apps that are disabled.", float64(now.Disabled))
	add("webhook_due_age_seconds", "Age of the oldest due event of endpoints that are not paused. More than a minute means that workers are too few, or stopped.", now.Oldest.Seconds())
	add("webhook_failing_seconds", "For how long deliveries to the longest failing endpoint have failed; 0 when none fails.", now.Failing.Seconds())
	add("webhook_failing_backlog", "Events that wait for failing endpoints, at most 20,000 of each.", float64(now.Undelivered))
	return nil
}

func (w *Worker) cardGauges(ctx context.Context, add add) error {
	if w.cards == nil {
		return nil
	}
	oldest, err1 := payment.EventsWait(ctx, w.cards.db)
	phases, err2 := payment.OpenByPhase(ctx, w.cards.db)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	add("payments_oldest_event_seconds", "Age of the provider's oldest unprocessed event.", oldest.Seconds())
	for _, phase := range []payment.Phase{payment.Reserved, payment.Creating, payment.Confirming, payment.Action, payment.CardDeclined,
		payment.Processing, payment.Capturing, payment.Captured, payment.Expiring, payment.Late} {
		phases[phase] += 0
	}
	for phase, n := range phases {
		add("payments_open", "Payments that are not final, by phase, of all processes.", float64(n), "phase", string(phase))
	}
	return nil
}
