package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/config"
	"triprize/internal/platform/telemetry"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// started is the health of a process that waits for nothing any more.
func started(checks ...telemetry.Check) *telemetry.Health {
	h := telemetry.NewHealth(checks...)
	h.Started()
	return h
}

func fine(name string, required bool) telemetry.Check {
	return telemetry.Check{Name: name, Required: required, Probe: func(context.Context) error { return nil }}
}

func broken(name string, required bool) telemetry.Check {
	return telemetry.Check{Name: name, Required: required, Probe: func(context.Context) error { return errors.New("secret-host refuses") }}
}

func TestAProcessThatStartsOrDrainsIsNotReadyWhateverItsChecksSay(t *testing.T) {
	t.Parallel()
	h := telemetry.NewHealth(fine("postgres", true))
	if got := h.Ready(); got.Status != telemetry.StatusStarting || got.WaitingFor != "" || got.HTTPStatus() != http.StatusServiceUnavailable || got.Checks["postgres"] != "ok" {
		t.Errorf("got %+v", got)
	}
	h.WaitFor("migrations")
	if got := h.Ready(); got.Status != telemetry.StatusStarting || got.WaitingFor != "migrations" {
		t.Errorf("got %+v", got)
	}
	h.Started()
	if got := h.Ready(); got.Status != telemetry.StatusOK || got.WaitingFor != "" || got.HTTPStatus() != http.StatusOK {
		t.Errorf("got %+v", got)
	}
	h.Drain()
	if got := h.Ready(); got.Status != telemetry.StatusUnavailable || got.HTTPStatus() != http.StatusServiceUnavailable || got.Checks["postgres"] != "ok" {
		t.Errorf("got %+v", got)
	}
}

// One required thing that is missing outweighs all.
func TestReadinessIsThatOfTheWorstCheck(t *testing.T) {
	t.Parallel()
	old := telemetry.Check{Name: "old", Required: true, Probe: func(context.Context) error {
		return fmt.Errorf("%w: secret-host has version 5", telemetry.ErrMigrations)
	}}
	for _, row := range []struct {
		checks []telemetry.Check
		status string
		http   int
		want   map[string]string
	}{
		{nil, "ok", http.StatusOK, map[string]string{}},
		{[]telemetry.Check{fine("a", true), fine("b", false)}, "ok", http.StatusOK, map[string]string{"a": "ok", "b": "ok"}},
		{[]telemetry.Check{fine("a", true), broken("b", false)}, "degraded", http.StatusOK, map[string]string{"a": "ok", "b": "unavailable"}},
		{[]telemetry.Check{broken("a", false), fine("b", true)}, "degraded", http.StatusOK, map[string]string{"a": "unavailable", "b": "ok"}},
		{[]telemetry.Check{broken("a", true), fine("b", true)}, "unavailable", http.StatusServiceUnavailable, map[string]string{"a": "unavailable", "b": "ok"}},
		{[]telemetry.Check{broken("a", true), broken("b", false)}, "unavailable", http.StatusServiceUnavailable, map[string]string{"a": "unavailable", "b": "unavailable"}},
		{[]telemetry.Check{broken("a", false), broken("b", true)}, "unavailable", http.StatusServiceUnavailable, map[string]string{"a": "unavailable", "b": "unavailable"}},
		{[]telemetry.Check{old}, "unavailable", http.StatusServiceUnavailable, map[string]string{"old": "migrations"}},
	} {
		if got := started(row.checks...).Ready(); got.Status != row.status || got.HTTPStatus() != row.http || !maps.Equal(got.Checks, row.want) {
			t.Errorf("got %+v, want %s %v", got, row.status, row.want)
		}
	}
}

// What the process can do without is given up soon, so that people get an answer; what it needs is
// given time. Other probes lose nothing by it.
func TestAProbeThatHangsIsGivenUpAndTakesNothingFromOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for required, want := range map[bool]time.Duration{false: 400 * time.Millisecond, true: 2 * time.Second} {
			hangs := telemetry.Check{Name: "hangs", Required: required, Probe: func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}}
			slow := telemetry.Check{Name: "slow", Probe: func(ctx context.Context) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(300 * time.Millisecond):
					return nil
				}
			}}
			for _, checks := range [][]telemetry.Check{{hangs, slow}, {slow, hangs}} {
				began := time.Now()
				got := started(checks...).Ready()
				if took := time.Since(began); took != want || got.Checks["hangs"] != telemetry.StatusUnavailable || got.Checks["slow"] != telemetry.StatusOK ||
					(got.Status == telemetry.StatusUnavailable) != required {
					t.Errorf("required %t: %+v after %s", required, got, took)
				}
			}
		}
	})
}

// Two writes that fail in a row are a fault, until one succeeds or none comes for a minute.
func TestWritesFailUntilOneSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := started()
		expect := func(what string, fail bool) {
			t.Helper()
			if h.WritesFail() != fail {
				t.Errorf("%s: %t", what, !fail)
			}
		}
		expect("at first", false)
		h.Wrote(context.DeadlineExceeded)
		expect("after one", false)
		h.Wrote(context.DeadlineExceeded)
		expect("after two", true)
		h.Wrote(nil)
		expect("after a success", false)
		h.Wrote(context.DeadlineExceeded)
		h.Wrote(context.DeadlineExceeded)
		time.Sleep(time.Minute)
		expect("after a minute", false)
	})
}

func TestLogsHaveTheProcessTheLevelsAndTheFormatAskedFor(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := telemetry.NewLogger(config.Log{Level: "warn", Format: "json"}, "worker", &out)
	logger.Info("not asked for")
	logger.Warn("careful", "campaign", 7)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["process"] != "worker" || line["level"] != "WARN" || line["msg"] != "careful" { // an error also when there are two
		t.Errorf("%v: logged:\n%s", err, out.String())
	}
	out.Reset()
	logger = telemetry.NewLogger(config.Log{Level: "debug", Format: "text"}, "api", &out)
	logger.Debug("hello")
	telemetry.Flush(logger)
	if text := out.String(); !strings.Contains(text, "level=DEBUG msg=hello process=api") {
		t.Errorf("logged %q", text)
	}
}

func TestThePoolSaysHowBusyItIs(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	settings.Postgres.MaxConnections = 7
	db, registry := servers.Pool(t, settings), prometheus.NewRegistry()
	telemetry.RegisterPool(registry, db)
	var connections [3]*pgxpool.Conn
	for i := range connections {
		conn, err := db.Acquire(t.Context())
		servers.NoError(t, err)
		t.Cleanup(conn.Release)
		connections[i] = conn
	}
	connections[0].Release()
	for name, want := range map[string]float64{"connections": 3, "connections_in_use": 2, "connections_max": 7} {
		if got := servers.Counted(t, registry, "triprize_postgres_"+name, ""); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

func TestOneLookASecondServesAllWhoAsk(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	h := started(telemetry.Check{Name: "postgres", Required: true, Probe: func(context.Context) error {
		looks.Add(1)
		return nil
	}})
	began := time.Now()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			for range 100 {
				if got := h.Ready(); got.Status != telemetry.StatusOK {
					t.Errorf("got %+v", got)
				}
			}
		})
	}
	all.Wait()
	if n, most := looks.Load(), int64(time.Since(began)/time.Second)+1; n > most {
		t.Errorf("10,000 who asked cost %d looks, %d at most were to be", n, most)
	}
}

// halting tells one metric at once and the next when it is let go.
type halting struct {
	asked int
	on    chan struct{}
}

var telling = prometheus.NewDesc("told", "", []string{"when"}, nil)

func (h *halting) Describe(out chan<- *prometheus.Desc) { out <- telling }

func (h *halting) Collect(out chan<- prometheus.Metric) {
	h.asked++
	out <- prometheus.MustNewConstMetric(telling, prometheus.GaugeValue, 1, "at once")
	<-h.on
	out <- prometheus.MustNewConstMetric(telling, prometheus.GaugeValue, 1, "later")
}

func TestACollectorThatHangsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &halting{on: make(chan struct{})}
		registry := prometheus.NewRegistry()
		registry.MustRegister(telemetry.Bounded(slow, 2*time.Second), prometheus.NewGauge(prometheus.GaugeOpts{Name: "another"}))
		expect := func(what string, told, atMost int, within time.Duration) {
			t.Helper()
			began := time.Now()
			families, err := registry.Gather()
			servers.NoError(t, err)
			n := 0
			for _, f := range families {
				if f.GetName() == "told" {
					n = len(f.GetMetric())
				}
			}
			if took := time.Since(began); n != told || len(families) > atMost || took > within {
				t.Errorf("%s: %d told, %d families in %s", what, n, len(families), took)
			}
		}
		expect("while it hangs", 1, 2, 2*time.Second)
		expect("while the first answer is still out", 0, 1, 0)
		if slow.asked != 1 {
			t.Errorf("it was asked %d times", slow.asked)
		}
		close(slow.on)
		synctest.Wait()
		expect("when it answers again", 2, 2, 0)
	})
}

// A cause degrades, and is never a reason for 503; what is not known is not fine, and has no
// gauge. The log has a line when a cause begins and when it ends, however many looks find it.
func TestCausesDegradeAndAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var log servers.Journal
	registry := prometheus.NewRegistry()
	causes := telemetry.NewCauses(slog.New(slog.NewTextHandler(&log, nil)), registry, "a", "b")
	h := started(fine("postgres", true))
	h.Degrade(causes)
	expect := func(status string, hold, unknown []string, gauges int) {
		t.Helper()
		got := h.Ready()
		if got.Status != status || got.HTTPStatus() != http.StatusOK || !slices.Equal(got.Causes, hold) || !slices.Equal(got.Unknown, unknown) {
			t.Errorf("got %+v, want %s because of %v, %v unknown", got, status, hold, unknown)
		}
		families, err := registry.Gather()
		shown := 0
		for _, f := range families {
			shown += len(f.GetMetric())
		}
		if err != nil || shown != gauges {
			t.Errorf("%d gauges, %v, want %d", shown, err, gauges)
		}
	}
	expect(telemetry.StatusDegraded, nil, []string{"a", "b"}, 0)
	for range 2 {
		causes.Set(telemetry.Cause{Name: "a"}, telemetry.Cause{Name: "b", Holds: true, Details: []any{"which", "7"}})
		expect(telemetry.StatusDegraded, []string{"b"}, nil, 2)
	}
	causes.Set(telemetry.Cause{Name: "a"}) // b holds or not
	expect(telemetry.StatusDegraded, nil, []string{"b"}, 1)
	for range 2 {
		causes.Set(telemetry.Cause{Name: "a"}, telemetry.Cause{Name: "b"})
		expect(telemetry.StatusOK, nil, nil, 2)
	}
	if begun, ended := strings.Count(log.String(), "msg=degraded cause=b which=7"), strings.Count(log.String(), `msg="no longer degraded" cause=b`); begun != 1 || ended != 1 || strings.Count(log.String(), "\n") != 2 {
		t.Errorf("the log:\n%s", log.String())
	}
}

// An outage is a few lines a minute, however many requests it meets; the first of each message is
// written at once, and what is left out is counted.
func TestLinesOfAMessageHaveABound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &writes{}
		logger := telemetry.NewLogger(config.Log{Level: "info", Format: "text"}, "api", out).With("shop", "a")
		seen := 0
		expect := func(what string, lines int, with ...string) {
			t.Helper()
			time.Sleep(time.Second) // lines below WARN are written
			synctest.Wait()
			all := strings.Join(out.all(), "")
			if n := strings.Count(all[seen:], "\n"); n != lines {
				t.Errorf("%s: %d lines, want %d", what, n, lines)
			}
			for _, text := range with {
				if !strings.Contains(all[seen:], text) {
					t.Errorf("%s: nothing says %s", what, text)
				}
			}
			seen = len(all)
		}
		for n := range 12000 {
			logger.Warn("request not served", "n", n)
		}
		logger.Warn("another", "purchase", "a")
		logger.Error("another", "purchase", "b")
		expect("of WARN and above", 102, "n=0\n", "n=99", "purchase=a", "purchase=b")
		for range 300 {
			logger.Info("request")
		}
		expect("what is done", 300)
		for range 300 {
			logger.InfoContext(telemetry.Sampled(""), "request", "status", 401)
		}
		expect("what is refused", 100, "status=401")
		for range 9 {
			logger.InfoContext(telemetry.Sampled("key 1"), "read", "key", 1)
			logger.InfoContext(telemetry.Sampled("key 2"), "read", "key", 2)
		}
		expect("what is read", 2, "key=1", "key=2")
		for n := range 10000 {
			logger.InfoContext(telemetry.Sampled(strconv.Itoa(n)), "read")
		}
		expect("a flood of kinds", 606)
		time.Sleep(time.Minute)
		logger.Warn("request not served")
		logger.Warn("request not served")
		logger.InfoContext(telemetry.Sampled("key 1"), "read")
		expect("a minute later", 3, "shop=a left_out=11900", "shop=a left_out=8")
	})
}

// Lines wait a moment for each other, so that those of a batch are one write; one of WARN waits for nothing, and
// takes those before it along. Nothing waits at the end.
func TestLinesAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &writes{}
		logger := telemetry.NewLogger(config.Log{Level: "info", Format: "text"}, "worker", out)
		batch := func(n int) {
			for i := range n {
				logger.Info("job finalized", "n", i)
			}
		}
		expect := func(what string, lines ...int) {
			t.Helper()
			var got []int
			for _, w := range out.all() {
				got = append(got, strings.Count(w, "\n"))
			}
			if !slices.Equal(got, lines) {
				t.Errorf("%s: writes of %v lines, want %v", what, got, lines)
			}
		}
		batch(256)
		expect("at once")
		time.Sleep(time.Second)
		synctest.Wait()
		expect("a moment later", 256)
		batch(2)
		logger.Warn("trouble")
		expect("with a warning", 256, 3)
		batch(1)
		telemetry.Flush(logger)
		expect("at the end", 256, 3, 1)
		batch(5000)
		if n := len(out.all()); n < 5 || n > 20 {
			t.Errorf("many lines wait for nothing, or are %d writes", n)
		}
		telemetry.Flush(logger)
	})
}

// writes keeps what is written, one text for each write. The timers of the logger write, too.
type writes struct {
	mu    sync.Mutex
	texts []string
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, string(p))
	return len(p), nil
}

func (w *writes) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.texts)
}
