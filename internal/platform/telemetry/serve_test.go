package telemetry_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/devkit/devstack"
	"triprize/internal/platform/telemetry"
	"triprize/internal/testkit/servers"
)

func TestServeAnswersHealthReadinessAndMetricsUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	address, err := devstack.FreeAddress()
	servers.NoError(t, err)
	registry := telemetry.NewRegistry()
	count := prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_test_total", Help: "A test."})
	registry.MustRegister(count)
	count.Add(3)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- telemetry.Serve(ctx, address, started(broken("postgres", true)), registry) }()
	url := "http://" + address
	servers.NoError(t, devstack.AwaitHTTP(t.Context(), url+"/healthz"))
	ask := func(method, path string) (status int, contentType, body string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, url+path, nil)
		servers.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		servers.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		data, err := io.ReadAll(response.Body)
		servers.NoError(t, err)
		return response.StatusCode, response.Header.Get("Content-Type"), string(data)
	}
	for _, row := range []struct {
		method, path string
		status       int
		body         string // in JSON
	}{
		{http.MethodGet, "/readyz", http.StatusServiceUnavailable, `{"status":"unavailable","checks":{"postgres":"unavailable"}}`}, // and not why
		{http.MethodGet, "/healthz", http.StatusOK, `{"status":"ok"}`},
		{http.MethodPost, "/healthz", http.StatusMethodNotAllowed, ""},
		{http.MethodGet, "/healthz/x", http.StatusNotFound, ""},
		{http.MethodGet, "/debug/pprof/", http.StatusNotFound, ""},
		{http.MethodGet, "/", http.StatusNotFound, ""},
	} {
		status, contentType, body := ask(row.method, row.path)
		if status != row.status || row.body != "" && (contentType != "application/json" || !sameJSON(body, row.body)) {
			t.Errorf("%s %s: %d %s %s", row.method, row.path, status, contentType, body)
		}
	}

	_, _, body := ask(http.MethodGet, "/metrics")
	for _, want := range []string{"\ntriprize_test_total 3\n", "\ngo_goroutines ", "\nprocess_open_fds ", "\ntriprize_build_info{goversion=\"go"} {
		if !strings.Contains(body, want) {
			t.Errorf("there is no %q", strings.TrimSpace(want))
		}
	}

	if err := telemetry.Serve(t.Context(), address, started(), registry); err == nil {
		t.Error("an address that is in use was served")
	}
	cancel()
	if err := <-over; err != nil {
		t.Errorf("got %v", err)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

func TestWithoutAnAddressServeOnlyWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- telemetry.Serve(ctx, "", started(), prometheus.NewRegistry()) }()
		synctest.Wait()
		if len(over) > 0 {
			t.Fatalf("it returned %v", <-over)
		}
		cancel()
		if err := <-over; err != nil {
			t.Errorf("got %v", err)
		}
	})
}
