package boot

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/idempotency"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/schema"
	"triprize/internal/platform/telemetry"
	"triprize/internal/testkit/servers"
)

// started returns a process as it is before it begins to work.
func started(t *testing.T, settings config.Settings) *Process {
	t.Helper()
	p := &Process{Name: "worker", Settings: settings, Logger: servers.Logger(t), Redis: servers.Redis(t, settings), servers: postgres.NewServers(servers.Logger(t))}
	for _, pool := range []**pgxpool.Pool{&p.DB, &p.apart} {
		opened, err := p.servers.Open(context.Background(), settings.Postgres, "test")
		servers.NoError(t, err)
		t.Cleanup(opened.Close)
		*pool = opened
	}
	return p
}

// The newest primary that any process has seen is in Redis. A process whose server is another one is not ready and
// opens no connection to it, until an operator deletes the key and restarts it.
func TestAProcessRefusesAnotherPrimary(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	key, mac := settings.Redis.Namespace+":primary", idempotency.NewMAC(settings.Draw.SecretKey)
	first := started(t, settings)
	servers.NoError(t, first.checkPostgres(t.Context()))
	now, err := first.servers.Identify(t.Context(), first.apart)
	servers.NoError(t, err)
	inRedis := func() (p postgres.Primary) {
		sealed, err := first.Redis.Get(t.Context(), key).Bytes()
		if value, ok := mac.Open(key, sealed); ok {
			servers.NoError(t, json.Unmarshal(value, &p))
		} else if !errors.Is(err, redis.Nil) {
			t.Errorf("Redis has %q, %v", sealed, err)
		}
		return p
	}
	if inRedis() != now {
		t.Fatalf("Redis has %v, not %v", inRedis(), now)
	}
	servers.NoError(t, first.Redis.Set(t.Context(), key, "forged", 0).Err())
	servers.NoError(t, first.checkPostgres(t.Context()))
	newest := now
	newest.Timeline++ // a server that was promoted
	value, _ := json.Marshal(newest)
	servers.NoError(t, first.Redis.Set(t.Context(), key, mac.Seal(key, value), 0).Err())
	p := started(t, settings)
	conn, err := p.DB.Acquire(t.Context()) // before it knows
	servers.NoError(t, err)
	if err := p.checkPostgres(t.Context()); !errors.Is(err, postgres.ErrAnotherPrimary) {
		t.Errorf("its check: %v", err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT 1`); !postgres.IsTransient(err) {
		t.Errorf("an open connection: %v", err)
	}
	conn.Release()
	if _, err := p.DB.Exec(t.Context(), `SELECT 1`); !errors.Is(err, postgres.ErrAnotherPrimary) || !postgres.IsTransient(err) {
		t.Errorf("a new connection: %v", err)
	}
	servers.NoError(t, first.Redis.Del(t.Context(), key).Err())
	if err := p.checkPostgres(t.Context()); err == nil || inRedis() != (postgres.Primary{}) {
		t.Errorf("without the key: %v; Redis has %v", err, inRedis())
	}
	servers.NoError(t, started(t, settings).checkPostgres(t.Context()))
	if inRedis() != now {
		t.Errorf("Redis has %v", inRedis())
	}
}

// Commits wait for a standby by two settings of Postgres, and for one that is there.
func TestReplicationThatIsRequiredIsWatched(t *testing.T) {
	t.Parallel()
	settings := servers.OwnPostgres(t)
	settings.Postgres.RequireSyncStandby = true
	admin := servers.Pool(t, settings)
	servers.NoError(t, schema.Migrate(t.Context(), admin))
	servers.Exec(t, admin, `CREATE ROLE plain LOGIN PASSWORD 'secret'; GRANT pg_read_all_data TO plain`)
	for _, c := range []struct {
		standby, commit    string
		asynchronous, away bool
	}{
		{"", "on", true, false}, {"nobody", "on", false, true}, {"nobody", "remote_apply", false, true},
		{"nobody", "remote_write", true, true}, {"nobody", "local", true, true}, {"nobody", "off", true, true},
	} {
		servers.NameStandby(t, admin, c.standby)
		role, found := settings, make(map[string]bool)
		role.Postgres.URL += "&options=-csynchronous_commit%3D" + c.commit
		for _, cause := range started(t, role).readPostgres(t.Context()).causes {
			found[cause.Name] = cause.Holds
		}
		if asynchronous, known := found["replication_asynchronous"]; !known || asynchronous != c.asynchronous || found["standby_away"] != c.away {
			t.Errorf("%+v: %v", c, found)
		}
	}
	u, err := url.Parse(settings.Postgres.URL)
	servers.NoError(t, err)
	u.User = url.UserPassword("plain", "secret")
	settings.Postgres.URL = u.String()
	p := started(t, settings)
	go func() { _, _ = p.DB.Exec(t.Context(), `SELECT pg_logical_emit_message(true, '', '')`) }()
	servers.Eventually(t, "a role that sees no standby sees that its commits wait", func() bool {
		return slices.ContainsFunc(p.readPostgres(t.Context()).causes, func(c telemetry.Cause) bool { return c.Name == causeStandbyAway && c.Holds })
	})
}
