package checks

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/platform/audit"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/redisx"
	"triprize/internal/webhook"
)

// Reading is what was read about the whole system, for metrics and checks. What could not be read is missing.
type Reading struct {
	gauges []gauge

	Fleet      queue.Fleet
	Backlog    map[job.Kind]job.Backlog
	Draws      drawing.DrawCounts
	Unanswered int // payments, see [payment.CountWaiting]
}

type gauge struct {
	name, help    string
	value         float64
	label, labels []string // the name and the value of its label, if it has one
}

// Add adds a gauge of the whole system: take the maximum over processes, not the sum. label is its name and value, if it has one.
func (r *Reading) Add(name, help string, value float64, label ...string) {
	n := min(len(label), 1)
	r.gauges = append(r.gauges, gauge{name, help + " Every process that has it reports the same value.", value, label[:n], label[n:]})
}

// Metrics returns the gauges for /metrics.
func (r *Reading) Metrics() (all []prometheus.Metric) {
	for _, g := range r.gauges {
		all = append(all, prometheus.MustNewConstMetric(prometheus.NewDesc("triprize_"+g.name, g.help, g.label, nil), prometheus.GaugeValue, g.value, g.labels...))
	}
	return all
}

// ReadFleet reads the heartbeats.
func (r *Reading) ReadFleet(ctx context.Context, rdb redis.UniversalClient, namespace string) (err error) {
	if r.Fleet, err = queue.ReadFleet(ctx, rdb, namespace); err != nil {
		return err
	}
	r.Add("workers_alive", "Workers that have sent two heartbeats, and send them.", float64(len(r.Fleet.Named(queue.RoleWorker, queue.Alive))))
	r.Add("workers_stale", "Workers that stopped sending heartbeats in the last ten minutes without deregistering.", float64(len(r.Fleet.Named(queue.RoleWorker, queue.Silent))))
	r.Add("worker_crashes", "Workers that ended without a shutdown, or within a minute of their start; 0 when one that started later has run for a minute, and an hour after the last.", float64(r.Fleet.Crashes))
	r.Add("schedulers_alive", "Schedulers that lead and have sent two heartbeats: one.", float64(len(r.Fleet.Named(queue.RoleScheduler, queue.Alive))))
	return nil
}

// ReadMemory reads the memory of Redis, last: a hosted Redis may refuse to say, or hang.
func (r *Reading) ReadMemory(ctx context.Context, rdb redis.UniversalClient) {
	if share, err := redisx.MemoryUse(ctx, rdb); err == nil {
		r.Add("redis_memory_used_ratio", "Used memory of Redis as a share of its maxmemory, 0 without one; in a Cluster of the fullest primary.", share)
	}
}

// ReadBacklog reads the jobs that wait for workers.
func (r *Reading) ReadBacklog(ctx context.Context, db postgres.DB) (err error) {
	if r.Backlog, err = job.ReadBacklog(ctx, db, job.QueueKinds...); err != nil {
		return err
	}
	for _, kind := range job.QueueKinds {
		r.Add("jobs_queued", "Jobs in the outbox, of a kind, in its 400 oldest messages. A payment by card leaves it when it begins. Jobs of a message that is half done count until all of it is done.", float64(r.Backlog[kind].Jobs), "kind", string(kind))
		r.Add("jobs_queued_age_seconds", "For how long the oldest job of a kind has waited for workers; 0 when none waits. A card payment that waits for its buyer or its provider does not count.", r.Backlog[kind].Oldest.Seconds(), "kind", string(kind))
	}
	return nil
}

// ReadDraws reads the draws under way.
func (r *Reading) ReadDraws(ctx context.Context, db postgres.DB) (err error) {
	if r.Draws, err = drawing.CountDraws(ctx, db); err != nil {
		return err
	}
	r.Add("campaigns_drawing", "Campaigns whose sale is over and that are not drawn.", float64(r.Draws.Campaigns))
	r.Add("campaigns_drawing_age_seconds", "For how long the oldest campaign is drawing, whatever the reason; 0 when none is.", r.Draws.Oldest.Seconds())
	r.Add("draws_waiting", "Draws that wait for a beacon round, or whose last attempt failed: GET /v1/campaigns/{id}/draw has the reason.", float64(r.Draws.Waits))
	r.Add("draws_given_up", "Campaigns that are drawing, and of which a job was given up: it failed with internal-error after too many deliveries.", float64(r.Draws.GivenUp))
	r.Add("draw_voids_announced", "Campaigns that are drawing and whose void is announced: see docs/draw.md.", float64(r.Draws.Voids))
	r.Add("execution_locks_held", "Draws that a worker has claimed.", float64(r.Draws.Claims))
	r.Add("execution_lock_age_seconds", "For how long a claim of a draw has not been renewed, of the oldest; 0 when there is none. A worker at work renews it.", r.Draws.OldestClaim.Seconds())
	return nil
}

// ReadMoney reads the payments, refunds and discrepancies that wait for somebody.
func (r *Reading) ReadMoney(ctx context.Context, db postgres.DB) error {
	waiting, unanswered, err1 := payment.CountWaiting(ctx, db)
	refunds, err2 := payment.CountRefundsForOperator(ctx, db)
	open, err3 := reconciliation.CountOpen(ctx, db)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	r.Unanswered = unanswered
	for waiter, n := range waiting {
		r.Add("payments_waiting_for", "Payments that wait, by what for: operator (a person must resolve the payment or the key: see GET /v1/payments), key (cards are disabled), provider (it does not answer, or is busy). Operator and key should stay 0.", float64(n), "waiter", string(waiter))
	}
	r.Add("refunds_waiting_for_operator", "Card refunds that an operator must resolve, or whose key an operator must fix: GET /v1/refunds lists them. Should stay 0.", float64(refunds))
	for kind, n := range open {
		r.Add("payment_discrepancies_open", "Discrepancies between the provider's ledger and ours that are open: neither explained nor closed, by kind: GET /v1/payment-discrepancies lists them. Should stay 0.", float64(n), "kind", string(kind))
	}
	return nil
}

// ReadAudit reads what the sweep audit has found, nothing before its first check.
func (r *Reading) ReadAudit(ctx context.Context, db postgres.DB) error {
	states, err := audit.States(ctx, db)
	for _, s := range states {
		r.Add("audit_violations", "Open violations of an invariant that the sweep audit found: triprize audit --stored lists them. Must stay 0.", float64(s.Violations), "check", s.Check)
		r.Add("audit_last_check_timestamp_seconds", "When the sweep audit last checked an invariant, on a part of the rows.", float64(s.LookedAt.UnixMilli())/1000, "check", s.Check)
	}
	return err
}

// ReadWebhooks reads the deliveries that wait.
func (r *Reading) ReadWebhooks(ctx context.Context, db postgres.DB) error {
	now, err := webhook.CountWaiting(ctx, db)
	if err != nil {
		return err
	}
	r.Add("webhook_endpoints_due", "Endpoints of apps with due events that are not paused.", float64(now.Endpoints))
	r.Add("webhook_endpoints_paused", "Endpoints of apps that are paused because deliveries failed.", float64(now.Paused))
	r.Add("webhook_endpoints_disabled", "Endpoints of apps that were disabled because of their answers in the last 24 hours.", float64(now.Disabled))
	r.Add("webhook_due_age_seconds", "Age of the oldest due event of endpoints that are not paused. More than a minute means that workers are too few, or stopped.", now.Oldest.Seconds())
	r.Add("webhook_failing_seconds", "For how long deliveries to the longest failing endpoint have failed; 0 when none fails.", now.Failing.Seconds())
	r.Add("webhook_failing_backlog", "Events that wait for failing endpoints, at most 20,000 of each.", float64(now.Undelivered))
	return nil
}

// ReadLeases reads the items without a task.
func (r *Reading) ReadLeases(ctx context.Context, db postgres.DB) error {
	for _, table := range []lease.Table{payment.Leases, payment.RefundLeases, webhook.Leases} {
		age, err := table.OldestDue(ctx, db)
		if err != nil {
			return err
		}
		r.Add("lease_oldest_due_seconds", "For how long the oldest item without a task has been due, by table: payments, refunds, webhook_endpoints. More than some seconds means that no scheduler runs.", age.Seconds(), "table", table.Name)
	}
	return nil
}

// ReadCards reads the payments by card that are under way.
func (r *Reading) ReadCards(ctx context.Context, db postgres.DB) error {
	oldest, err1 := payment.EventsWait(ctx, db)
	phases, err2 := payment.OpenByPhase(ctx, db)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	r.Add("payments_oldest_event_seconds", "Age of the provider's oldest unprocessed event.", oldest.Seconds())
	for _, phase := range []payment.Phase{payment.Reserved, payment.Creating, payment.Confirming, payment.Action, payment.CardDeclined,
		payment.Processing, payment.Capturing, payment.Captured, payment.Expiring, payment.Late, payment.Ended} {
		r.Add("payments_open", "Payments that are not final, by phase, of all processes.", float64(phases[phase]), "phase", string(phase))
	}
	return nil
}
