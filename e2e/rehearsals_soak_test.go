//go:build soak

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/devkit/devstack"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
	"triprize/sandbox/stripesim"
)

// rehearsal is a fleet of real processes, watched by a real Prometheus that has the rules of
// deploy/prometheus at 60 times their speed.
type rehearsal struct {
	*fleet.System
	prometheus string // its URL
	listen     map[string][]string
	dir        string
}

// often are the intervals of the sweeps, so that at 60 times the speed none of them is late. The
// reconciliation may be.
var often = func() (env []string) {
	for _, sweep := range []string{"EXPIRED_HOLDS", "EXPIRED_AUTHORIZATIONS", "EXPIRED_RESERVATIONS", "DUE_ITEMS", "MISSED_EVENTS", "MISSING_PERMISSIONS",
		"STALE_LOCKS", "ENDED_SALES", "STUCK_DRAWS", "OLD_RECORDS", "AUDIT"} {
		env = append(env, "TRIPRIZE_SWEEPS_"+sweep+"_INTERVAL=1s")
	}
	return env
}()

// rehearse starts a fleet with an api, a worker and a scheduler, and Prometheus.
func rehearse(t *testing.T, o fleet.Options, workerEnv ...string) *rehearsal {
	t.Helper()
	o.Binaries, o.Workers, o.Schedulers = true, -1, -1
	o.Env = slices.Concat(hasty, often, o.Env)
	r := &rehearsal{System: fleet.Start(t, o), listen: make(map[string][]string), dir: t.TempDir()}
	r.listen["api"] = []string{metricsAddress(r.System, 0)}
	r.worker(workerEnv...)
	r.RunScheduler("TRIPRIZE_SCHEDULER_LISTEN=" + r.address("scheduler"))
	r.startPrometheus()
	return r
}

func metricsAddress(s *fleet.System, api int) string {
	return strings.TrimSuffix(strings.TrimPrefix(s.MetricsURL(api), "http://"), "/metrics")
}

// worker starts a worker that Prometheus finds.
func (r *rehearsal) worker(env ...string) *devstack.Child {
	return r.RunWorker(append(env, "TRIPRIZE_WORKER_LISTEN="+r.address("worker"))...)
}

// address returns a free address, at which Prometheus looks for a process of a kind.
func (r *rehearsal) address(kind string) string {
	r.T.Helper()
	address, err := devstack.FreeAddress()
	servers.NoError(r.T, err)
	r.listen[kind] = append(r.listen[kind], address)
	r.target(kind)
	return address
}

// target tells Prometheus the addresses of a kind.
func (r *rehearsal) target(kind string) {
	r.T.Helper()
	data, err := json.Marshal([]any{map[string]any{"targets": r.listen[kind]}})
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, "new"), data, 0o600)
	}
	if err == nil {
		err = os.Rename(filepath.Join(r.dir, "new"), filepath.Join(r.dir, kind+".json"))
	}
	servers.NoError(r.T, err)
}

// The parts of the rules that are times.
var (
	minutes = regexp.MustCompile(`(for: |\[)(\d+)m\b`)
	hours   = regexp.MustCompile(`\[(\d+)h\]`)
	seconds = regexp.MustCompile(`\* 60\b`)
)

// quickened returns the rules as shipped, with a minute for each hour and a second for each
// minute. The objectives span days: promtool alone tests them.
func quickened(t *testing.T) string {
	t.Helper()
	rules, _, found := strings.Cut(document(t, "../deploy/prometheus/rules.yml"), "  - name: triprize-objectives\n")
	if !found {
		t.Fatal("the objectives are not where they were")
	}
	return seconds.ReplaceAllString(hours.ReplaceAllString(minutes.ReplaceAllString(rules, "${1}${2}s"), "[${1}m]"), "* 1")
}

func (r *rehearsal) startPrometheus() {
	r.T.Helper()
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms}\nrule_files: [rules.yml]\nscrape_configs:\n"
	for kind := range r.listen {
		config += fmt.Sprintf("  - {job_name: triprize-%[1]s, file_sd_configs: [{files: [%[1]s.json], refresh_interval: 1s}]}\n", kind)
		r.target(kind)
	}
	for name, text := range map[string]string{"prometheus.yml": config, "rules.yml": quickened(r.T)} {
		servers.NoError(r.T, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600))
	}
	address, err := devstack.FreeAddress()
	servers.NoError(r.T, err)
	r.prometheus = "http://" + address
	child := &devstack.Child{Name: "prometheus", Logger: servers.Logger(r.T), Command: func() *exec.Cmd {
		cmd := exec.Command("prometheus", "--config.file="+filepath.Join(r.dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(r.dir, "data"),
			"--web.listen-address="+address, "--log.level=error")
		cmd.SysProcAttr = r.Command("api", nil).SysProcAttr // it ends with the test, however that ends
		return cmd
	}}
	if err := child.Start(); err != nil {
		r.T.Fatalf("%v (tools/deps.sh prometheus installs it)", err)
	}
	r.T.Cleanup(func() { _ = child.Stop(syscall.SIGTERM, time.Minute) })
	servers.Eventually(r.T, "Prometheus reaches every process", func() bool {
		return r.value(`count(up{job=~"triprize-.*"} == 1)`) == 3
	})
}

// ask asks the API of Prometheus.
func (r *rehearsal) ask(path string, query url.Values, into any) bool {
	response, err := http.Get(r.prometheus + path + "?" + query.Encode()) //nolint:noctx // loopback
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	return json.NewDecoder(response.Body).Decode(&struct{ Data any }{into}) == nil && response.StatusCode == http.StatusOK
}

// values returns the values of an expression, now, without those that are no number.
func (r *rehearsal) values(expression string) (values []float64) {
	var data struct {
		Result []struct{ Value [2]any }
	}
	r.ask("/api/v1/query", url.Values{"query": {expression}}, &data)
	for _, one := range data.Result {
		var value float64
		if _, err := fmt.Sscan(fmt.Sprint(one.Value[1]), &value); err == nil && value == value { //nolint:gocritic // not NaN
			values = append(values, value)
		}
	}
	return values
}

// value returns the only value of an expression, or -1.
func (r *rehearsal) value(expression string) float64 {
	if all := r.values(expression); len(all) == 1 {
		return all[0]
	}
	return -1
}

// fires tells whether an alert fires, with a text among its labels.
func (r *rehearsal) fires(alert string) (firing, known bool) {
	name, label, _ := strings.Cut(alert, " ")
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	known = r.ask("/api/v1/alerts", nil, &data)
	for _, one := range data.Alerts {
		if one.Labels["alertname"] == name && one.State == "firing" && (label == "" || slices.Contains(slices.Collect(maps.Values(one.Labels)), label)) {
			return true, known
		}
	}
	return false, known
}

// provoke provokes a fault, hears the alerts ("Name" or "Name value-of-a-label"), looks as their runbooks say, takes the
// way out, and waits until they have ended. The log says how long each took.
func (r *rehearsal) provoke(fault, wayOut func(), alerts ...string) {
	r.T.Helper()
	for _, alert := range alerts {
		servers.Eventually(r.T, alert+" is silent before its fault", func() bool { firing, known := r.fires(alert); return known && !firing })
	}
	heard, began := make(map[string]time.Duration), time.Now()
	fault()
	servers.Eventually(r.T, fmt.Sprint("these fire: ", alerts), func() bool {
		for _, alert := range alerts {
			if firing, _ := r.fires(alert); firing && heard[alert] == 0 {
				heard[alert] = time.Since(began)
			}
		}
		return len(heard) == len(alerts)
	})
	for _, alert := range alerts {
		r.look(alert)
	}
	mended := time.Now()
	wayOut()
	for _, alert := range alerts {
		servers.Eventually(r.T, alert+" has ended", func() bool { firing, known := r.fires(alert); return known && !firing })
		r.T.Logf("%s: heard after %d ms; over %d ms after its way out", alert, heard[alert].Milliseconds(), time.Since(mended).Milliseconds())
	}
}

// look runs the lines of a runbook under "Check".
func (r *rehearsal) look(alert string) {
	r.T.Helper()
	name, _, _ := strings.Cut(alert, " ")
	_, section, found := strings.Cut(runbooks(r.T), "\n## "+name+"\n")
	_, script, ok := strings.Cut(section, "```sh\n")
	script, _, _ = strings.Cut(script, "```")
	if !found || !ok {
		r.T.Fatalf("%s has no lines to look with", alert)
	}
	cmd := exec.Command("sh", "-u", "-c", script)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(triprize(r.T))+":"+os.Getenv("PATH"), "TRIPRIZE_API="+r.URLs[0], "TRIPRIZE_KEY="+r.Operator,
		"METRICS="+strings.TrimSuffix(r.MetricsURL(0), "/metrics"), "TRIPRIZE_POSTGRES_URL="+r.Settings.Postgres.URL, "TRIPRIZE_REDIS_URL="+r.Settings.Redis.URL)
	out, _ := cmd.CombinedOutput() // a server may be away
	for _, wrong := range []string{"not found", "ERROR:", "unknown command", "Usage", "rror: unknown"} {
		if strings.Contains(string(out), wrong) {
			r.T.Errorf("%s: the runbook's lines say %q:\n%s\n%s", alert, wrong, script, out)
		}
	}
}

// audit lets the next turns of the audit begin now, and not after their pauses.
func (r *rehearsal) audit() {
	servers.Exec(r.T, r.DB, `UPDATE audit_walks SET resume_at = clock_timestamp()`)
}

// signal sends a signal to processes.
func signal(t *testing.T, s syscall.Signal, children ...*devstack.Child) {
	t.Helper()
	for _, c := range children {
		servers.NoError(t, c.Signal(s))
	}
}

func stopChild(t *testing.T, c *devstack.Child) {
	t.Helper()
	servers.NoError(t, c.Stop(terminate, time.Minute))
}

func startChild(t *testing.T, c *devstack.Child) {
	t.Helper()
	servers.NoError(t, c.Start())
}

// Processes and servers are frozen, stopped and started again.
func TestTheAlertsOfProcessesAndServersAreHeard(t *testing.T) {
	t.Parallel()
	r := rehearse(t, fleet.Options{Private: true, Env: []string{"TRIPRIZE_ACCEPT_LONGEST_WAIT=5s"}})
	id, worker, scheduler, api := r.Campaign(6), r.Workers[0], r.Schedulers[0], r.APIs[0]
	r.provoke(func() {
		signal(t, syscall.SIGSTOP, worker)
		servers.Eventually(t, "purchases are refused", func() bool {
			return r.Buy(fleet.Order{Campaign: id, User: "mina"}).Status == http.StatusServiceUnavailable
		})
	}, func() { signal(t, syscall.SIGCONT, worker) },
		"TriprizeNoWorker", "TriprizeWorkerSilent", "TriprizeOverloaded", "TriprizeJobsStuck purchase", "TriprizeProcessDown")
	memory := func(most string) {
		servers.NoError(t, r.Redis.ConfigSet(t.Context(), "maxmemory", most).Err())
	}
	r.provoke(func() {
		bytes, err := strconv.Atoi(r.Redis.InfoMap(t.Context(), "memory").Item("Memory", "used_memory"))
		servers.NoError(t, err)
		memory(strconv.Itoa(bytes * 11 / 10))
	}, func() { memory("1gb") }, "TriprizeRedisMemory")
	r.provoke(func() { signal(t, syscall.SIGSTOP, r.Stack.Redis.Child) }, func() { signal(t, syscall.SIGCONT, r.Stack.Redis.Child) }, "TriprizeRedisAway")
	r.provoke(func() { memory("1") }, func() { // it answers, and no process can announce itself
		for _, wrong := range []string{"TriprizeNoWorker", "TriprizeNoScheduler", "TriprizeWorkerSilent"} {
			if firing, _ := r.fires(wrong); firing {
				t.Errorf("with a Redis that is full %s fires", wrong)
			}
		}
		memory("0")
	}, "TriprizeRedisAway")
	r.provoke(func() { signal(t, syscall.SIGSTOP, api) }, func() { signal(t, syscall.SIGCONT, api) }, "TriprizeNoAPI")
	buying, end := context.WithCancel(t.Context())
	var buyers sync.WaitGroup
	r.provoke(func() {
		readOnly(r.System, "on")
		buyers.Go(func() {
			for buying.Err() == nil {
				r.Buy(fleet.Order{Campaign: id, User: "otto", Key: "again"})
				time.Sleep(100 * time.Millisecond)
			}
		})
	}, func() { readOnly(r.System, "off") }, "TriprizeWritesFailing")
	end()
	buyers.Wait()
	r.provoke(func() {
		servers.NoError(t, r.Stack.Postgres.Stop())
	}, func() { startChild(t, r.Stack.Postgres.Child) }, "TriprizePostgresAway")
	r.audit()
	r.provoke(func() { stopChild(t, scheduler) }, func() { r.audit(); startChild(t, scheduler) }, "TriprizeNoScheduler", "TriprizeAuditNotLooking")
	r.provoke(func() { signal(t, syscall.SIGSTOP, api, worker, scheduler) }, func() { signal(t, syscall.SIGCONT, api, worker, scheduler) }, "TriprizeNothingScraped")
}

// Commits wait for a standby that is away, and then for none.
func TestTheAlertsOfTheStandbyAreHeard(t *testing.T) {
	t.Parallel()
	r := rehearse(t, fleet.Options{Private: true, Standby: true})
	servers.Exec(t, r.DB, `GRANT pg_read_all_stats TO triprize_app`)
	standby := servers.Value[string](t, r.DB, `SHOW synchronous_standby_names`)
	r.provoke(func() { servers.NoError(t, r.Stack.Standby.Stop()) }, func() { startChild(t, r.Stack.Standby.Child) }, "TriprizeStandbyAway")
	r.provoke(func() { servers.NameStandby(t, r.DB, "") }, func() { servers.NameStandby(t, r.DB, standby) }, "TriprizeReplicationAsynchronous")
}

// A Sentinel is frozen. Its primary goes on.
func TestTheAlertOfTheStandbysOfRedisIsHeard(t *testing.T) {
	t.Parallel()
	r := rehearse(t, fleet.Options{Private: true, Redis: devstack.RedisSentinel})
	kinds, err := r.Settings.Redis.Servers()
	servers.NoError(t, err)
	sentinel := redis.NewClient(&redis.Options{Addr: kinds.Sentinel.SentinelAddrs[1], Username: kinds.Sentinel.SentinelUsername, Password: kinds.Sentinel.SentinelPassword})
	pid, err := strconv.Atoi(sentinel.InfoMap(t.Context(), "server").Item("Server", "process_id"))
	servers.NoError(t, errors.Join(err, sentinel.Close()))
	r.provoke(func() { servers.NoError(t, syscall.Kill(pid, syscall.SIGSTOP)) }, func() { servers.NoError(t, syscall.Kill(pid, syscall.SIGCONT)) }, "TriprizeRedisStandbyAway")
}

// Rows stay locked, connections run out, and jobs end their workers.
func TestTheAlertsOfWorkThatDoesNotGoOnAreHeard(t *testing.T) {
	t.Parallel()
	r := rehearse(t, fleet.Options{Private: true, Restart: 200 * time.Millisecond,
		Env: []string{"TRIPRIZE_POSTGRES_MAX_CONNECTIONS=8", "TRIPRIZE_WORKER_MAX_DELIVERIES=2", "TRIPRIZE_TEST_FAILPOINTS=sale.commit@poison=kill"}})
	id, other := r.Campaign(20), r.Campaign(20)
	r.provoke(func() { r.Buy(fleet.Order{Campaign: other, User: "poison"}) }, func() {}, "TriprizeJobsGivenUp")

	r.provoke(func() {
		for range 3 { // one that dies before its first heartbeat is not counted
			servers.Eventually(t, "the worker is known", func() bool {
				fleet, err := queue.ReadFleet(t.Context(), r.Redis, r.Settings.Redis.Namespace)
				return err == nil && slices.ContainsFunc(fleet.Processes, func(p queue.Process) bool {
					return p.Role == queue.RoleWorker && strings.Contains(p.ID, fmt.Sprintf("/%d/", r.Workers[0].PID()))
				})
			})
			r.Workers[0].Kill()
		}
	}, func() {}, "TriprizeWorkersCrash")

	unlock, holding := fixture.LockCampaign(t, r.DB, id), sync.WaitGroup{}
	r.provoke(func() {
		r.Buy(fleet.Order{Campaign: id, User: "mina"})
		for range 8 {
			holding.Go(func() {
				r.Hold(fleet.HoldOrder{Campaign: id, User: uuid.NewString(), Quantity: 1})
			})
		}
	}, unlock, "TriprizeCampaignLocked", "TriprizeLockTimeouts")
	holding.Wait()

	wallet := r.Wallet("mina", 1000)
	tx, err := r.DB.Begin(t.Context())
	servers.NoError(t, err)
	busy, enough := sync.WaitGroup{}, make(chan struct{})
	r.provoke(func() {
		servers.Exec(t, tx, `LOCK TABLE jobs, wallets IN ACCESS EXCLUSIVE MODE`)
		for range 20 { // each share of the connections is taken, and what needs none of these shares waits
			for _, ask := range []func(){
				func() { r.Read(wallet) },
				func() { r.Hold(fleet.HoldOrder{Campaign: other, User: uuid.NewString(), Quantity: 1}) },
				func() { r.Execute(wallet+"/credit", fleet.Fields{"amount": 1}) },
				func() { r.Buy(fleet.Order{Campaign: other, User: uuid.NewString()}) },
			} {
				busy.Go(func() {
					for {
						select {
						case <-enough:
							return
						default:
							ask()
						}
					}
				})
			}
		}
	}, func() { close(enough); _ = tx.Rollback(t.Context()) }, "TriprizePoolExhausted")
	busy.Wait()
	r.provoke(func() { deadlock(r, id) }, func() { servers.Exec(t, r.DB, `SELECT pg_stat_reset()`) }, "TriprizeDeadlocks purchase")
}

// deadlock locks in the wrong order, as by hand in psql: a worker has the campaign and waits for a
// table, and psql has the table and waits for the campaign. The worker's wait is looked at first.
func deadlock(r *rehearsal, id uuid.UUID) {
	servers.Exec(r.T, r.DB, `ALTER SYSTEM SET deadlock_timeout = '60ms'`) // a worker waits for 100 ms
	servers.Exec(r.T, r.DB, `SELECT pg_reload_conf()`)
	for range 20 {
		r.Buy(fleet.Order{Campaign: id, User: "mina"})
		servers.Exec(r.T, r.DB, `DO $$ BEGIN
			SET LOCAL deadlock_timeout = '10s';
			LOCK TABLE purchase_items IN SHARE MODE;
			FOR n IN 1..2000 LOOP
				EXIT WHEN EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'purchase_items'::regclass);
				PERFORM pg_sleep(0.002);
			END LOOP;
			PERFORM FROM campaigns WHERE id = '`+id.String()+`' FOR NO KEY UPDATE;
		END $$`)
		for range 150 { // an idle session sends its statistics within ten seconds
			if time.Sleep(100 * time.Millisecond); r.Deadlocks() > 0 {
				return
			}
		}
	}
	r.T.Fatal("no worker was in a deadlock")
}

// A worker is frozen in the middle of its work, and another one gets all of it. Later one dies.
func TestTheAlertOfWorkThatNobodyHoldsIsHeard(t *testing.T) {
	t.Parallel()
	r := rehearse(t, fleet.Options{}, "TRIPRIZE_TEST_FAILPOINTS=sale.commit@last=stop")
	id, first, scheduler := r.Campaign(20), r.Workers[0], r.Schedulers[0]
	r.provoke(func() {
		r.Crowd(60, func(int) fleet.Order { return fleet.Order{Campaign: id, User: "last"} })
		servers.Eventually(t, "the worker has stopped in the middle of its work", func() bool { return isStopped(first) })
		stopChild(t, scheduler)
		r.worker()
		servers.Eventually(t, "the other worker is scraped", func() bool { return r.value(`count(up{job="triprize-worker"} == 1)`) == 1 })
		startChild(t, scheduler)
	}, func() { first.Kill() }, "TriprizeTasksWithoutLease purchase")
}

// Relays that are silent, a wrong key, a lock that nobody frees; and rows that somebody changed.
func TestTheAlertsOfDrawsAndTheAuditAreHeard(t *testing.T) {
	t.Parallel()
	r := rehearse(t, fleet.Options{Beacon: 2})
	relays := func(away string) {
		for _, relay := range r.Beacon.Relays() {
			servers.NoError(t, relay.SetFaults(drandsim.Faults{Away: away}))
		}
	}
	waiting, drawn := drawable(r.System, true), drawable(r.System, false)
	fixture.SellOut(t, r.DB, drawn)
	r.AwaitDrawn(drawn)
	r.provoke(func() { relays(drandsim.AwayError); fixture.SellOut(t, r.DB, waiting) }, func() { relays("") }, "TriprizeDrawStuck")
	r.AwaitDrawn(waiting)
	r.broken(drawn)

	right := r.Workers[0]
	stopChild(t, right)
	wrong := r.worker("TRIPRIZE_DRAW_SECRET_KEY=" + keyring.NewKey())
	var failing []uuid.UUID // so many that more than four come again in ten seconds, whatever their pauses are
	for range 24 {
		failing = append(failing, r.Campaign(1))
	}
	r.provoke(func() {
		for _, id := range failing {
			fixture.SellOut(t, r.DB, id)
		}
	}, func() { stopChild(t, wrong); startChild(t, right) }, "TriprizeDrawKeyWrong", "TriprizeDrawFailing", "TriprizeRetries")
	r.AwaitDrawn(failing...)

	held, scheduler := r.Campaign(3), r.Schedulers[0]
	stopChild(t, right)
	frozen := r.worker("TRIPRIZE_TEST_FAILPOINTS=draw.record@" + held.String() + "=stop")
	r.provoke(func() {
		stopChild(t, scheduler)
		r.Buy(fleet.Order{Campaign: held, User: "mina", Quantity: 6, Wait: true})
		servers.Eventually(t, "the worker has stopped with the lock", func() bool { return isStopped(frozen) })
	}, func() { startChild(t, scheduler); startChild(t, right) }, "TriprizeExecutionLockHeld")
	r.AwaitDrawn(held)
	signal(t, syscall.SIGCONT, frozen)
}

// broken changes rows of a drawn campaign behind the triggers, and repairs them.
func (r *rehearsal) broken(campaign uuid.UUID) {
	change := func(sql string) func() {
		return func() {
			tx, err := r.DB.Begin(r.T.Context())
			servers.NoError(r.T, err)
			servers.Exec(r.T, tx, `SET LOCAL session_replication_role = replica`)
			servers.Exec(r.T, tx, sql, campaign)
			servers.NoError(r.T, tx.Commit(r.T.Context()))
			r.audit()
		}
	}
	r.provoke(change(`UPDATE campaigns SET positions_sold = positions_sold - 1 WHERE id = $1`), change(`UPDATE campaigns SET positions_sold = positions_sold + 1 WHERE id = $1`),
		"TriprizeAuditViolation")
	r.provoke(change(`INSERT INTO purchase_items SELECT (SELECT max(id::text)::uuid FROM purchases WHERE campaign_id = $1), layer, col, price
			FROM purchase_items WHERE purchase_id = (SELECT min(id::text)::uuid FROM purchases WHERE campaign_id = $1)`),
		change(`DELETE FROM purchase_items i WHERE purchase_id = (SELECT max(id::text)::uuid FROM purchases WHERE campaign_id = $1) AND EXISTS (
			SELECT FROM purchase_items WHERE purchase_id = (SELECT min(id::text)::uuid FROM purchases WHERE campaign_id = $1) AND (layer, col) = (i.layer, i.col))`),
		"TriprizeOversold")
	r.provoke(change(`UPDATE draws SET winners = winners || winners WHERE campaign_id = $1`),
		change(`UPDATE draws SET winners = (SELECT jsonb_agg(w ORDER BY n) FROM jsonb_array_elements(winners) WITH ORDINALITY AS x (w, n) WHERE n <= jsonb_array_length(winners) / 2) WHERE campaign_id = $1`),
		"TriprizeDrawnTwice")
}

// Payments, refunds and books that need a person, and apps that hear of nothing. At the beginning
// all is well, and every panel of the dashboards has data.
func TestTheAlertsOfMoneyAndWebhooksAreHeard(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	t.Cleanup(gone.Close)
	r := rehearse(t, fleet.Options{Beacon: 1, Env: []string{"TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8", "TRIPRIZE_CONSOLE_SIGN_IN=both",
		"TRIPRIZE_CONSOLE_OIDC_ISSUER=http://127.0.0.1:1", "TRIPRIZE_CONSOLE_OIDC_CLIENT_ID=triprize", "TRIPRIZE_CONSOLE_OIDC_ROLES_OPERATOR=ops"},
		Sandbox: &stripesim.Settings{Later: 50 * time.Millisecond, Dir: filepath.Join(t.TempDir(), "sandbox")}})
	id := r.Campaign(10)
	refused := buyPaid(r.System, id, "alice", "pm_card_refundFail")
	paid := buyPaid(r.System, id, "bob", "pm_card_visa")
	r.panels()

	r.provoke(func() { r.AwaitJob(0, r.Cancel(r.App, refused, uuid.NewString(), "").ID) }, func() {
		back := viewPurchase(r.System, refused).Refund()
		r.act("/v1/refunds/"+back.ID+"/resolve", fleet.Fields{"amount": back.Amount, "reason": "by bank transfer"})
	}, "TriprizeRefundsWaitForOperator")
	r.provoke(func() {
		servers.Exec(t, r.DB, `INSERT INTO payment_discrepancies (id, kind, object_id, here_amount, here_currency, detail) VALUES (gen_random_uuid(), 'unknown-there', 'pi_lost', 500, 'JPY', 'settled here')`)
	}, func() {
		r.act("/v1/payment-discrepancies/"+servers.Value[string](t, r.DB, `SELECT id::text FROM payment_discrepancies`)+"/explain", fleet.Fields{"version": 0, "reason": "a rehearsal"})
	}, "TriprizePaymentDiscrepancies unknown-there")

	key := func(k stripesim.Key) { servers.NoError(t, r.Sandbox.SetKey(k)) }
	r.provoke(func() {
		key(stripesim.Key{Expired: true})
		buyByCard(r.System, id, "carol", "pm_card_visa")
	}, func() {
		key(stripesim.Key{})
		r.act("/v1/payments/"+servers.Value[string](t, r.DB, `SELECT purchase_id::text FROM payments WHERE waiting_for = 'operator'`)+"/retry", nil)
	}, "TriprizePaymentsWaitForOperator", "TriprizeStripePermissionMissing", "TriprizeStripeKeyRefused")
	r.provoke(func() {
		key(stripesim.Key{Lacks: []string{"charge_write"}})
		r.AwaitJob(0, r.Cancel(r.App, paid, uuid.NewString(), "").ID)
		servers.Eventually(t, "the refund waits for an operator", func() bool {
			return viewPurchase(r.System, paid).Refund().ID != "" && listed(r.System, "/v1/refunds", paid.String())
		})
		back := viewPurchase(r.System, paid).Refund()
		r.act("/v1/refunds/"+back.ID+"/resolve", fleet.Fields{"amount": back.Amount, "reason": "by bank transfer"})
		key(stripesim.Key{})
		refundByHand(r.System, paid)
	}, func() {}, "TriprizeRefundPaidTwice")
	r.provoke(func() {
		a, err := http.PostForm(r.URLs[0]+"/console/sign-in", url.Values{"/key": {r.Operator}, "/operator": {"Mina"}}) //nolint:noctx // on this machine
		servers.NoError(t, err)
		servers.NoError(t, a.Body.Close())
	}, func() {}, "TriprizeSignInByKey")
	var other *devstack.Child
	r.provoke(func() {
		other = r.RunAPI("TRIPRIZE_APPROVALS_REQUIRED=draw.void", "TRIPRIZE_CONSOLE_OIDC_ROLES_APPROVER=finance")
		r.listen["api"] = append(r.listen["api"], metricsAddress(r.System, len(r.URLs)-1))
		r.target("api")
	}, func() {
		other.Kill()
		r.URLs, r.listen["api"] = r.URLs[:1], r.listen["api"][:1]
		r.target("api")
	}, "TriprizeApprovalsDiffer")

	r.provoke(func() {
		r.Sandbox.Stop()
		buyByCard(r.System, id, "gerd", "pm_card_visa")
	}, r.Sandbox.Start, "TriprizeSweepStale missed-events", "TriprizeProviderAway")
	r.provoke(func() {
		a := askProvider(r.Sandbox.URL, fleet.SandboxKey, http.MethodPost, "/v1/payment_intents", url.Values{"amount": {"500"}, "currency": {"jpy"}, "payment_method": {"pm_card_visa"},
			"payment_method_types[]": {"card"}, "confirm": {"true"}, "metadata[purchase_id]": {refused.String()}})
		fleet.Want(t, http.StatusOK, a)
	}, func() {}, "TriprizeProviderContradicts")

	endpoint := fleet.As[struct{ ID uuid.UUID }](t, r.Execute("/v1/webhook-endpoints", fleet.Fields{"url": gone.URL, "events": []string{"purchase.*"}})).ID
	r.provoke(func() { r.Buy(fleet.Order{Campaign: id, User: "dora", Wait: true}) },
		func() { r.Do(0, r.App, http.MethodDelete, "/v1/webhook-endpoints/"+endpoint.String(), nil, nil) }, "TriprizeWebhookEndpointDisabled")
	failing := fleet.As[struct{ ID uuid.UUID }](t, r.Execute("/v1/webhook-endpoints", fleet.Fields{"url": gone.URL, "events": []string{"hold.*"}})).ID
	r.provoke(func() {
		servers.Exec(t, r.DB, `UPDATE webhook_endpoints SET failing_since = clock_timestamp() - interval '1 hour', failures = 1 WHERE id = $1`, failing)
	}, func() { r.Do(0, r.App, http.MethodDelete, "/v1/webhook-endpoints/"+failing.String(), nil, nil) }, "TriprizeWebhookEndpointFailing")
	paused := "asynq:{" + r.Settings.Redis.Namespace + "-webhook}:paused"
	r.Execute("/v1/webhook-endpoints", fleet.Fields{"url": gone.URL, "events": []string{"purchase.*"}})
	r.provoke(func() {
		r.Redis.Set(t.Context(), paused, 1, 0)
		r.Buy(fleet.Order{Campaign: id, User: "eve", Wait: true})
	}, func() { r.Redis.Del(t.Context(), paused) }, "TriprizeWebhooksLate")

	// Cards are switched off with a purchase under way.
	worker, scheduler := r.Workers[0], r.Schedulers[0]
	stopChild(t, worker)
	stopChild(t, scheduler)
	r.listen["worker"], r.listen["scheduler"] = nil, nil
	const off = "TRIPRIZE_PAYMENTS_STRIPE_KEY="
	without := r.worker(off)
	r.RunScheduler(off, "TRIPRIZE_SCHEDULER_LISTEN="+r.address("scheduler"))
	r.provoke(func() {
		buyByCard(r.System, id, "frida", "pm_card_visa")
		stopChild(t, r.APIs[0])
	}, func() {
		startChild(t, r.APIs[0])
		stopChild(t, without)
		stopChild(t, r.Schedulers[1])
		r.worker()
		r.RunScheduler("TRIPRIZE_SCHEDULER_LISTEN=" + r.address("scheduler"))
	}, "TriprizePaymentsWaitForKey")
}

// act sends a command of an operator, which has to succeed: at once, or when the worker that has its object is done.
func (r *rehearsal) act(path string, body any) {
	r.T.Helper()
	servers.Eventually(r.T, "no worker has the object of "+path, func() bool {
		a := r.Post(path, body)
		if a.Status != http.StatusOK && !fleet.Contains(a.Body, "retry in a moment") {
			r.T.Fatalf("%s: %v %s", path, a, a.Body)
		}
		return a.Status == http.StatusOK
	})
}

// panels does a little of everything, and wants data in every panel of every dashboard.
func (r *rehearsal) panels() {
	files, err := filepath.Glob("../deploy/grafana/*.json")
	if err != nil || len(files) == 0 {
		r.T.Fatal(files, err)
	}
	var expressions []string
	for _, file := range files {
		var dashboard struct {
			Panels []struct{ Targets []struct{ Expr string } }
		}
		if err := json.Unmarshal([]byte(document(r.T, file)), &dashboard); err != nil {
			r.T.Fatal(file, err)
		}
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				expressions = append(expressions, target.Expr)
			}
		}
	}
	r.everything()
	for _, expression := range expressions {
		shown := strings.ReplaceAll(expression, "$__rate_interval", "5m")
		servers.Eventually(r.T, "there is data for "+shown, func() bool { return len(r.values(shown)) > 0 })
	}
}

// everything does a little of everything that a panel shows.
func (r *rehearsal) everything() {
	closed := r.Campaign(3)
	fixture.SellOut(r.T, r.DB, closed)
	r.AwaitDrawn(closed)
	r.Buy(fleet.Order{Campaign: closed, User: "late"})
	open, held := r.Campaign(10), r.Campaign(5)
	wallet := r.Wallet("gina", 100000)
	for column := range 5 { // a counter that begins with its first event has no rate before its second sample
		r.MustHold(fleet.HoldOrder{Campaign: held, User: uuid.NewString(), At: []shape.Position{{Layer: 5, Column: column + 1}}, TTL: 1})
		r.Execute(wallet+"/credit", fleet.Fields{"amount": 1})
		order := fleet.Order{Campaign: open, User: "gina", Key: uuid.NewString(), ByWallet: true, Wait: true}
		r.Buy(order)
		r.Buy(order)
	}
	r.AwaitJob(0, r.Cancel(r.App, buyPaid(r.System, open, "hanna", "pm_card_visa"), uuid.NewString(), "").ID)
}
