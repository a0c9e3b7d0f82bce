//go:build soak

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
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
	r.listen["api"] = []string{strings.TrimSuffix(strings.TrimPrefix(r.MetricsURL(0), "http://"), "/metrics")}
	r.worker(workerEnv...)
	r.RunScheduler("TRIPRIZE_SCHEDULER_LISTEN=" + r.address("scheduler"))
	r.startPrometheus()
	return r
}

// worker starts a worker that Prometheus finds.
func (r *rehearsal) worker(env ...string) *devstack.Child {
	return r.RunWorker(append(env, "TRIPRIZE_WORKER_LISTEN="+r.address("worker"))...)
}

// address returns a free address, at which Prometheus looks for a process of a kind.
func (r *rehearsal) address(kind string) string {
	r.T.Helper()
	address, err := devstack.FreeAddress()
	if err != nil {
		r.T.Fatal(err)
	}
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
	if err != nil {
		r.T.Fatal(err)
	}
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
	rules, _, found := strings.Cut(document(t, "../deploy/prometheus/rules.yml"), "  # Two objectives.")
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
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
			r.T.Fatal(err)
		}
	}
	address, err := devstack.FreeAddress()
	if err != nil {
		r.T.Fatal(err)
	}
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
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(triprize(r.T))+":"+os.Getenv("PATH"), "API="+r.URLs[0], "KEY="+r.Operator,
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
		if err := c.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
}

func stopChild(t *testing.T, c *devstack.Child) {
	t.Helper()
	if err := c.Stop(terminate, time.Minute); err != nil {
		t.Fatal(err)
	}
}

func startChild(t *testing.T, c *devstack.Child) {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
}
