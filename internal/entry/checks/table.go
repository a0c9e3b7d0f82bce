package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// All is the table. Every process reports a gauge of the whole system with the same value: max, never sum. Durations are
// minutes or hours and bounds in seconds products of 60, because the rehearsal runs the alerts 60 times as fast. What is "+1m"
// inhibits alerts that end a scrape later.
var All = slices.Concat([]Check{
	{"", "", Warning, "processes", "TriprizeProcessDown", "2m", `up{job=~"triprize-.*"} == 0`, "{{ $labels.instance }} ({{ $labels.job }}) does not respond to Prometheus."},
	{"", "", Critical, "processes", "TriprizeNothingScraped", "1m", `absent(up{job=~"triprize-.*"} == 1)`, "Prometheus cannot scrape any process of Triprize, so no other alert can fire."},
	{"", "", Critical, "processes", "TriprizeNoAPI", "1m", `absent(up{job="triprize-api"} == 1)`, "Prometheus cannot scrape any api. Purchases are not possible."},
	{"no_worker", "", Critical, "processes", "TriprizeNoWorker", "1m+1m", `max(triprize_workers_alive) == 0`, "No worker is alive. Purchases are accepted and wait; after two minutes they are refused (TriprizeOverloaded)."},
	{"worker_frozen", "redis", Warning, "processes", "TriprizeWorkerSilent", "2m", `max(triprize_workers_stale) > 0`, "{{ $value }} worker(s) send no heartbeat and have not shut down."},
	{"worker_crashes", "redis", Warning, "processes", "TriprizeWorkersCrash", "", `max(triprize_worker_crashes) > 2`, "{{ $value }} workers ended soon after their start, or without a shutdown."},
	{"no_scheduler", "", Critical, "processes", "TriprizeNoScheduler", "2m", `max(triprize_schedulers_alive) == 0`, "No scheduler leads. Lost tasks are not recovered, jobs that met a locked row wait, and reservations and sales do not end."},
	{"", "", Warning, "processes", "TriprizeApprovalsDiffer", "5m", `max(triprize_approvals_settings) != min(triprize_approvals_settings)`, "The apis have different settings of approvals: what needs another person's approval depends on the api."},
	{"sweeps", "redis", Warning, "processes", "TriprizeSweepStale", "5m", fmt.Sprintf(`time() - max by (sweep) (triprize_sweep_last_success_timestamp_seconds{sweep!~"%[1]s"}) > %[2]d * 60
or time() - max by (sweep) (triprize_sweep_last_success_timestamp_seconds{sweep=~"%[1]s"}) > %[3]d * 60
or sum by (sweep) (triprize_sweep_runs_total{outcome="failed"}) > 0 unless on (sweep) triprize_sweep_last_success_timestamp_seconds`, rare, mostMinutes, mostRareMinutes), "The sweep {{ $labels.sweep }} fails or does not run."},

	{"redis", "", Critical, "redis", "TriprizeRedisAway", "1m+1m", `up{job=~"triprize-.*"} == 1 unless on (instance) triprize_redis_keys`, "Redis does not respond to {{ $labels.instance }}, or rejects writes."},
	{"redis_memory", "redis", Warning, "redis", "TriprizeRedisMemory", "5m", `max(triprize_redis_memory_used_ratio) > 0.8`, "Redis uses {{ $value | humanizePercentage }} of its maxmemory."},
	{"redis_standby_away", "", Warning, "redis", "TriprizeRedisStandbyAway", "2m", `max(triprize_degraded{cause="redis_standby_away"}) == 1`, "A Sentinel or replica of Redis is away. The next loss of a server may have no failover."},
	{"locks", "", Warning, "redis", "TriprizeRedisAway", "", "", "No majority of the lock servers responds. Crowds are slower."},

	{"postgres", "", Critical, "postgres", "TriprizePostgresAway", "1m+1m", `up{job=~"triprize-.*"} == 1 unless on (instance) triprize_campaigns_drawing`, "Postgres does not respond to {{ $labels.instance }}, or is not the newest primary (two_branches in /readyz: both have sold). Nothing is sold."},
	{"writes_failing", "", Critical, "postgres", "TriprizeWritesFailing", "1m", `triprize_degraded{cause="writes_failing"} == 1`, "Postgres responds to {{ $labels.instance }}, but writes fail. Nothing is sold."},
	{"replication_asynchronous", "", Warning, "postgres", "TriprizeReplicationAsynchronous", "2m", `max(triprize_degraded{cause="replication_asynchronous"}) == 1`, "Commits do not wait for a synchronous standby. A failover may lose accepted purchases."},
	{"standby_away", "", Warning, "postgres", "TriprizeStandbyAway", "2m", `max(triprize_degraded{cause="standby_away"}) == 1`, "No synchronous standby of Postgres is connected, or it lags. Commits wait for it."},
	{"standby", "", Info, "postgres", "TriprizeReplicationAsynchronous", "", "", "No synchronous standby is required: a failover may lose the last purchases."},
	{"", "", Warning, "postgres", "TriprizePoolExhausted", "2m", `avg_over_time(triprize_postgres_connections_waiting[5m]) > 0.5`, "Requests or tasks wait for a Postgres connection in {{ $labels.instance }}."}, // one wait lasts for a whole batch
	{"", "", Warning, "postgres", "TriprizeLockTimeouts", "5m", `sum by (transaction) (rate(triprize_postgres_lock_timeouts_total[5m])) > 1`, "{{ $labels.transaction }} transactions time out on locked rows, {{ $value | humanize }} times per second."},
	{"", "", Warning, "postgres", "TriprizeDeadlocks", "", `sum by (transaction) (increase(triprize_postgres_deadlocks_total[15m])) > 0`, "Postgres has resolved a deadlock of a {{ $labels.transaction }} transaction. The lock order should make this impossible."},
	{"", "", Critical, "postgres", "TriprizeCampaignLocked", "1m+1m", `max(triprize_campaigns_locked) > 0`, "{{ $value }} campaign(s) stay locked. Their purchases are accepted and wait."},

	// Draws may wait for their beacon (see TriprizeDrawStuck), cancellations of campaigns for refunds or a void. min: the process with the newest data is right.
	{"jobs", "postgres", Critical, "sales", "TriprizeJobsStuck", "1m", `min by (kind) (triprize_jobs_queued_age_seconds{kind!~"draw|campaign-cancellation|erasure"}) > 1 * 60`, "The oldest unfinished {{ $labels.kind }} job is {{ $value | humanizeDuration }} old."},
	{"sales_stuck", "", Warning, "sales", "TriprizeJobsStuck", "", "", "A purchase has waited for workers for more than 15 s."},
	{"overloaded", "", Critical, "sales", "TriprizeOverloaded", "1m", `max(triprize_degraded{cause="overloaded"}) == 1`, "Purchases are refused with 503 overloaded. Accepted ones wait too long."},
	{"", "", Warning, "sales", "TriprizeRetries", "2m", `sum by (kind) (rate(triprize_job_attempts_total{delivery="redelivered"}[10m])) / sum by (kind) (rate(triprize_job_attempts_total[10m])) > 0.2
and (sum by (kind) (increase(triprize_job_attempts_total[10m])) > 20 or sum by (kind) (increase(triprize_job_attempts_total{kind="draw"}[10m])) > 4)
and sum by (kind) (increase(triprize_job_attempts_total{delivery="redelivered"}[3m])) > 0`, "{{ $value | humanizePercentage }} of the {{ $labels.kind }} jobs that workers start are redeliveries."}, // there are few draws. The last line ends it soon after the last redelivery
	{"given_up", "postgres", Critical, "sales", "TriprizeJobsGivenUp", "", `sum by (kind) (increase(triprize_jobs_given_up_total{kind!="draw"}[15m])) > 0
or label_replace(max(triprize_draws_given_up) > 0, "kind", "draw", "", "")`, "{{ $labels.kind }} jobs have failed with internal-error after too many deliveries."},
	{"", "", Warning, "sales", "TriprizeTasksWithoutLease", "5m", `max by (kind) (triprize_tasks_without_lease) > 0`, "{{ $value }} active {{ $labels.kind }} task(s) have no live worker."},

	{"draws", "postgres", Critical, "draws", "TriprizeDrawStuck", "", `max(triprize_campaigns_drawing_age_seconds) > 10 * 60`, "A campaign has been drawing for {{ $value | humanizeDuration }}."},
	{"draws_waiting", "postgres", Info, "draws", "TriprizeDrawStuck", "", `max(triprize_draws_waiting) > 0`, "{{ $value }} draw(s) wait for the beacon, or are tried again."},
	{"draw_failing", "", Warning, "draws", "TriprizeDrawFailing", "2m", `max(triprize_degraded{cause="draw_failing"}) == 1`, "A draw has failed twice in a row."},
	{"draw_key_wrong", "", Critical, "draws", "TriprizeDrawKeyWrong", "1m", `triprize_degraded{cause="draw_key_wrong"} == 1`, "The draw key of {{ $labels.instance }} cannot decrypt what the other processes encrypt."},
	{"execution_locks", "postgres", Warning, "draws", "TriprizeExecutionLockHeld", "", `max(triprize_execution_lock_age_seconds) > 1 * 60`, "A worker has the execution lock of a draw and has not renewed it for {{ $value | humanizeDuration }}."},

	{"payments", "postgres", Warning, "money", "TriprizePaymentsWaitForOperator", "5m", `max(triprize_payments_waiting_for{waiter="operator"}) > 0`, "{{ $value }} payment(s) wait for an operator."},
	{"payments_without_key", "postgres", Critical, "money", "TriprizePaymentsWaitForKey", "5m", `max(triprize_payments_waiting_for{waiter="key"}) > 0`, "{{ $value }} payment(s) wait because the workers have no key of the provider."},
	{"refunds", "postgres", Warning, "money", "TriprizeRefundsWaitForOperator", "5m", `max(triprize_refunds_waiting_for_operator) > 0`, "{{ $value }} card refund(s) wait for an operator."},
	{"discrepancies", "postgres", Warning, "money", "TriprizePaymentDiscrepancies", "5m", `max by (kind) (triprize_payment_discrepancies_open) > 0`, "{{ $value }} open discrepancy(ies) with the provider's balance: {{ $labels.kind }}."},
	{"", "", Critical, "money", "TriprizeProviderAway", "3m", `max(triprize_payments_waiting_for{waiter="provider"}) > 0 unless sum(increase(triprize_stripe_calls_total{call!="list",outcome="ok"}[2m])) > 0`, "{{ $value }} payment(s) wait for the provider, and no call to it has succeeded for five minutes. Card payments are not possible."},
	{"card_provider", "postgres", Warning, "money", "TriprizeProviderAway", "", "", "{{ $value }} payment(s) have waited for the provider for three minutes, and none was paid in the last two."},
	{"provider_key", "", Critical, "money", "TriprizeStripeKeyRefused", "1m", `max(triprize_degraded{cause="provider_key"}) == 1
or min(triprize_stripe_permission_missing and on (instance) triprize_scheduler_leading == 1) == 1`, "The payment provider rejects the key. Card payments are not possible."}, // for the last new payment of a process, or for all permissions that the leader checks
	{"failed_by_us", "postgres", Warning, "money", "TriprizeStripeKeyRefused", "", "", "{{ $value }} job(s) of the last 15 minutes have failed by a fault of the provider or of its settings: {{ $labels.code }}."},
	{"", "", Warning, "money", "TriprizeProviderContradicts", "", `sum(increase(triprize_payment_orphaned_intents_total[30m])) > 0
or sum(increase(triprize_payment_mismatches_total[30m])) > 0
or sum(increase(triprize_payment_unexpected_states_total[30m])) > 0`, "The payment provider reports money or a state that matches no payment of ours."},
	{"", "", Warning, "money", "TriprizeRefundPaidTwice", "", `sum(increase(triprize_refunds_paid_twice_total[30m])) > 0`, "The provider made a refund of money that had already been refunded by hand or by others."},
	{"provider_permissions", "redis", Warning, "money", "TriprizeStripePermissionMissing", "5m", `triprize_stripe_permission_missing == 1 and on (instance) triprize_scheduler_leading == 1`, "The payment provider rejects the key, or the key lacks permissions: {{ $labels.permission }}."},
	{"test_mode", "", Info, "money", "TriprizeStripeKeyRefused", "", "", "The payment provider is in test mode. Card purchases are free."},

	{"webhooks_disabled", "postgres", Warning, "webhooks", "TriprizeWebhookEndpointDisabled", "", `max(triprize_webhook_endpoints_disabled) > 0`, "{{ $value }} webhook endpoint(s) were disabled because of their responses. Their apps get no events."},
	{"webhooks_failing", "postgres", Warning, "webhooks", "TriprizeWebhookEndpointFailing", "", `max(triprize_webhook_failing_seconds) > 60 * 60`, "No delivery to a webhook endpoint has succeeded for {{ $value | humanizeDuration }}. Its events wait."},
	{"webhooks", "postgres", Warning, "webhooks", "TriprizeWebhooksLate", "2m", `max(triprize_webhook_due_age_seconds) > 5 * 60`, "The oldest due webhook event has waited for {{ $value | humanizeDuration }}."},

	{"oversold", "postgres", Critical, "audit", "TriprizeOversold", "", `max(triprize_audit_violations{check="oversold"}) > 0`, "The audit has found {{ $value }} case(s) of overselling."},
	{"drawn_twice", "postgres", Critical, "audit", "TriprizeDrawnTwice", "", `max(triprize_audit_violations{check="drawn_twice"}) > 0`, "The audit has found {{ $value }} prize(s) or position(s) drawn twice."},
	{"audit", "postgres", Critical, "audit", "TriprizeAuditViolation", "", `max by (check) (triprize_audit_violations{check!~"oversold|drawn_twice"}) > 0`, "The audit has found {{ $value }} violation(s) of {{ $labels.check }}."},
	{"", "", Warning, "audit", "TriprizeSignInByKey", "", `sum(increase(triprize_console_sign_ins_by_key_total[30m])) > 0`, "Somebody has signed in to the console by a key, and not with an account."},
	{"audit_late", "postgres", Warning, "audit", "TriprizeAuditNotLooking", "5m", `time() - max by (check) (triprize_audit_last_check_timestamp_seconds) > 60 * 60`, "The audit has not checked {{ $labels.check }} for {{ $value | humanizeDuration }}."},
},
	objective("TriprizePurchasesNotAccepted", "purchases_not_accepted", "0.001", fmt.Sprintf(requests, ""), "", "", "of purchase requests fail with a 5xx", "of purchase requests in three days failed with a 5xx"),
	objective("TriprizePurchasesSlow", "purchases_slow", "0.01", acceptances, "5m", "30m", "of purchases are not final within a second", "of purchases in three days were not final within a second"))

// The sweeps that run hourly, and for how many minutes one of them, and of the others, may have no success.
const rare, mostRareMinutes, mostMinutes = "missing-permissions|reconciliation|trail-seals", 180, 5

// LongestPause is for how long a sweep may have no success.
func LongestPause(sweep string) time.Duration {
	if slices.Contains(strings.Split(rare, "|"), sweep) {
		return mostRareMinutes * time.Minute
	}
	return mostMinutes * time.Minute
}

// Two objectives: 99.9 % of purchase requests do not get a 5xx, and 99 % of purchases are final within a second. Unfinished ones
// count as slow; those by card do not count once their payment begins. An alert compares a ratio with the budget times the burn
// rate, over two windows, from 50 requests on. Apis and workers are scraped up to 15 s apart: when a sale opens, the purchases
// of the last seconds seem unfinished, so a page waits for 5 minutes and a ticket for 30.
const (
	requests    = `triprize_http_request_duration_seconds_count{method="POST",route="/v1/campaigns/:campaign/purchases"%s}`
	acceptances = `triprize_jobs_accepted_total{kind="purchase"}`
)

// Record is a rule that records the ratio of an objective.
type Record struct{ Name, Expr string }

// Records returns what the alerts of a group read.
func Records(group string) (all []Record) {
	for _, window := range map[string][]string{"objectives": {"5m", "30m", "1h", "6h", "3d"}}[group] {
		rate := func(metric string) string { return "sum(rate(" + metric + "[" + window + "]))" }
		all = append(all,
			Record{"triprize:purchases_not_accepted:ratio" + window, rate(fmt.Sprintf(requests, `,status=~"5.."`)) + " / " + rate(fmt.Sprintf(requests, ""))},
			Record{"triprize:purchases_slow:ratio" + window, "clamp_min(1 - ((" + rate(`triprize_job_duration_seconds_bucket{kind="purchase",le="1"}`) + " or vector(0)) + (" +
				rate(`triprize_payment_phases_total{phase="creating"}`) + " or vector(0))) / " + rate(acceptances) + ", 0)"})
	}
	return all
}

// objective returns the page and the ticket of a ratio.
func objective(alert, ratio, budget, requests, pageFor, ticketFor, page, ticket string) []Check {
	exceeds := func(factor, long, short string) string {
		return fmt.Sprintf("triprize:%[1]s:ratio%[2]s > %[4]s and triprize:%[1]s:ratio%[3]s > %[4]s and sum(increase(%[5]s[%[2]s])) > 50", ratio, long, short, factor+budget, requests)
	}
	return []Check{
		{"", "", Critical, "objectives", alert, pageFor, exceeds("14.4 * ", "1h", "5m") + "\nor " + exceeds("6 * ", "6h", "30m"), "{{ $value | humanizePercentage }} " + page + ". At this rate the 30-day error budget lasts a few days at most."},
		{"", "", Warning, "objectives", alert, ticketFor, exceeds("", "3d", "6h"), "{{ $value | humanizePercentage }} " + ticket + ". The 30-day error budget will be exceeded."},
	}
}
