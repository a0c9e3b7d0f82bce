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
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/entry/httpapi"
	"triprize/internal/platform/config"
	"triprize/internal/platform/schema"
	"triprize/internal/platform/telemetry"
	"triprize/internal/testkit/servers"
)

// away makes settings lead to where nobody listens, until arrive is called: then Postgres is there.
func away(t *testing.T, settings *config.Settings) (arrive func()) {
	t.Helper()
	target, err := url.Parse(settings.Postgres.URL)
	servers.NoError(t, err)
	there := target.Host
	target.Host = freeAddress(t)
	settings.Postgres.URL = target.String()
	return func() {
		listener, err := net.Listen("tcp", target.Host)
		servers.NoError(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go relay(conn, there)
			}
		}()
	}
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
		if r.Status != status || r.WaitingFor != waitingFor || waitingFor == "migrations" && r.Checks["postgres"] != "migrations" {
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
			settings := servers.Patient(servers.Settings(t))
			servers.Exec(t, servers.Pool(t, settings), `DROP SCHEMA public CASCADE; CREATE SCHEMA public`)
			db := servers.Pool(t, settings) // it has met no branch
			arrive := away(t, &settings)
			address := freeAddress(t)
			settings.API.Listen, settings.Worker.Listen, settings.Scheduler.Listen, settings.Postgres.StartWait = address, address, address, time.Hour
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
			servers.NoError(t, err)
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

// Postgres has answered to the check; to the pool it does not.
func TestAProcessWaitsForItsPool(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	p := started(t, settings)
	arrive := away(t, &settings)
	p.DB = started(t, settings).DB
	awaited := make(chan error, 1)
	go func() { awaited <- p.Await(t.Context()) }()
	servers.Eventually(t, "it waits", func() bool { what, _ := p.Health.Starting(); return what == "postgres" })
	arrive()
	servers.NoError(t, <-awaited)
}

func expectNotServed(t *testing.T, address string) {
	t.Helper()
	response, err := http.Get("http://" + address + "/v1/campaigns")
	servers.NoError(t, err)
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

func TestLocksAreKeptByAMajorityOfTheirOwnServers(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	first := servers.OwnRedis(t)
	second := servers.OwnRedis(t)
	away := "redis://:hunter2@" + freeAddress(t) + "/0"
	const variable, report = "TRIPRIZE_LOCKS_REDIS_URLS=", "actor loud=false triprize-actor key=true metrics=true "
	minority := variable + first.URL() + "," + away + ",redis://" + freeAddress(t) + "/0"
	for want, env := range map[string][]string{
		"locked=true quorum=true ok map[locks:ok postgres:ok redis:ok]":                  {variable + first.URL() + ", " + away + ", " + second.URL()},
		"locked=false quorum=false degraded map[locks:unavailable postgres:ok redis:ok]": {minority},
		"locked=false quorum=true ok map[postgres:ok redis:ok]":                          {minority, "TRIPRIZE_LOCKS_ENABLED=false"},
		"locked=true quorum=true ok map[postgres:ok redis:ok]":                           nil, // what is no quorum is not asked twice
	} {
		reports(t, report+want, append(environment(settings), env...))
	}
}

// A Redis that answers and takes no writes carries no task and no heartbeat. It is not ok, and what is
// read from it says nothing about the processes.
func TestARedisThatTakesNoWritesIsNotOKAndNamesNoCause(t *testing.T) {
	t.Parallel()
	server := servers.OwnRedis(t)
	settings := servers.Patient(servers.Settings(t))
	settings.Redis.URL, settings.Locks.RedisURLs = server.URL(), server.URL()
	p := &Process{Name: "api", Settings: settings, Registry: prometheus.NewRegistry(), Logger: servers.Logger(t), Redis: servers.Redis(t, settings)}
	_, closeLocks, err := p.openLocks()
	servers.NoError(t, err)
	defer closeLocks()
	admin := servers.Redis(t, settings)
	want := func(what string, writable bool) {
		t.Helper()
		if err := admin.Ping(t.Context()).Err(); err != nil {
			t.Fatalf("%s: it does not answer: %v", what, err)
		}
		if err := p.checkRedis(t.Context()); (err == nil) != writable {
			t.Errorf("%s: the check of /readyz: %v", what, err)
		}
		if err := p.Locks.Ping(t.Context()); (err == nil) != writable {
			t.Errorf("%s: the check of the locks: %v", what, err)
		}
		var found snapshot
		servers.Eventually(t, what+": it is read in time", func() bool { found = p.readRedis(t.Context()); return !writable || len(found.causes) > 0 })
		if len(found.causes) > 0 != writable || len(found.Metrics()) > 0 != writable {
			t.Errorf("%s: causes %v, %d gauges", what, found.causes, len(found.Metrics()))
		}
	}
	run := func(command []any) {
		t.Helper()
		servers.NoError(t, admin.Do(t.Context(), command...).Err())
	}
	want("a fresh one", true)
	for what, commands := range map[string][2][]any{
		"full":               {{"CONFIG", "SET", "maxmemory", 1}, {"CONFIG", "SET", "maxmemory", 0}},
		"read-only":          {{"REPLICAOF", "127.0.0.1", 1}, {"REPLICAOF", "NO", "ONE"}},
		"too few replicas":   {{"CONFIG", "SET", "min-replicas-to-write", 1}, {"CONFIG", "SET", "min-replicas-to-write", 0}},
		"without permission": {{"ACL", "SETUSER", "default", "-@write"}, {"ACL", "SETUSER", "default", "+@all"}},
	} {
		run(commands[0])
		want(what, false)
		run(commands[1])
		want("no longer "+what, true)
	}
	keys, err := admin.Keys(t.Context(), settings.Redis.Namespace+":*").Result()
	if err != nil || len(keys) != 1 {
		t.Errorf("it writes one key: %q, %v", keys, err)
	}
	if left := admin.TTL(t.Context(), keys[0]).Val(); left <= 0 || left > time.Minute {
		t.Errorf("which ends by itself: %s", left)
	}
}
