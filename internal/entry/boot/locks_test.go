package boot

import (
	"strings"
	"testing"

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
