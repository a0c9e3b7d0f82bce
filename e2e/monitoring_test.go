package e2e

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"triprize/devkit/devstack"
	"triprize/internal/domain/shape"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

const (
	monitoring  = "../docs/monitoring.md"
	metricsHead = "<!-- The rest of this page is generated: go test ./e2e -run EveryMetric -update -->\n"
)

var updateMonitoring = flag.Bool("update", false, "write the list of the metrics")

// monitored is a fleet of which every process is scraped.
type monitored struct {
	*fleet.System
	families map[string]*family
	values   map[string][]float64 // of each series that was seen
	looks    int
}

// family is all series of a name.
type family struct {
	kind, help string
	labels     map[string]bool
	toldBy     map[string]bool
}

// monitoredProcesses are in the order of the URLs.
var monitoredProcesses = []string{"api", "worker", "scheduler"}

// startMonitored starts a fleet with everything that can be configured and counted.
func startMonitored(t *testing.T) *monitored {
	t.Helper()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Beacon: 1, Sandbox: &stripesim.Settings{}})
	listen := func() string {
		address, err := devstack.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		s.URLs = append(s.URLs, "http://"+address)
		return address
	}
	s.RunWorker("TRIPRIZE_WORKER_LISTEN=" + listen())
	s.RunScheduler("TRIPRIZE_SCHEDULER_LISTEN="+listen(), "TRIPRIZE_SWEEPS_EXPIRED_HOLDS_INTERVAL=1h")
	m := &monitored{s, make(map[string]*family), make(map[string][]float64), 0}
	for n := range monitoredProcesses {
		if err := devstack.AwaitHTTP(t.Context(), s.URLs[n]+"/readyz"); err != nil {
			t.Fatal(err)
		}
		m.await(n, "triprize_workers_alive", 1) // it has looked at the whole system
	}
	m.await(2, `triprize_scheduler_leading`, 1)
	return m
}

// await waits until a series of a process has a value, or more.
func (m *monitored) await(process int, series string, least float64) {
	m.T.Helper()
	servers.Eventually(m.T, fmt.Sprint(series, " is ", least), func() bool {
		value := m.Metric(process, series)
		if value >= least && m.looks > 0 { // it may be over at the next look
			m.note(series, value)
		}
		return value >= least
	})
}

// note keeps a value of a series. One that was not there at the first look was 0.
func (m *monitored) note(series string, value float64) {
	if m.values[series] == nil && m.looks > 0 {
		m.values[series] = []float64{0}
	}
	m.values[series] = append(m.values[series], value)
}

var (
	metaLine   = regexp.MustCompile(`^# (HELP|TYPE) (triprize_\w+) (.*)`)
	seriesLine = regexp.MustCompile(`^(triprize_\w+?)(_bucket|_sum|_count)?(\{(.*)\})? (\S+)$`)
	labelText  = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// look scrapes all processes. A series is summed up over them; of gauges a test wants changes only.
func (m *monitored) look() {
	m.T.Helper()
	now := make(map[string]float64)
	for n, process := range monitoredProcesses {
		for line := range strings.Lines(m.Metrics(n)) {
			line = strings.TrimSpace(line)
			if meta := metaLine.FindStringSubmatch(line); meta != nil {
				m.describe(process, meta[1], meta[2], meta[3])
			} else if found := seriesLine.FindStringSubmatch(line); found != nil {
				m.count(now, found)
			}
		}
	}
	for series, value := range now {
		m.note(series, value)
	}
	m.looks++
}

func (m *monitored) describe(process, what, name, text string) {
	f := m.families[name]
	if f == nil {
		f = &family{labels: make(map[string]bool), toldBy: make(map[string]bool)}
		m.families[name] = f
	}
	f.toldBy[process] = true
	if what == "TYPE" {
		f.kind = text
	} else {
		f.help = text
	}
}

// count adds a line to the values of its series. A histogram is its count.
func (m *monitored) count(now map[string]float64, line []string) {
	name, part := line[1], line[2]
	f := m.families[name]
	if f == nil { // its name ends like a part of a histogram
		name, part = name+part, ""
		f = m.families[name]
	}
	for _, label := range labelText.FindAllStringSubmatch(line[4], -1) {
		if label[1] != "le" {
			f.labels[label[1]] = true
		}
	}
	if value, err := strconv.ParseFloat(line[5], 64); err == nil && (part == "" || part == "_count") {
		now[name+line[3]] += value
	}
}

// find returns the values of all series of a name that have these labels.
func (m *monitored) find(want string) (found [][]float64) {
	name, selector, _ := strings.Cut(want, "{")
	for series, values := range m.values {
		if of, labels, _ := strings.Cut(series, "{"); of == name && !slices.ContainsFunc(labelText.FindAllString(selector, -1), func(label string) bool { return !strings.Contains(labels, label) }) {
			found = append(found, values)
		}
	}
	return found
}

// withoutRule cuts from the help of a gauge of the whole system what its type says on the page.
var withoutRule = strings.NewReplacer(" Every process reports the same value.", "", " Every worker reports the same value.", "")

// list is the list of all metrics, by the processes that serve them.
func (m *monitored) list() (text string) {
	lines := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(m.families)) {
		f, labels, kind := m.families[name], "", m.families[name].kind
		if len(f.labels) > 0 {
			labels = "{" + strings.Join(slices.Sorted(maps.Keys(f.labels)), ",") + "}"
		}
		if strings.Contains(f.help, " reports the same value") {
			kind = "system " + kind
		}
		if kind = " (" + kind + ")"; strings.HasSuffix(name, "_total") { // a counter, as the page says
			kind = ""
		}
		servedBy := "Every process" // sorts first
		if len(f.toldBy) < len(monitoredProcesses) {
			servedBy = strings.Join(slices.Sorted(maps.Keys(f.toldBy)), ", ")
		}
		lines[servedBy] += fmt.Sprintf("- `%s%s`%s: %s\n", name, labels, kind, withoutRule.Replace(f.help))
	}
	for _, servedBy := range slices.Sorted(maps.Keys(lines)) {
		text += "\n### " + servedBy + "\n\n" + lines[servedBy]
	}
	return text
}

// What the documents ask for moves when it should, and the page lists all that is served.
func TestEveryMetricOfTheMonitoringPageIsServedAndMoves(t *testing.T) {
	t.Parallel()
	m := startMonitored(t)
	m.look()
	m.refuse()
	m.sell()
	m.hold()
	m.contend()
	m.failOnce()
	m.exhaust()
	m.await(2, `triprize_sweep_last_success_timestamp_seconds{sweep="lost-jobs"}`, 1)
	m.look()

	page, err := os.ReadFile(monitoring)
	if err != nil {
		t.Fatal(err)
	}
	prose, list, found := strings.Cut(string(page), metricsHead)
	if !found {
		t.Fatalf("%s has no list", monitoring)
	}
	m.checkMap(prose)
	served := m.list()
	if *updateMonitoring {
		if err := os.WriteFile(monitoring, []byte(prose+metricsHead+served), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if list != served {
		t.Errorf("%s is not what is served; update it. It is:%s", monitoring, served)
	}
}

// mapRow is a line of the map: a figure of the documents, and ours.
var (
	mapRow   = regexp.MustCompile(`(?m)^\| 00\d \| (.*?) \| (.*?) \|`)
	inTicks  = regexp.MustCompile("`(triprize_[^`]*)`")
	mustStay = "stays 0"
)

func (m *monitored) checkMap(prose string) {
	m.T.Helper()
	rows := mapRow.FindAllStringSubmatch(prose, -1)
	if len(rows) < 20 {
		m.T.Errorf("the map has %d rows", len(rows))
	}
	for _, row := range rows {
		ours := inTicks.FindAllStringSubmatch(row[2], -1)
		if len(ours) == 0 && !strings.Contains(row[2], "none: ") {
			m.T.Errorf("%s: neither a metric nor why there is none", row[1])
		}
		for _, one := range ours {
			found := m.find(one[1])
			moved := slices.ContainsFunc(found, func(values []float64) bool { return slices.Max(values) > slices.Min(values) })
			if still := strings.Contains(row[2], mustStay); len(found) == 0 || moved == still {
				m.T.Errorf("%s: %s is served: %t; moves: %t", row[1], one[1], len(found) > 0, moved)
			}
		}
	}
}

// refuse asks for what is refused: a draw too early, a cancellation that comes twice, a repeated request.
func (m *monitored) refuse() {
	id := m.Campaign(3)
	m.wantSucceeded(m.Buy(fleet.Order{Campaign: id, User: "ada", Key: "once", Wait: true}))
	again := m.Buy(fleet.Order{Campaign: id, User: "ada", Key: "once", Wait: true})
	m.wantSucceeded(again)
	servers.Eventually(m.T, "the answer is found in Redis", func() bool {
		m.Buy(fleet.Order{Campaign: id, User: "ada", Key: "once", Wait: true})
		return m.Metric(0, `triprize_idempotency_lookups_total{outcome="hit"}`) > 0
	})
	for _, key := range []string{"first", "second"} {
		m.Cancel(m.App, again.Result.PurchaseID, key, "changed my mind")
	}
	early := m.Do(0, m.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/draw", map[string]string{"Idempotency-Key": "early"}, nil)
	m.AwaitJob(0, early.ID)
	m.Buy(fleet.Order{Campaign: id, User: "bob", Card: "pm_card_chargeDeclined", Wait: true})
}

func (m *monitored) wantSucceeded(a fleet.Answer) {
	m.T.Helper()
	if a.State != "succeeded" {
		m.T.Fatalf("%v %s", a, a.Body)
	}
}

// sell sells a campaign out, with a wallet, and has it drawn.
func (m *monitored) sell() {
	m.Wallet("ada", 10_000)
	id := m.Campaign(2)
	m.wantSucceeded(m.Buy(fleet.Order{Campaign: id, User: "ada", Quantity: 3, ByWallet: true, Wait: true}))
	m.AwaitDrawn(id)
}

// hold lets a purchase take a position whose hold is over, before the sweep.
func (m *monitored) hold() {
	id := m.Campaign(1)
	m.MustHold(fleet.HoldOrder{Campaign: id, User: "ada", At: []shape.Position{{Layer: 1, Column: 1}}, TTL: 1})
	servers.Eventually(m.T, "the hold is over", func() bool {
		return m.Buy(fleet.Order{Campaign: id, User: "bob", Wait: true}).State == "succeeded"
	})
}

// contend keeps a campaign and a wallet locked while somebody wants them.
func (m *monitored) contend() {
	id := m.Campaign(3)
	unlock := fixture.LockCampaign(m.T, m.DB, id)
	waits := m.Buy(fleet.Order{Campaign: id, User: "ada"})
	m.await(1, `triprize_jobs_under_way{kind="purchase"}`, 1)
	m.await(1, `triprize_postgres_lock_timeouts_total{transaction="purchase"}`, 1)
	m.await(0, `triprize_jobs_queued_age_seconds{kind="purchase"}`, 1)
	m.look()
	unlock()
	m.AwaitJob(0, waits.ID)
}

// failOnce lets a worker fail with a draw, whose job is delivered again.
func (m *monitored) failOnce() {
	servers.Exec(m.T, m.DB, `ALTER TABLE draws ADD CONSTRAINT none_now CHECK (false) NOT VALID`)
	id := m.Campaign(1)
	m.wantSucceeded(m.Buy(fleet.Order{Campaign: id, User: "ada", Wait: true}))
	m.await(1, `triprize_job_attempts_total{delivery="again",kind="draw"}`, 1)
	m.await(0, "triprize_campaigns_drawing_age_seconds", 0.001)
	m.look()
	servers.Exec(m.T, m.DB, `ALTER TABLE draws DROP CONSTRAINT none_now`)
	m.AwaitDrawn(id)
}

// exhaust lets three requests of an api want its two connections.
func (m *monitored) exhaust() {
	m.URLs = m.URLs[:len(monitoredProcesses)]
	m.RunAPI("TRIPRIZE_POSTGRES_MAX_CONNECTIONS=2")
	small := len(m.URLs) - 1
	id, wallet := m.Campaign(3), m.Wallet("bob", 1)
	known := m.Buy(fleet.Order{Campaign: id, User: "ada", Wait: true, API: small})
	m.wantSucceeded(known)
	tx, err := m.DB.Begin(m.T.Context())
	if err != nil {
		m.T.Fatal(err)
	}
	servers.Exec(m.T, tx, `LOCK TABLE jobs`)
	done := make(chan []fleet.Answer)
	go func() {
		done <- fleet.AtOnce(3, func(i int) fleet.Answer {
			switch i {
			case 0:
				return m.Buy(fleet.Order{Campaign: id, User: "ada", API: small})
			case 1:
				return m.ExecuteAt(small, wallet+"/credit", fleet.Fields{"amount": 1})
			}
			return m.Do(small, m.App, http.MethodGet, "/v1/jobs/"+known.ID.String(), nil, nil)
		})
	}()
	m.await(small, "triprize_postgres_connections_waiting", 1)
	m.watchAlso(small)
	if err := tx.Rollback(m.T.Context()); err != nil {
		m.T.Error(err)
	}
	for _, a := range <-done {
		if a.Status >= http.StatusBadRequest {
			m.T.Errorf("%v %s", a, a.Body)
		}
	}
}

// watchAlso looks at the processes and at one more, which counts as an api.
func (m *monitored) watchAlso(process int) {
	urls := m.URLs
	m.URLs = append([]string{urls[process]}, urls[1:]...)
	m.look()
	m.URLs = urls
}
