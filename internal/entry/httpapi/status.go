package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/drawing"
	"triprize/internal/entry/console"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/platform/audit"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/readcache"
	"triprize/internal/platform/redisx"
	"triprize/internal/platform/telemetry"
	"triprize/internal/sale"
	"triprize/internal/webhook"
)

// severity has the states of checks from the best to the worst.
var severity = []contract.CheckState{"well", "note", "unknown", "late", "broken"}

// checks are all checks. One has its state when its value is above a threshold, and is well otherwise. The thresholds are
// those of the alerts in deploy/prometheus/rules.yml; where an alert pages somebody a check is broken, where it makes a
// ticket it is late. What has no unit has the value 0 or 1.
var checks = []struct {
	name    string
	from    string // the server that is read; empty: it is in the answer of /readyz
	state   contract.CheckState
	above   float64
	unit    string // seconds, or of a number
	runbook string
	text    string
}{
	{"postgres", "", "broken", 0, "", "postgres.md#triprizepostgresaway", "Postgres does not answer, is not the newest primary (two_branches in /readyz: both have sold), or waits for triprize migrate."},
	{"redis", "", "broken", 0, "", "redis.md#triprizeredisaway", "Redis does not answer, or rejects writes."},
	{"locks", "", "late", 0, "", "redis.md#triprizeredisaway", "No majority of the lock servers answers. Crowds are slower."},
	{"standby", "", "note", 0, "", "", "No synchronous standby is required: a failover may lose the last purchases."},
	{"draw_failing", "", "late", 0, "", "draws.md#triprizedrawfailing", "A draw has failed twice in a row."},
	{"draw_key_wrong", "", "broken", 0, "", "draws.md#triprizedrawkeywrong", "The draw key of a process cannot decrypt what the others encrypt."},
	{"no_scheduler", "", "broken", 0, "", "processes.md#triprizenoscheduler", "No scheduler leads. No sweep runs."},
	{"no_worker", "", "broken", 0, "", "processes.md#triprizenoworker", "No worker is alive."},
	{"replication_asynchronous", "", "late", 0, "", "postgres.md#triprizereplicationasynchronous", "Commits do not wait for a synchronous standby."},
	{"sales_stuck", "", "late", 0, "", "sales.md#triprizejobsstuck", "A purchase has waited for workers for more than 15 s."},
	{"standby_away", "", "late", 0, "", "postgres.md#triprizestandbyaway", "No synchronous standby is connected, or it lags. Commits wait for it."},
	{"redis_standby_away", "", "late", 0, "", "redis.md#triprizeredisstandbyaway", "A Sentinel or replica of Redis is away: the next loss may have no failover."},
	{"worker_frozen", "", "late", 0, "", "processes.md#triprizeworkersilent", "A worker sends no heartbeat and has not shut down."},
	{"writes_failing", "", "broken", 0, "", "postgres.md#triprizewritesfailing", "Postgres answers, but writes of an api fail."},
	{"overloaded", "", "broken", 0, "", "sales.md#triprizeoverloaded", "Purchases are refused with 503 overloaded: accepted ones wait too long."},
	{"provider_key", "", "broken", 0, "", "money.md#triprizestripekeyrefused", "The payment provider rejects the key. Nobody can pay by card."},
	{"test_mode", "", "note", 0, "", "money.md#triprizepaymentstestmode", "The payment provider is in test mode: card purchases are free."},
	{"worker_crashes", "redis", "late", 2, "n", "processes.md#triprizeworkerscrash", "Workers that ended soon after their start, or without a shutdown: %.0f"},
	{"provider_permissions", "redis", "late", 0, "n", "money.md#triprizestripepermissionmissing", "Permissions that the provider's key lacks: %.0f"},
	{"redis_memory", "redis", "late", 80, "%", "redis.md#triprizeredismemory", "Redis uses %.0f %% of its maxmemory."},
	{"sweeps", "redis", "late", 0, "n", "processes.md#triprizesweepstale", "Sweeps that fail or do not run: %.0f"},
	{"given_up", "postgres", "broken", 0, "n", "sales.md#triprizejobsgivenup", "Jobs of the last 15 minutes, and draws that are not done, that failed with internal-error: %.0f"},
	{"failed_by_us", "postgres", "late", 0, "n", "money.md#triprizestripekeyrefused", "Jobs of the last 15 minutes that failed by a fault of the provider or of its settings: %.0f"},
	{"jobs", "postgres", "broken", 60, "s", "sales.md#triprizejobsstuck", "The oldest unfinished job has waited for %s."},
	{"draws", "postgres", "broken", 600, "s", "draws.md#triprizedrawstuck", "The oldest draw has been under way for %s."},
	{"draws_waiting", "postgres", "note", 0, "n", "draws.md#triprizedrawstuck", "Draws that wait for the beacon, or are tried again: %.0f"},
	{"execution_locks", "postgres", "late", 60, "s", "draws.md#triprizeexecutionlockheld", "The oldest execution lock was renewed %s ago."},
	{"card_provider", "postgres", "late", 0, "n", "money.md#triprizeprovideraway", "Payments that have waited for three minutes for the provider, which does not answer or is busy: %.0f"},
	{"payments_without_key", "postgres", "broken", 0, "n", "money.md#triprizepaymentswaitforkey", "Payments that wait because the workers have no key of the provider: %.0f"},
	{"payments", "postgres", "late", 0, "n", "money.md#triprizepaymentswaitforoperator", "Payments that wait for an operator: %.0f"},
	{"refunds", "postgres", "late", 0, "n", "money.md#triprizerefundswaitforoperator", "Refunds that wait for an operator: %.0f"},
	{"discrepancies", "postgres", "late", 0, "n", "money.md#triprizepaymentdiscrepancies", "Open discrepancies with the provider: %.0f"},
	{"audit", "postgres", "broken", 0, "n", "audit.md#triprizeauditviolation", "Violations that the audit has found (triprize audit --stored lists them): %.0f"},
	{"audit_late", "postgres", "late", 3600, "s", "audit.md#triprizeauditnotlooking", "The audit has made its oldest check %s ago."},
	{"audit_begun", "postgres", "note", 0, "", "audit.md#triprizeauditnotlooking", "The audit has checked nothing yet."},
	{"webhooks", "postgres", "late", 300, "s", "webhooks.md#triprizewebhookslate", "The oldest due webhook event has waited for %s."},
	{"webhooks_failing", "postgres", "late", 3600, "s", "webhooks.md#triprizewebhookendpointfailing", "The longest failing webhook endpoint has failed for %s."},
	{"webhooks_disabled", "postgres", "note", 0, "n", "webhooks.md#triprizewebhookendpointdisabled", "Disabled webhook endpoints: %.0f"},
}

// status is an answer while it is made.
type status struct {
	contract.Status
	ready  telemetry.Readiness
	values map[string]float64 // of checks; one that does not apply has none
	failed map[string]bool    // the servers of which something could not be read
	also   map[string]string  // ends the details of checks
}

// could reports whether a read has succeeded.
func (st *status) could(server string, err error) bool {
	st.failed[server] = st.failed[server] || err != nil
	return err == nil
}

func (st *status) holds(name string, is bool) { st.values[name] = map[bool]float64{true: 1}[is] }

func (s *server) GetStatus(ctx context.Context, _ operations.GetStatusRequestObject) (operations.Answer, error) {
	found, err := s.status.Get(ctx, struct{}{}, nil)
	return operations.GetStatus200(found.Value, err)
}

// openStatus makes one answer for all who ask. It comes without Redis and Postgres, too: then what they know is unknown.
func (s *server) openStatus(rdb redis.UniversalClient) {
	bounds := readcache.Settings{MaxAge: 1900 * time.Millisecond, Pause: time.Second, Timeout: time.Minute, MaxEntries: 1, MaxBytes: 1}
	s.status = readcache.New(bounds, func(ctx context.Context, _ struct{}) (contract.Status, error) {
		st := &status{ready: s.health.Ready(), values: make(map[string]float64), failed: make(map[string]bool), also: make(map[string]string)} //nolint:contextcheck // checks have bounds of their own
		st.At, st.Figures.Backlog, st.ExecutionLocks, st.Processes = time.Now().UTC(), []contract.Backlog{}, []contract.ExecutionLock{}, []contract.StatusProcess{}
		for name, is := range st.ready.Checks {
			st.holds(name, is != telemetry.StatusOK)
			st.failed[name] = is != telemetry.StatusOK
		}
		if st.failed["postgres"] {
			st.also["postgres"] = " Nothing is sold."
		}
		for _, name := range slices.Concat(st.ready.Causes, st.ready.Well) {
			st.holds(name, slices.Contains(st.ready.Causes, name))
		}
		st.holds("standby", !s.settings.Postgres.RequireSyncStandby)
		if st.ready.Livemode != nil {
			st.holds("test_mode", !*st.ready.Livemode)
		}
		ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		if !st.failed["redis"] {
			s.readRedis(ctx, rdb, st)
		}
		if !st.failed["postgres"] {
			s.readPostgres(ctx, st)
		}
		wait := " Purchases are accepted and wait."
		if st.values["overloaded"] > 0 {
			wait = " Purchases are refused with 503."
		}
		st.also["redis"], st.also["no_worker"] = wait+st.also["redis"], wait
		st.check()
		return st.Status, nil
	}, func(contract.Status) int { return 1 })
	bounds.MaxAge = 15 * time.Second // a job fails by our fault half a minute after it was accepted, or later
	s.failures = readcache.New(bounds, func(ctx context.Context, _ struct{}) (all []job.Failures, err error) {
		all, _, err = job.ListFailures(ctx, s.db, time.Now().Add(-15*time.Minute), time.Now().Add(time.Minute), fault.Ours, 100_000)
		return all, err
	}, func([]job.Failures) int { return 1 })
}

func (s *server) readRedis(ctx context.Context, rdb redis.UniversalClient, st *status) {
	if fleet, err := queue.ReadFleet(ctx, rdb, s.settings.Redis.Namespace); st.could("redis", err) {
		leaders := fleet.Named(queue.RoleScheduler, queue.Alive)
		st.Figures.Workers, st.Figures.Schedulers = new(len(fleet.Named(queue.RoleWorker, queue.Alive))), new(len(leaders))
		if len(leaders) > 0 {
			st.Figures.Leader = &leaders[0]
		}
		st.values["worker_crashes"] = float64(fleet.Crashes)
		st.readProcesses(fleet.Processes)
	}
	if share, err := redisx.MemoryUse(ctx, rdb); err == nil { // a hosted Redis may refuse to say
		st.values["redis_memory"] = 100 * share
	}
	if reports, err := s.sweeper.LastReports(ctx); st.could("redis", err) {
		st.values["sweeps"] = 0
		if last := reports["missing-permissions"]; st.ready.Livemode != nil {
			st.values["provider_permissions"] = float64(last.Counts["missing"])
			if last.Error == "" && last.Counts["asked"] > 1 && last.Counts["missing"] == last.Counts["asked"] {
				st.values["provider_key"] = 1
			}
		}
		for _, one := range s.sweeper.Sweeps {
			longest := map[bool]time.Duration{false: 5 * time.Minute, true: 3 * time.Hour}[one.Every > time.Minute]
			if last, ran := reports[one.Name]; ran && (last.Error != "" || st.At.Sub(last.StartedAt) > longest) { // one that never ran: the scheduler or Redis is new
				st.values["sweeps"]++
				st.also["sweeps"] += ", " + one.Name
			}
		}
	}
}

// readProcesses reads what each process says of itself: a fault of one is a fault of the installation.
func (st *status) readProcesses(all []queue.Process) {
	reporters := make(map[string][]string)
	for _, p := range all {
		one := contract.StatusProcess{Role: p.Role, ID: p.ID, State: contract.StatusProcessState(p.State), Version: p.Version, TasksInHand: p.InHand}
		if !p.Since.IsZero() {
			one.Since = &p.Since
		}
		st.Processes = append(st.Processes, one)
		if p.State == queue.Silent || p.Beats == 0 {
			continue
		}
		for _, name := range p.Faults {
			st.values[name] = 1
			reporters[name] = append(reporters[name], p.Role+" "+p.ID)
		}
	}
	for name, by := range reporters {
		if len(by) > 5 {
			by = append(by[:5], fmt.Sprintf("%d others", len(by)-5))
		}
		st.also[name] += " Reported by " + strings.Join(by, ", ") + "."
	}
}

func (s *server) readPostgres(ctx context.Context, st *status) {
	if rates, err := sale.ReadRates(ctx, s.db); st.could("postgres", err) {
		st.Figures.PurchasesPerSecond, st.Figures.RefusalsPerSecond, st.Figures.FinalP50Ms, st.Figures.FinalP99Ms = &rates.Completed, &rates.Refused, rates.P50, rates.P99
	}
	if waiting, err := job.ReadBacklog(ctx, s.db, job.QueueKinds...); st.could("postgres", err) {
		for _, kind := range job.QueueKinds {
			st.Figures.Backlog = append(st.Figures.Backlog, contract.Backlog{Kind: string(kind), Count: int64(waiting[kind].Jobs), AgeSeconds: float32(waiting[kind].Oldest.Seconds())})
			if kind != job.KindDraw && kind != job.KindCampaignCancellation { // they wait for their beacon, and for refunds
				st.values["jobs"] = max(st.values["jobs"], waiting[kind].Oldest.Seconds())
			}
		}
	}
	draws, err := drawing.CountUnderWay(ctx, s.db)
	if st.could("postgres", err) {
		st.values["draws"], st.values["draws_waiting"], st.values["execution_locks"] = draws.Oldest.Seconds(), float64(draws.Waits), draws.OldestClaim.Seconds()
	}
	if failures, err := s.failures.Get(ctx, struct{}{}, nil); st.could("postgres", err) {
		st.values["failed_by_us"], st.values["given_up"] = 0, float64(draws.GivenUp)
		for _, f := range failures.Value {
			if f.Kind == job.KindDraw && f.Code == fault.InternalError { // over when its campaign is drawn
				continue
			}
			name := map[bool]string{false: "failed_by_us", true: "given_up"}[f.Code == fault.InternalError]
			st.values[name] += float64(f.Count)
			st.also[name] += fmt.Sprintf(", %s %s", f.Kind, f.Code)
		}
	}
	locked, err := campaign.ListLocked(ctx, s.db, cmp.Or(s.settings.Draw.Lease, drawing.Lease), 100)
	st.could("postgres", err)
	for _, one := range locked {
		st.ExecutionLocks = append(st.ExecutionLocks, contract.ExecutionLock{CampaignID: one.CampaignID, Lock: one.LockID, Worker: one.Holder, Since: one.RenewedAt, Stale: one.Stale})
	}
	if waiting, err := payment.CountWaiting(ctx, s.db, 3*time.Minute); st.could("postgres", err) {
		for reason, name := range map[payment.BlockedReason]string{payment.WaitsForOperator: "payments", payment.WaitsForKey: "payments_without_key", payment.WaitsForProvider: "card_provider"} {
			st.values[name] = float64(waiting[reason])
		}
	}
	if n, err := payment.CountRefundsForOperator(ctx, s.db); st.could("postgres", err) {
		st.values["refunds"] = float64(n)
	}
	if open, err := reconciliation.CountOpen(ctx, s.db); st.could("postgres", err) {
		for _, n := range open {
			st.values["discrepancies"] += float64(n)
		}
	}
	if states, err := audit.States(ctx, s.db); st.could("postgres", err) {
		st.holds("audit_begun", len(states) == 0)
		for _, one := range states {
			if st.values["audit"] += float64(one.Violations); one.Violations > 0 {
				st.also["audit"] += ", " + one.Check
			}
			st.values["audit_late"] = max(st.values["audit_late"], st.At.Sub(one.LookedAt).Seconds())
		}
	}
	if now, err := webhook.CountWaiting(ctx, s.db); st.could("postgres", err) {
		st.values["webhooks"], st.values["webhooks_failing"], st.values["webhooks_disabled"] = now.Oldest.Seconds(), now.Failing.Seconds(), float64(now.Disabled)
		if due, oldest, err := webhook.CountDue(ctx, s.db); st.could("postgres", err) {
			st.Figures.Backlog = append(st.Figures.Backlog, contract.Backlog{Kind: "webhook", Count: int64(due), AgeSeconds: float32(oldest.Seconds())})
		}
	}
}

// check makes the checks of the values.
func (st *status) check() {
	for _, c := range checks {
		value, is := st.values[c.name]
		one := contract.StatusCheck{Name: c.name, State: "well", Detail: "In order."}
		if c.runbook != "" {
			one.Runbook = &c.runbook
		}
		switch {
		case !is && (st.failed[c.from] || slices.Contains(st.ready.Unknown, c.name)):
			one.State, one.Detail = "unknown", "It could not be determined."
		case !is:
			continue
		case c.unit == "s":
			one.Detail = fmt.Sprintf(c.text, time.Duration(value)*time.Second)
		case c.unit != "":
			one.Detail = fmt.Sprintf(c.text, value) + st.also[c.name]
		case value > 0:
			one.Detail = c.text + st.also[c.name]
		}
		if value > c.above {
			one.State = c.state
			since := st.ready.Since[c.name]
			if c.unit == "s" {
				since = st.At.Add(-time.Duration(value) * time.Second)
			}
			if !since.IsZero() {
				one.Since = new(since.UTC())
			}
		}
		st.Checks = append(st.Checks, one)
	}
	slices.SortStableFunc(st.Checks, func(a, b contract.StatusCheck) int {
		return cmp.Compare(slices.Index(severity, b.State), slices.Index(severity, a.State))
	})
	if st.State = st.Checks[0].State; st.State == "note" {
		st.State = "well"
	}
}

// sample returns a point of the curves of the console.
func (s *server) sample(ctx context.Context) (p console.Sample) {
	found, err := s.status.Get(ctx, struct{}{}, nil)
	if is := found.Value.Figures; err == nil && len(is.Backlog) > 0 {
		p = console.Sample{nil, is.PurchasesPerSecond, is.RefusalsPerSecond, is.FinalP99Ms, new(float64)}
		for _, one := range is.Backlog {
			*p[4] += float64(one.Count)
		}
	}
	return p
}
