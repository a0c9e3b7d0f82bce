package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
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
	settings := servers.Settings(t)
	settings.Postgres.MaxConnections = 7
	db, registry := servers.Pool(t, settings), prometheus.NewRegistry()
	telemetry.RegisterPool(registry, db)
	var connections [3]*pgxpool.Conn
	for i := range connections {
		conn, err := db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
		connections[i] = conn
	}
	connections[0].Release()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, family := range families {
		got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
	}
	for name, want := range map[string]float64{"connections": 3, "connections_in_use": 2, "connections_max": 7} {
		if got["triprize_postgres_"+name] != want {
			t.Errorf("%s is %v, want %v", name, got["triprize_postgres_"+name], want)
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
