package boot

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/schema"
	"triprize/internal/platform/telemetry"
	"triprize/internal/testkit/servers"
)

// started returns a process as it is before it begins to work.
func started(t *testing.T, settings config.Settings) *Process {
	t.Helper()
	own := postgres.NewServers(servers.Logger(t))
	db, err := own.Open(context.Background(), settings.Postgres, "test")
	servers.NoError(t, err)
	t.Cleanup(db.Close)
	return &Process{Name: "worker", Settings: settings, Logger: servers.Logger(t), DB: db, Redis: servers.Redis(t, settings),
		Health: telemetry.NewHealth(), servers: own, apart: db}
}

// The newest primary that any process has seen is in Redis. A process whose server is another one is not ready until
// an operator deletes the key and restarts it.
func TestAProcessRefusesAnotherPrimary(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	first := started(t, settings)
	key, mac := settings.Redis.Namespace+":primary", keyring.NewMAC(settings.Draw.SecretKey)
	sealed := func(p postgres.Primary) string {
		value, _ := json.Marshal(p)
		return string(mac.Seal(key, value))
	}
	now, err := first.servers.Identify(t.Context(), first.DB)
	servers.NoError(t, err)
	expect := func(value string) {
		t.Helper()
		if got := first.Redis.Get(t.Context(), key).Val(); got != value {
			t.Errorf("Redis has %q, not %q", got, value)
		}
	}
	servers.NoError(t, first.Redis.Set(t.Context(), key, "forged", 0).Err())
	servers.NoError(t, first.checkPostgres(t.Context()))
	expect(sealed(now))
	branch, promoted := now, postgres.Primary{System: now.System, Timeline: now.Timeline + 1}
	branch.Branch = "another"
	servers.NoError(t, first.Redis.Set(t.Context(), key, sealed(branch), 0).Err())
	if err := started(t, settings).checkPostgres(t.Context()); !errors.Is(err, telemetry.ErrBranches) {
		t.Errorf("the check of another branch: %v", err)
	}
	servers.NoError(t, first.Redis.Set(t.Context(), key, sealed(promoted), 0).Err())
	p := started(t, settings)
	if err := p.checkPostgres(t.Context()); !errors.Is(err, postgres.ErrAnotherPrimary) {
		t.Errorf("its check: %v", err)
	}
	servers.NoError(t, first.Redis.Del(t.Context(), key).Err())
	if err := p.checkPostgres(t.Context()); err == nil {
		t.Error("it is accepted without the key")
	}
	expect("")
	servers.NoError(t, started(t, settings).checkPostgres(t.Context()))
	expect(sealed(now))
}

// Commits wait for a standby by two settings of Postgres. The rehearsal of its alerts has one that is there, and none.
func TestReplicationThatIsRequiredIsWatched(t *testing.T) {
	t.Parallel()
	settings := servers.OwnPostgres(t)
	settings.Postgres.RequireSyncStandby = true
	admin := servers.Pool(t, settings)
	servers.NoError(t, schema.Migrate(t.Context(), admin))
	servers.Exec(t, admin, `CREATE ROLE plain LOGIN PASSWORD 'secret'; GRANT pg_read_all_data TO plain`)
	causes := func(p *Process) map[string]bool {
		found := make(map[string]bool)
		servers.Eventually(t, "they are read in time", func() bool {
			for _, cause := range p.readPostgres(t.Context()).causes {
				found[cause.Name] = cause.Holds
			}
			return len(found) > 0
		})
		return found
	}
	if found := causes(started(t, settings)); !found[causeAsynchronous] || found[causeStandbyAway] {
		t.Errorf("without a standby: %v", found)
	}
	servers.NameStandby(t, admin, "nobody")
	for commit, want := range map[string]bool{"on": false, "remote_apply": false, "remote_write": true, "local": true, "off": true} {
		own := settings
		own.Postgres.URL += "&options=-csynchronous_commit%3D" + commit
		found := causes(started(t, own))
		if asynchronous, known := found[causeAsynchronous]; !known || asynchronous != want || !found[causeStandbyAway] {
			t.Errorf("%s: %v", commit, found)
		}
	}
	settings.Postgres.URL += "&user=plain&password=secret"
	p := started(t, settings)
	go func() { _, _ = p.DB.Exec(t.Context(), `SELECT pg_logical_emit_message(true, '', '')`) }()
	servers.Eventually(t, "a role that sees no standby sees that its commits wait", func() bool { return causes(p)[causeStandbyAway] })
}
