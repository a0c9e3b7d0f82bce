package worker

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/maintenance/audit"
	"triprize/internal/platform/telemetry"
	"triprize/internal/store/agenda"
	"triprize/internal/store/balance"
	"triprize/internal/store/drawrecord"
	"triprize/internal/store/payment"
	"triprize/internal/store/refund"
	"triprize/internal/store/webhook"
)

// gauges returns a collector of gauges that read reads from Postgres: every worker tells the same, so take
// the maximum of a gauge over workers, not the sum.
func (w *Worker) gauges(read func(ctx context.Context) ([]prometheus.Metric, error), descs ...*prometheus.Desc) prometheus.Collector {
	return telemetry.ReadGauges(read, w.logger, descs...)
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("triprize_"+name, help+" Every worker tells the same.", labels, nil)
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

// waitingGauges tells how much money waits for people, which draws wait, and how far the
// agenda is behind, also where cards are switched off.
func (w *Worker) waitingGauges() prometheus.Collector {
	paid := desc("payments_waiting_for",
		"Payments that wait, by what for: operator (a person has to see to it, or to the key: see GET /v1/payments), key (cards are switched off), provider (it does not answer, or is busy). Operator and key should stay 0.", "waiter")
	refunds := desc("refunds_waiting_for_operator", "Card refunds that an operator has to see to, or to the key: GET /v1/refunds lists them. Should stay 0.")
	differences := desc("payment_differences_open",
		"What the provider's books and ours disagree about and no operator has explained, by kind: GET /v1/payment-differences lists it. Should stay 0.", "kind")
	draws := desc("draws_waiting", "Draws that wait for a round of the beacon, or whose last attempt failed: GET /v1/campaigns/{id}/draw says for what.")
	oldest := desc("agenda_oldest_due_seconds",
		"For how long the oldest item is due for which no task was made, by table: payments, refunds, webhook_endpoints. More than some seconds means that no scheduler runs.", "table")
	return w.gauges(func(ctx context.Context) (all []prometheus.Metric, err error) {
		counts, err := payment.CountWaiting(ctx, w.db)
		if err != nil {
			return nil, err
		}
		for waiter, n := range counts {
			all = append(all, gauge(paid, float64(n), string(waiter)))
		}
		stuck, err := refund.CountForOperator(ctx, w.db)
		if err != nil {
			return nil, err
		}
		differ, err := balance.CountOpen(ctx, w.db)
		if err != nil {
			return nil, err
		}
		for kind, n := range differ {
			all = append(all, gauge(differences, float64(n), string(kind)))
		}
		waits, err := drawrecord.CountWaits(ctx, w.db)
		if err != nil {
			return nil, err
		}
		for _, table := range []agenda.Table{payment.Agenda, refund.Agenda, webhook.Agenda} {
			age, err := table.OldestDue(ctx, w.db)
			if err != nil {
				return nil, err
			}
			all = append(all, gauge(oldest, age.Seconds(), table.Name))
		}
		return append(all, gauge(refunds, float64(stuck)), gauge(draws, float64(waits))), nil
	}, paid, refunds, differences, draws, oldest)
}

// auditGauges tells what the sweep audit has found.
func (w *Worker) auditGauges() prometheus.Collector {
	violations := desc("audit_violations", "Violations of an invariant that the sweep audit has found and not found gone: triprize audit --stored lists them. Must stay 0.", "check")
	looked := desc("audit_last_look_timestamp_seconds", "When the sweep audit checked an invariant last, on a part of the rows.", "check")
	return w.gauges(func(ctx context.Context) (metrics []prometheus.Metric, err error) {
		states, err := audit.States(ctx, w.db)
		for _, s := range states {
			metrics = append(metrics, gauge(violations, float64(s.Violations), s.Check), gauge(looked, float64(s.LookedAt.UnixMilli())/1000, s.Check))
		}
		return metrics, err
	}, violations, looked)
}

// paymentGauges tells how open payments are.
func (w *Worker) paymentGauges(db *pgxpool.Pool) prometheus.Collector {
	phases := desc("payments_open", "Payments that are not final, by phase, of all processes together.", "phase")
	events := desc("payments_oldest_event_seconds", "For how long the oldest event of the provider waits to be worked off.")
	return w.gauges(func(ctx context.Context) ([]prometheus.Metric, error) {
		wait, err := payment.EventsWait(ctx, db)
		if err != nil {
			return nil, err
		}
		open, err := payment.OpenByPhase(ctx, db)
		if err != nil {
			return nil, err
		}
		for _, phase := range []payment.Phase{payment.Reserved, payment.Creating, payment.Confirming, payment.Action, payment.CardDeclined,
			payment.Processing, payment.Capturing, payment.Captured, payment.Expiring, payment.Late} {
			open[phase] += 0 // none is known
		}
		all := []prometheus.Metric{gauge(events, wait.Seconds())}
		for phase, n := range open {
			all = append(all, gauge(phases, float64(n), string(phase)))
		}
		return all, nil
	}, phases, events)
}

// webhookGauges tells how far deliveries to apps are behind.
func (w *Worker) webhookGauges() prometheus.Collector {
	due := desc("webhook_endpoints_due", "Endpoints of apps that something is due for, and that are not paused.")
	paused := desc("webhook_endpoints_paused", "Endpoints of apps that are paused because they have failed.")
	disabled := desc("webhook_endpoints_disabled", "Endpoints of apps that are disabled.")
	age := desc("webhook_due_age_seconds", "For how long the longest due event has waited, of endpoints that are not paused. More than a minute means that workers are too few, or stopped.")
	failing := desc("webhook_failing_seconds", "For how long nothing has arrived at the endpoint that has failed for the longest time; 0 when none fails.")
	backlog := desc("webhook_failing_backlog", "Events that wait for endpoints that fail, 20,000 of each at most.")
	return w.gauges(func(ctx context.Context) ([]prometheus.Metric, error) {
		now, err := webhook.CountWaiting(ctx, w.db)
		if err != nil {
			return nil, err
		}
		return []prometheus.Metric{gauge(due, float64(now.Endpoints)), gauge(paused, float64(now.Paused)), gauge(disabled, float64(now.Disabled)), gauge(age, now.Oldest.Seconds()),
			gauge(failing, now.Failing.Seconds()), gauge(backlog, float64(now.Backlog))}, nil
	}, due, paused, disabled, age, failing, backlog)
}
