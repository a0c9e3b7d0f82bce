package e2e

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

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
	looks    []map[string]float64 // by series; one that is not there yet is 0
}

// family is all series of a name.
type family struct {
	*dto.MetricFamily
	labels, toldBy map[string]bool
}

// monitoredProcesses are in the order of the URLs.
var monitoredProcesses = []string{"api", "worker", "scheduler"}

// startMonitored starts a fleet with everything that can be configured and counted.
func startMonitored(t *testing.T) *monitored {
	t.Helper()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Beacon: 1, Sandbox: &stripesim.Settings{}})
	listen := func() string {
		address, err := devstack.FreeAddress()
		servers.NoError(t, err)
		s.URLs = append(s.URLs, "http://"+address)
		return address
	}
	s.RunWorker("TRIPRIZE_WORKER_LISTEN=" + listen())
	s.RunScheduler("TRIPRIZE_SCHEDULER_LISTEN="+listen(), "TRIPRIZE_SWEEPS_EXPIRED_HOLDS_INTERVAL=1h")
	m := &monitored{System: s, families: make(map[string]*family)}
	for n := range monitoredProcesses {
		servers.NoError(t, devstack.AwaitHTTP(t.Context(), s.URLs[n]+"/readyz"))
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
		if value >= least && len(m.looks) > 0 { // it may be over at the next look
			m.looks = append(m.looks, map[string]float64{series: value})
		}
		return value >= least
	})
}

// look scrapes all processes. A series is summed up over them; a histogram is its count.
func (m *monitored) look() {
	m.T.Helper()
	now := make(map[string]float64)
	for n, process := range monitoredProcesses {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(m.Metrics(n)))
		servers.NoError(m.T, err)
		for name, served := range families {
			if !strings.HasPrefix(name, "triprize_") {
				continue
			}
			f := m.families[name]
			if f == nil {
				f = &family{served, make(map[string]bool), make(map[string]bool)}
				m.families[name] = f
			}
			f.toldBy[process] = true
			for _, metric := range served.GetMetric() {
				var labels []string
				for _, label := range metric.GetLabel() {
					f.labels[label.GetName()] = true
					labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
				}
				series := name
				if len(labels) > 0 {
					series += "{" + strings.Join(labels, ",") + "}"
				}
				now[series] += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	m.looks = append(m.looks, now)
}

// moves tells whether a series of a name with these labels is served, and whether one has changed.
func (m *monitored) moves(want string) (served, moved bool) {
	name, selector, _ := strings.Cut(strings.TrimSuffix(want, "}"), "{")
	first := make(map[string]float64)
	for i, look := range m.looks {
		for series, value := range look {
			of, labels, _ := strings.Cut(series, "{")
			if of != name || slices.ContainsFunc(strings.Split(selector, ","), func(label string) bool { return !strings.Contains(labels, label) }) {
				continue
			}
			if _, known := first[series]; !known && i == 0 {
				first[series] = value
			}
			served, moved = true, moved || value != first[series]
		}
	}
	return served, moved
}

// withoutRule cuts from the help of a gauge of the whole system what its type says on the page.
var withoutRule = strings.NewReplacer(" Every process reports the same value.", "", " Every process that has it reports the same value.", "")

// list is the list of all metrics, by the processes that serve them.
func (m *monitored) list() (text string) {
	lines := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(m.families)) {
		f, labels, kind := m.families[name], "", strings.ToLower(m.families[name].GetType().String())
		if len(f.labels) > 0 {
			labels = "{" + strings.Join(slices.Sorted(maps.Keys(f.labels)), ",") + "}"
		}
		if strings.Contains(f.GetHelp(), " reports the same value") {
			kind = "system " + kind
		}
		if kind = " (" + kind + ")"; strings.HasSuffix(name, "_total") { // a counter, as the page says
			kind = ""
		}
		servedBy := "Every process" // sorts first
		if len(f.toldBy) < len(monitoredProcesses) {
			servedBy = strings.Join(slices.Sorted(maps.Keys(f.toldBy)), ", ")
		}
		lines[servedBy] += fmt.Sprintf("- `%s%s`%s: %s\n", name, labels, kind, withoutRule.Replace(f.GetHelp()))
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
	servers.NoError(t, err)
	prose, list, found := strings.Cut(string(page), metricsHead)
	if !found {
		t.Fatalf("%s has no list", monitoring)
	}
	m.checkMap(prose)
	served := m.list()
	if *updateMonitoring {
		servers.NoError(t, os.WriteFile(monitoring, []byte(prose+metricsHead+served), 0o644))
	} else if list != served {
		t.Errorf("%s is not what is served; update it. It is:%s", monitoring, served)
	}
}

// mapRow is a line of the map: a figure of the documents, and ours.
var (
	mapRow  = regexp.MustCompile(`(?m)^\| 00\d \| (.*?) \| (.*?) \|`)
	inTicks = regexp.MustCompile("`(triprize_[^`]*)`")
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
			served, moved := m.moves(one[1])
			if still := strings.Contains(row[2], "stays 0"); !served || moved == still {
				m.T.Errorf("%s: %s is served: %t; moves: %t", row[1], one[1], served, moved)
			}
		}
	}
}

// refuse asks for what is refused: a draw too early, a cancellation that comes twice, a repeated request.
func (m *monitored) refuse() {
	id := m.Campaign(3)
	fleet.WantSucceeded(m.T, m.Buy(fleet.Order{Campaign: id, User: "ada", Key: "once", Wait: true}))
	again := m.Buy(fleet.Order{Campaign: id, User: "ada", Key: "once", Wait: true})
	fleet.WantSucceeded(m.T, again)
	for _, key := range []string{"first", "second"} {
		m.Cancel(m.App, again.Result.PurchaseID, key, "changed my mind")
	}
	early := m.Do(0, m.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/draw", map[string]string{"Idempotency-Key": "early"}, nil)
	m.AwaitJob(0, early.ID)
	m.Buy(fleet.Order{Campaign: id, User: "bob", Card: "pm_card_chargeDeclined", Wait: true})
}

// sell sells a campaign out, with a wallet, and has it drawn.
func (m *monitored) sell() {
	m.Wallet("ada", 10_000)
	id := m.Campaign(2)
	fleet.WantSucceeded(m.T, m.Buy(fleet.Order{Campaign: id, User: "ada", Quantity: 3, ByWallet: true, Wait: true}))
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
	fleet.WantSucceeded(m.T, m.Buy(fleet.Order{Campaign: id, User: "ada", Wait: true}))
	m.await(1, `triprize_job_attempts_total{delivery="redelivered",kind="draw"}`, 1)
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
	fleet.WantSucceeded(m.T, known)
	tx, err := m.DB.Begin(m.T.Context())
	servers.NoError(m.T, err)
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
	urls := m.URLs
	m.URLs = append([]string{urls[small]}, urls[1:]...) // the small api for the first
	m.look()
	m.URLs = urls
	if err := tx.Rollback(m.T.Context()); err != nil {
		m.T.Error(err)
	}
	for _, a := range <-done {
		if a.Status >= http.StatusBadRequest {
			m.T.Errorf("%v %s", a, a.Body)
		}
	}
}
