package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/devkit/devstack"
	"triprize/internal/platform/telemetry"
)

// served starts Serve and returns its address, and stop, which returns what Serve did.
func served(t *testing.T, registry *prometheus.Registry, checks ...telemetry.Check) (url string, stop func() error) {
	t.Helper()
	address, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- telemetry.Serve(ctx, address, started(checks...), registry) }()
	var result error
	returned := false
	stop = func() error {
		if cancel(); !returned {
			result, returned = <-over, true
		}
		return result
	}
	t.Cleanup(func() { _ = stop() })
	url = "http://" + address
	if err := devstack.AwaitHTTP(t.Context(), url+"/healthz"); err != nil {
		t.Fatal(err)
	}
	return url, stop
}

func get(t *testing.T, method, url string) (status int, contentType, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("Content-Type"), string(data)
}

func TestReadyzAnswersByStatusAndNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		checks []telemetry.Check
		status int
		want   telemetry.Readiness
	}{
		"all is well": {[]telemetry.Check{fine("postgres", true), fine("redis", false)}, http.StatusOK,
			telemetry.Readiness{Status: "ok", Checks: map[string]string{"postgres": "ok", "redis": "ok"}}},
		"an optional one is away": {[]telemetry.Check{fine("postgres", true), broken("redis", false)}, http.StatusOK,
			telemetry.Readiness{Status: "degraded", Checks: map[string]string{"postgres": "ok", "redis": "unavailable"}}},
		"a required one is away": {[]telemetry.Check{broken("postgres", true), fine("redis", false)}, http.StatusServiceUnavailable,
			telemetry.Readiness{Status: "unavailable", Checks: map[string]string{"postgres": "unavailable", "redis": "ok"}}},
		"the schema is old": {[]telemetry.Check{{Name: "postgres", Required: true, Probe: func(context.Context) error {
			return fmt.Errorf("%w: secret-host has version 5", telemetry.ErrMigrations)
		}}}, http.StatusServiceUnavailable, telemetry.Readiness{Status: "unavailable", Checks: map[string]string{"postgres": "migrations"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := served(t, prometheus.NewRegistry(), c.checks...)
			status, contentType, body := get(t, http.MethodGet, url+"/readyz")
			var got telemetry.Readiness
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatal(err)
			}
			if status != c.status || contentType != "application/json" || !same(got, c.want) {
				t.Errorf("%d %s %s", status, contentType, body)
			}
			if strings.Contains(body, "secret-host") {
				t.Errorf("the reason is told to whoever asks: %s", body)
			}
			if status, _, body := get(t, http.MethodGet, url+"/healthz"); status != http.StatusOK || strings.TrimSpace(body) != `{"status":"ok"}` {
				t.Errorf("healthz: %d %s", status, body)
			}
		})
	}
}

func TestMetricsAreThoseOfTheRegistry(t *testing.T) {
	t.Parallel()
	registry := telemetry.NewRegistry()
	count := prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_test_total", Help: "A test."})
	registry.MustRegister(count)
	count.Add(3)
	url, _ := served(t, registry)
	status, _, body := get(t, http.MethodGet, url+"/metrics")
	if status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{"\ntriprize_test_total 3\n", "\ngo_goroutines ", "\nprocess_open_fds ", "\ntriprize_build_info{goversion=\"go"} {
		if !strings.Contains(body, want) {
			t.Errorf("there is no %q", strings.TrimSpace(want))
		}
	}
}

func TestThereIsNothingElseToAskFor(t *testing.T) {
	t.Parallel()
	url, _ := served(t, prometheus.NewRegistry())
	for path, want := range map[string]int{"/": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound, "/healthz/x": http.StatusNotFound} {
		if status, _, _ := get(t, http.MethodGet, url+path); status != want {
			t.Errorf("GET %s: %d", path, status)
		}
	}
	if status, _, _ := get(t, http.MethodPost, url+"/healthz"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", status)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	url, stop := served(t, prometheus.NewRegistry())
	if err := stop(); err != nil {
		t.Errorf("got %v", err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

func TestWithoutAnAddressServeOnlyWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- telemetry.Serve(ctx, "", started(), prometheus.NewRegistry()) }()
		synctest.Wait()
		select {
		case err := <-over:
			t.Fatalf("it returned %v", err)
		default:
		}
		cancel()
		if err := <-over; err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestAnAddressThatCannotBeHadIsAnError(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	for _, address := range []string{listener.Addr().String(), "nonsense"} {
		if err := telemetry.Serve(t.Context(), address, started(), prometheus.NewRegistry()); err == nil {
			t.Errorf("%s was served", address)
		}
	}
}

func fine(name string, required bool) telemetry.Check {
	return telemetry.Check{Name: name, Required: required, Probe: func(context.Context) error { return nil }}
}

func broken(name string, required bool) telemetry.Check {
	return telemetry.Check{Name: name, Required: required, Probe: func(context.Context) error { return errors.New("secret-host refuses") }}
}

func same(a, b telemetry.Readiness) bool {
	x, _ := json.Marshal(a) // maps are written in the order of their keys
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// gathering counts how often metrics are gathered.
type gathering struct{ times atomic.Int64 }

func (g *gathering) Describe(chan<- *prometheus.Desc) {}
func (g *gathering) Collect(chan<- prometheus.Metric) { g.times.Add(1) }

func TestScrapesShareWhatWasGathered(t *testing.T) {
	t.Parallel()
	registry, count := prometheus.NewRegistry(), &gathering{}
	registry.MustRegister(count)
	url, _ := served(t, registry)
	began := time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				get(t, http.MethodGet, url+"/metrics")
			}
		})
	}
	all.Wait()
	if n, most := count.times.Load(), int64(time.Since(began)/time.Second)+1; n > most {
		t.Errorf("160 scrapes gathered %d times, %d at most were to be", n, most)
	}
	before := count.times.Load()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Cache-Control", "no-cache")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if n := count.times.Load(); n != before+1 {
		t.Errorf("a scrape that wants no copy gathered %d times", n-before)
	}
}
