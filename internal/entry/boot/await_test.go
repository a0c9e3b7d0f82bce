package boot

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"triprize/internal/entry/httpapi"
	"triprize/internal/platform/config"
	"triprize/internal/platform/schema"
	"triprize/internal/platform/telemetry"
	"triprize/internal/testkit/servers"
)

// away makes settings lead to where connections are dropped at once, until arrive
// is called: then Postgres is there.
func away(t *testing.T, settings *config.Settings) (arrive func()) {
	t.Helper()
	target, err := url.Parse(settings.Postgres.URL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	there := target.Host
	target.Host = listener.Addr().String()
	settings.Postgres.URL = target.String()
	var arrived atomic.Bool
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if !arrived.Load() {
				_ = conn.Close()
				continue
			}
			go relay(conn, there)
		}
	}()
	return func() { arrived.Store(true) }
}

// relay passes a connection on.
func relay(conn net.Conn, address string) {
	onward, err := net.Dial("tcp", address)
	if err != nil {
		_ = conn.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(onward, conn); _ = onward.Close() })
	both.Go(func() { _, _ = io.Copy(conn, onward); _ = conn.Close() })
	both.Wait()
}

// ask asks a process for its readiness; the zero value is no answer.
func ask(t *testing.T, address, path string) (status int, r telemetry.Readiness) {
	t.Helper()
	response, err := http.Get("http://" + address + path)
	if err != nil {
		return 0, r
	}
	defer func() { _ = response.Body.Close() }()
	_ = json.NewDecoder(response.Body).Decode(&r)
	return response.StatusCode, r
}

// awaitReadiness asks until the answer is as wanted.
func awaitReadiness(t *testing.T, address, status, waitingFor string) {
	t.Helper()
	servers.Eventually(t, "it is "+status+", waiting for "+waitingFor, func() bool {
		code, r := ask(t, address, "/readyz")
		if r.Status != status || r.WaitingFor != waitingFor {
			return false
		}
		if (code == http.StatusOK) != (status == telemetry.StatusDegraded) {
			t.Errorf("%+v with the status %d", r, code)
		}
		return true
	})
}

// Postgres is not there, then its schema is not, then both are: the process lives
// through all of it and says what it waits for.
func TestAProcessWaitsForPostgresAndItsSchema(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(context.Context, *Process) error{"api": API(httpapi.New), "worker": Worker, "scheduler": Scheduler} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := servers.Settings(t)
			db := servers.Pool(t, settings)
			servers.Exec(t, db, `DROP SCHEMA public CASCADE; CREATE SCHEMA public`)
			arrive := away(t, &settings)
			address := freeAddress(t)
			settings.API.Listen, settings.Worker.Listen, settings.Scheduler.Listen = address, address, address
			start := func() (stop func()) {
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- Run(ctx, name, settings, servers.Logger(t), run) }()
				return func() {
					cancel()
					if err := <-ended; err != nil {
						t.Errorf("it ended with %v", err)
					}
				}
			}
			stop := start()
			awaitReadiness(t, address, telemetry.StatusStarting, "postgres")
			stop() // while it waits
			defer start()()
			awaitReadiness(t, address, telemetry.StatusStarting, "postgres")
			if code, health := ask(t, address, "/healthz"); code != http.StatusOK || health.Status != telemetry.StatusOK {
				t.Errorf("healthz: %d, %+v", code, health)
			}
			if name == "api" {
				expectNotServed(t, address)
			}
			arrive()
			awaitReadiness(t, address, telemetry.StatusStarting, "migrations")
			m, err := schema.New(db)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Up(t.Context()); err != nil {
				t.Fatal(err)
			}
			awaitReadiness(t, address, telemetry.StatusDegraded, "") // it is alone
			if name == "api" {
				if code, _ := ask(t, address, "/v1/campaigns"); code != http.StatusUnauthorized {
					t.Errorf("a request without a key gets %d", code)
				}
			}
		})
	}
}

func expectNotServed(t *testing.T, address string) {
	t.Helper()
	response, err := http.Get("http://" + address + "/v1/campaigns")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" ||
		!strings.Contains(string(body), "waits for postgres") || !strings.Contains(string(body), `"code":"unavailable"`) {
		t.Errorf("a request gets %s, %s (%v)", response.Status, body, err)
	}
	if response, err := http.Get("http://" + address + "/problems"); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("what the answer refers to: %v, %v", response, err)
	} else {
		_ = response.Body.Close()
	}
}
