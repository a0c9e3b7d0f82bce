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
	"triprize/internal/entry/checks"
	"triprize/internal/entry/console"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/readcache"
	"triprize/internal/platform/sweep"
	"triprize/internal/platform/telemetry"
	"triprize/internal/sale"
	"triprize/internal/webhook"
)

// status is an answer while it is made.
type status struct {
	contract.Status
	checks.Reading
	ready  telemetry.Readiness
	values map[string]checks.Value // of checks that have no gauge; one that does not apply has none
	failed map[string]bool         // the servers of which something could not be read
}

// could reports whether a read has succeeded.
func (st *status) could(server string, err error) bool {
	st.failed[server] = st.failed[server] || err != nil
	return err == nil
}

// thisAPI is the label of what no other process has reported.
const thisAPI = "this api"

func (st *status) holds(name string, is bool) {
	st.values[name] = checks.Value{Number: map[bool]float64{true: 1}[is], Label: thisAPI}
}

// count adds to a check, and names what is counted.
func (st *status) count(name string, n int, what string) {
	v := st.values[name]
	if n > 0 && what != "" {
		v.Label = strings.TrimPrefix(v.Label+", "+what, ", ")
	}
	v.Number += float64(n)
	st.values[name] = v
}

func (s *server) GetStatus(ctx context.Context, _ operations.GetStatusRequestObject) (operations.Answer, error) {
	found, err := s.status.Get(ctx, struct{}{}, nil)
	return operations.GetStatus200(found.Value, err)
}

// openStatus makes one answer for all who ask. It comes without Redis and Postgres, too: then what they know is unknown.
func (s *server) openStatus(rdb redis.UniversalClient) {
	bounds := readcache.Settings{MaxAge: 1900 * time.Millisecond, Pause: time.Second, Timeout: time.Minute, MaxEntries: 1, MaxBytes: 1}
	s.status = readcache.New(bounds, func(ctx context.Context, _ struct{}) (contract.Status, error) {
		st := &status{ready: s.health.Ready(), values: make(map[string]checks.Value), failed: make(map[string]bool)} //nolint:contextcheck // checks have bounds of their own
		st.At, st.Figures.Backlog, st.ExecutionLocks, st.Processes = time.Now().UTC(), []contract.Backlog{}, []contract.ExecutionLock{}, []contract.StatusProcess{}
		for name, is := range st.ready.Checks {
			st.holds(name, is != telemetry.StatusOK)
			st.failed[name] = is != telemetry.StatusOK
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
		if !st.failed["redis"] {
			st.ReadMemory(ctx, rdb)
		}
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
	if st.could("redis", st.ReadFleet(ctx, rdb, s.settings.Redis.Namespace)) {
		leaders := st.Fleet.Named(queue.RoleScheduler, queue.Alive)
		st.Figures.Workers, st.Figures.Schedulers = new(len(st.Fleet.Named(queue.RoleWorker, queue.Alive))), new(len(leaders))
		if len(leaders) > 0 {
			st.Figures.Leader = &leaders[0]
		}
		st.readProcesses()
	}
	if reports, err := s.sweeper.LastReports(ctx); st.could("redis", err) {
		st.count("sweeps", 0, "")
		if last := reports["missing-permissions"]; st.ready.Livemode != nil {
			missing, asked := last.Counts["missing"], last.Counts["asked"]
			st.count("provider_permissions", missing, fmt.Sprintf("%d of %d", missing, asked))
			if last.Error == "" && asked > 1 && missing == asked {
				st.holds("provider_key", true)
			}
		}
		for _, one := range s.sweeper.Sweeps {
			last, ran := reports[one.Name] // one that never ran: the scheduler or Redis is new
			if last.Error != "" {
				last = reports[one.Name+sweep.Succeeded]
			}
			if ran && st.At.Sub(last.StartedAt) > checks.LongestPause(one.Name) {
				st.count("sweeps", 1, one.Name)
			}
		}
	}
}

// readProcesses reads what each process says of itself: a fault of one is a fault of the installation.
func (st *status) readProcesses() {
	reporters := make(map[string][]string)
	for _, p := range st.Fleet.Processes {
		one := contract.StatusProcess{Role: p.Role, ID: p.ID, State: contract.StatusProcessState(p.State), Version: p.Version, TasksInHand: p.InHand}
		if !p.Since.IsZero() {
			one.Since = &p.Since
		}
		st.Processes = append(st.Processes, one)
		if p.State == queue.Silent || p.Beats == 0 {
			continue
		}
		for _, name := range p.Faults {
			reporters[name] = append(reporters[name], p.Role+" "+p.ID)
		}
	}
	for name, by := range reporters {
		if len(by) > 5 {
			by = append(by[:5], fmt.Sprintf("%d others", len(by)-5))
		}
		st.values[name] = checks.Value{Number: 1, Label: strings.Join(by, ", ")}
	}
}

func (s *server) readPostgres(ctx context.Context, st *status) {
	if rates, err := sale.ReadRates(ctx, s.db); st.could("postgres", err) {
		st.Figures.PurchasesPerSecond, st.Figures.RefusalsPerSecond, st.Figures.FinalP50Ms, st.Figures.FinalP99Ms = &rates.Completed, &rates.Refused, rates.P50, rates.P99
	}
	if st.could("postgres", st.ReadBacklog(ctx, s.db)) {
		for _, kind := range job.QueueKinds {
			waiting := st.Backlog[kind]
			st.Figures.Backlog = append(st.Figures.Backlog, contract.Backlog{Kind: string(kind), Count: int64(waiting.Jobs), AgeSeconds: float32(waiting.Oldest.Seconds())})
		}
	}
	if due, oldest, err := webhook.CountDue(ctx, s.db); st.could("postgres", err) {
		st.Figures.Backlog = append(st.Figures.Backlog, contract.Backlog{Kind: "webhook", Count: int64(due), AgeSeconds: float32(oldest.Seconds())})
	}
	for _, read := range []func(context.Context, postgres.DB) error{st.ReadDraws, st.ReadAudit, st.ReadWebhooks} {
		st.could("postgres", read(ctx, s.db))
	}
	if st.could("postgres", st.ReadMoney(ctx, s.db)) {
		st.count("card_provider", st.Unanswered, "")
	}
	if failures, err := s.failures.Get(ctx, struct{}{}, nil); st.could("postgres", err) {
		st.count("failed_by_us", 0, "")
		st.count("given_up", st.Draws.GivenUp, string(job.KindDraw))
		for _, f := range failures.Value {
			if f.Code != fault.InternalError {
				st.count("failed_by_us", f.Count, fmt.Sprint(f.Kind, " ", f.Code))
			} else if f.Kind != job.KindDraw { // over when its campaign is drawn
				st.count("given_up", f.Count, string(f.Kind))
			}
		}
	}
	locked, err := campaign.ListLocked(ctx, s.db, cmp.Or(s.settings.Draw.Lease, drawing.Lease), 100)
	st.could("postgres", err)
	for _, one := range locked {
		st.ExecutionLocks = append(st.ExecutionLocks, contract.ExecutionLock{CampaignID: one.CampaignID, Lock: one.LockID, Worker: one.Holder, Since: one.RenewedAt, Stale: one.Stale})
	}
}

// check makes the checks of the table.
func (st *status) check() {
	rank := func(s contract.CheckState) int { return checks.State(s).Rank() }
	for _, c := range checks.All {
		value, known := c.Measure(&st.Reading, st.At)
		if !known {
			value, known = st.values[c.Name]
		}
		one := contract.StatusCheck{Name: c.Name, State: contract.CheckStateOk, Detail: "In order.", Runbook: new(c.Runbook())}
		switch {
		case c.Name == "" || !known && !st.failed[c.From] && !slices.Contains(st.ready.Unknown, c.Name):
			continue
		case !known:
			one.State, one.Detail = contract.CheckStateUnknown, "It could not be determined."
		case value.Number > value.Bound:
			if one.State, one.Detail = contract.CheckState(c.State), c.Describe(value); one.Detail == c.Text && value.Label != thisAPI {
				one.Detail += " Reported by " + value.Label + "."
			}
			if since := cmp.Or(st.ready.Since[c.Name], value.Since); !since.IsZero() {
				one.Since = new(since.UTC())
			}
		}
		st.Checks = append(st.Checks, one)
	}
	slices.SortStableFunc(st.Checks, func(a, b contract.StatusCheck) int { return cmp.Compare(rank(b.State), rank(a.State)) })
	if st.State = st.Checks[0].State; st.State == contract.CheckStateInfo {
		st.State = contract.CheckStateOk
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
