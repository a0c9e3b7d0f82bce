package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/config"
	"triprize/internal/platform/telemetry"
	"triprize/internal/testkit/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

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
		got := telemetry.Probe(t.Context(), c.checks)
		if got.Status != c.want || len(got.Checks) != len(c.checks) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestAProbeThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := telemetry.Check{Name: "redis", Probe: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		began := time.Now()
		got := telemetry.Probe(t.Context(), []telemetry.Check{fine("postgres", true), hangs})
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %s", took)
		}
		if got.Status != telemetry.StatusDegraded {
			t.Errorf("got %+v", got)
		}
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
			case <-time.After(time.Second):
				return nil
			}
		}}
		for _, checks := range [][]telemetry.Check{{hangs, slow}, {slow, hangs}} {
			got := telemetry.Probe(t.Context(), checks)
			if got.Checks["redis"] != telemetry.StatusOK || got.Checks["postgres"] != telemetry.StatusUnavailable {
				t.Errorf("got %+v", got)
			}
		}
	})
}

// The default logger is one for the whole process, so these two are not parallel.

func TestLogsHaveTheProcessAndTheLevelsAskedFor(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	var out bytes.Buffer
	logger := telemetry.NewLogger(config.Log{Level: "warn", Format: "json"}, "worker", &out)
	logger.Info("not asked for")
	logger.Warn("careful", "campaign", 7)
	slog.Warn("by a library")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("logged:\n%s", out.String())
	}
	for i, message := range []string{"careful", "by a library"} {
		var line map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &line); err != nil {
			t.Fatal(err)
		}
		if line["process"] != "worker" || line["level"] != "WARN" || line["msg"] != message {
			t.Errorf("line %d is %v", i, line)
		}
	}
}

func TestLogsAreTextWhenAskedFor(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	var out bytes.Buffer
	telemetry.NewLogger(config.Log{Level: "debug", Format: "text"}, "api", &out).Debug("hello")
	if text := out.String(); !strings.Contains(text, "level=DEBUG msg=hello process=api") {
		t.Errorf("logged %q", text)
	}
}

func TestThePoolSaysHowBusyItIs(t *testing.T) {
	t.Parallel()
	settings := fixture.Settings(t)
	settings.Postgres.MaxConnections = 7
	db := fixture.Pool(t, settings)
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
	if _, ok := got["triprize_postgres_acquire_wait_seconds_total"]; !ok || len(got) != 4 {
		t.Errorf("got %v", got)
	}
}
