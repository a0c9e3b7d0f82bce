package redisx_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/redisx"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// What is said without Redis, package boot tests.
func TestAServerOfAnotherKindIsNamed(t *testing.T) {
	t.Parallel()
	url := servers.OwnRedis(t).URL()
	open := func(scheme, query string) redis.UniversalClient {
		settings := servers.Patient(servers.Defaults(t))
		settings.Redis.URL = strings.Replace(url, "redis", scheme, 1) + query
		return servers.Redis(t, settings)
	}
	check := func(rdb redis.UniversalClient, want string) {
		t.Helper()
		if err := redisx.CheckKind(t.Context(), rdb); !errors.Is(err, redisx.ErrKind) || err.Error() != want {
			t.Errorf("got %v", err)
		}
	}
	rdb := open("redis", "")
	servers.NoError(t, redisx.CheckKind(t.Context(), rdb))
	check(open("redis+cluster", ""), "names no node of a Redis Cluster; use redis://")
	check(open("redis+sentinel", "?master_name=shop"), "names no Sentinel; use the address and port of one, or redis://")
	servers.NoError(t, rdb.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	check(rdb, "names a replica; use its primary, or redis+sentinel://")
	servers.NoError(t, rdb.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	servers.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err())
	servers.NoError(t, redisx.CheckKind(t.Context(), rdb)) // nobody can tell
}

func TestTheUsedMemoryIsAShareOfTheMost(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Defaults(t))
	settings.Redis.URL = servers.OwnRedis(t).URL()
	rdb := servers.Redis(t, settings)
	for _, row := range []struct {
		most          string
		least, atMost float64
	}{{"0", 0, 0}, {"100mb", 0.001, 0.5}, {"1", 100_000, 1e9}} {
		servers.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", row.most).Err())
		if share, err := redisx.MemoryUse(t.Context(), rdb); err != nil || share < row.least || share > row.atMost {
			t.Errorf("of %s it is %g, %v", row.most, share, err)
		}
	}
}

// The name in the certificate is 127.0.0.1. Of several servers each has its own.
func TestTheCAFileDecidesWhoIsTrusted(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ca.pem")
	for _, url := range []string{"rediss://%s", "rediss+sentinel://localhost:1?master_name=shop&addr=%s", "rediss+cluster://localhost:1?addr=%s"} {
		for ca, want := range map[string]bool{file: true, "": false} {
			page, trusts := httptest.NewUnstartedServer(nil), make(chan bool, 100) // after each handshake
			page.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			page.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state != http.StateNew {
					trusts <- state == http.StateActive
				}
			}
			page.StartTLS()
			certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: page.Certificate().Raw})
			servers.NoError(t, os.WriteFile(file, certificate, 0o600))
			rdb, err := redisx.Open(config.Redis{URL: fmt.Sprintf(url, page.Listener.Addr()), CAFile: ca, Timeout: servers.Patience}, "test")
			servers.NoError(t, err)
			_ = rdb.Ping(t.Context())
			if got := <-trusts; got != want {
				t.Errorf("%s with the file %q: the certificate is trusted: %v", url, ca, got)
			}
			servers.NoError(t, rdb.Close())
			page.Close()
		}
	}
	for _, ca := range []string{file + "x", os.Args[0]} {
		if _, err := redisx.Open(config.Redis{URL: "rediss://127.0.0.1:1", CAFile: ca}, "test"); err == nil || !strings.Contains(err.Error(), "setting redis.ca_file (TRIPRIZE_REDIS_CA_FILE)") {
			t.Errorf("the file %s: %v", ca, err)
		}
	}
}
