package boot

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/telemetry"
	"triprize/internal/testkit/servers"
)

func TestLocksAreKeptByAMajorityOfTheirOwnServers(t *testing.T) {
	t.Parallel()
	settings := servers.Settings(t)
	first, _ := servers.OwnRedis(t)
	second, _ := servers.OwnRedis(t)
	away := "redis://:hunter2@" + freeAddress(t) + "/0"
	get := func(variables ...string) report {
		t.Helper()
		r, _ := reportOf(t, append(environment(settings), variables...))
		return r
	}
	const variable = "TRIPRIZE_LOCKS_REDIS_URLS="
	servers.Eventually(t, "two of three are enough", func() bool { // each server has its time, and a busy machine may need more
		r := get(variable + first.URL() + ", " + away + ", " + second.URL())
		return r.Locks && r.Readiness.Status == telemetry.StatusOK && r.Readiness.Checks["locks"] == "ok"
	})
	if n := servers.Redis(t, settings).Exists(t.Context(), settings.Redis.Namespace+":lock:a").Val(); n != 0 {
		t.Error("the Redis of the process has a lock")
	}
	minority := variable + first.URL() + "," + away + ",redis://" + freeAddress(t) + "/0"
	r := get(minority)
	if r.Locks || !r.NoQuorum || r.Readiness.Status != telemetry.StatusDegraded || r.Readiness.Checks["locks"] != telemetry.StatusUnavailable {
		t.Errorf("with one of three: %+v", r)
	}
	r = get(minority, "TRIPRIZE_LOCKS_ENABLED=false")
	if _, checked := r.Readiness.Checks["locks"]; r.Locks || r.NoQuorum || checked || r.Readiness.Status != telemetry.StatusOK {
		t.Errorf("disabled: %+v", r)
	}
	if _, checked := get().Readiness.Checks["locks"]; checked {
		t.Error("what is no quorum is asked twice")
	}
	stderr := refused(t, 1, append(environment(settings), variable+away+"x"), nil, "actor: setting locks.redis_urls (TRIPRIZE_LOCKS_REDIS_URLS): number 1: ", "not the URL of a Redis")
	if strings.Contains(stderr, "hunter2") {
		t.Errorf("the password is in the log: %s", stderr)
	}
}

// A Redis that answers and takes no writes carries no task and no heartbeat. It is not ok, and what is
// read from it says nothing about the processes.
func TestARedisThatTakesNoWritesIsNotOKAndNamesNoCause(t *testing.T) {
	t.Parallel()
	server, _ := servers.OwnRedis(t)
	settings := servers.Patient(servers.Settings(t))
	settings.Redis.URL, settings.Locks.RedisURLs = server.URL(), server.URL()
	p := &Process{Name: "api", Settings: settings, Registry: prometheus.NewRegistry(), Logger: servers.Logger(t), Redis: servers.Redis(t, settings)}
	_, closeLocks, err := p.openLocks()
	if err != nil {
		t.Fatal(err)
	}
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
		if found := p.lookAtRedis(t.Context()); (len(found.causes) > 0) != writable || (len(found.gauges) > 0) != writable {
			t.Errorf("%s: causes %v, %d gauges", what, found.causes, len(found.gauges))
		}
	}
	run := func(command string) {
		t.Helper()
		args := make([]any, 0, 4)
		for _, word := range strings.Fields(command) {
			args = append(args, word)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(command, err)
		}
	}
	want("a fresh one", true)
	for what, commands := range map[string][2]string{
		"full":               {"CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"},
		"read-only":          {"REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"},
		"too few replicas":   {"CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"},
		"without permission": {"ACL SETUSER default -@write", "ACL SETUSER default +@all"},
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
