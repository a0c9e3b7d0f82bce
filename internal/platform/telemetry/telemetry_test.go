package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

func TestAProcessThatStartsIsNotReadyWhateverItsChecksSay(t *testing.T) {
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
}

func TestOneRequiredThingThatIsMissingOutweighsAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		checks []telemetry.Check
		want   string
	}{
		"nothing to check":                {nil, telemetry.StatusOK},
		"required after optional":         {[]telemetry.Check{broken("a", false), broken("b", true)}, telemetry.StatusUnavailable},
		"optional after required":         {[]telemetry.Check{broken("a", true), broken("b", false)}, telemetry.StatusUnavailable},
		"fine after broken":               {[]telemetry.Check{broken("a", true), fine("b", true)}, telemetry.StatusUnavailable},
		"optional, then all that is fine": {[]telemetry.Check{broken("a", false), fine("b", true)}, telemetry.StatusDegraded},
	} {
		got := started(c.checks...).Ready()
		if got.Status != c.want || len(got.Checks) != len(c.checks) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What the process can do without is given up soon, so that people get an answer; what it needs is
// given time.
func TestAProbeThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for required, want := range map[bool]time.Duration{false: 400 * time.Millisecond, true: 2 * time.Second} {
			began := time.Now()
			got := started(fine("other", true), telemetry.Check{Name: "hangs", Required: required, Probe: func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}}).Ready()
			if took := time.Since(began); took != want {
				t.Errorf("required %t: it took %s", required, took)
			}
			if got.Checks["hangs"] != telemetry.StatusUnavailable || (got.Status == telemetry.StatusUnavailable) != required {
				t.Errorf("required %t: %+v", required, got)
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

func TestWhatHangsTakesNothingFromTheOtherProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := telemetry.Check{Name: "postgres", Required: true, Probe: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		slow := telemetry.Check{Name: "redis", Probe: func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(300 * time.Millisecond):
				return nil
			}
		}}
		for _, checks := range [][]telemetry.Check{{hangs, slow}, {slow, hangs}} {
			got := started(checks...).Ready()
			if got.Checks["redis"] != telemetry.StatusOK || got.Checks["postgres"] != telemetry.StatusUnavailable {
				t.Errorf("got %+v", got)
			}
		}
	})
}

func TestLogsHaveTheProcessAndTheLevelsAskedFor(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := telemetry.NewLogger(config.Log{Level: "warn", Format: "json"}, "worker", &out)
	logger.Info("not asked for")
	logger.Warn("careful", "campaign", 7)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil { // also when there are two
		t.Fatalf("%v: logged:\n%s", err, out.String())
	}
	if line["process"] != "worker" || line["level"] != "WARN" || line["msg"] != "careful" {
		t.Errorf("the line is %v", line)
	}
}

func TestLogsAreTextWhenAskedFor(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := telemetry.NewLogger(config.Log{Level: "debug", Format: "text"}, "api", &out)
	logger.Debug("hello")
	telemetry.Flush(logger)
	if text := out.String(); !strings.Contains(text, "level=DEBUG msg=hello process=api") {
		t.Errorf("logged %q", text)
	}
}

func TestThePoolSaysHowBusyItIs(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	settings.Postgres.MaxConnections = 7
	db := servers.Pool(t, settings)
	registry := prometheus.NewRegistry()
	telemetry.RegisterPool(registry, db)
	for range 2 {
		conn, err := db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
	spare, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spare.Release()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, family := range families {
		metric := family.GetMetric()[0]
		got[family.GetName()] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
	}
	for name, want := range map[string]float64{
		"triprize_postgres_connections": 3, "triprize_postgres_connections_in_use": 2, "triprize_postgres_connections_max": 7,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
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
