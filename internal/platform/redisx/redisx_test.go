package redisx_test

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triprize/internal/platform/config"
	"triprize/internal/platform/redisx"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

func TestAServerOfAnotherKindIsNamed(t *testing.T) {
	t.Parallel()
	server := servers.OwnRedis(t)
	check := func(url, want string) {
		t.Helper()
		settings := servers.Patient(servers.Defaults(t))
		settings.Redis.URL = url
		err := redisx.CheckKind(t.Context(), servers.Redis(t, settings))
		if (want == "") != (err == nil) || err != nil && (!errors.Is(err, redisx.ErrKind) || err.Error() != want) {
			t.Errorf("%s: %v", url, err)
		}
	}
	as := func(scheme string) string { return strings.Replace(server.URL(), "redis", scheme, 1) }
	check(server.URL(), "")
	check(as("redis+cluster"), "names no node of a Redis Cluster; use redis://")
	check(as("redis+sentinel")+"?master_name=shop", "names no Sentinel; use the address and port of one, or redis://")
	settings := servers.Defaults(t)
	settings.Redis.URL = server.URL()
	rdb := servers.Redis(t, settings)
	servers.NoError(t, rdb.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	check(server.URL(), "names a replica; use its primary, or redis+sentinel://")
	servers.NoError(t, rdb.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	servers.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err())
	check(server.URL(), "") // nobody can tell
	servers.NoError(t, server.Stop())
	settings.Redis.Timeout = servers.Patience
	if err := redisx.CheckKind(t.Context(), servers.Redis(t, settings)); err == nil || errors.Is(err, redisx.ErrKind) {
		t.Errorf("without Redis: %v", err)
	}
}

// The name in the certificate is 127.0.0.1. Of several servers each has its own.
func TestTheCAFileDecidesWhoIsTrusted(t *testing.T) {
	t.Parallel()
	page := httptest.NewTLSServer(nil) // for its certificate
	page.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	servers.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: page.Certificate().Raw}), 0o600))
	for _, url := range []string{"rediss://%s", "rediss+sentinel://localhost:1?master_name=shop&addr=%s", "rediss+cluster://localhost:1?addr=%s"} {
		for ca, want := range map[string]bool{file: true, "": false} {
			address, trusts := handshakes(t, page.TLS)
			url := fmt.Sprintf(url, address)
			rdb, err := redisx.Open(config.Redis{URL: url, CAFile: ca}, "test")
			servers.NoError(t, err)
			_ = rdb.Ping(t.Context())
			if got := <-trusts; got != want {
				t.Errorf("%s with the file %q: the certificate is trusted: %v", url, ca, got)
			}
			servers.NoError(t, rdb.Close())
		}
	}
	for _, ca := range []string{file + "x", os.Args[0]} {
		if _, err := redisx.Open(config.Redis{URL: "rediss://127.0.0.1:1", CAFile: ca}, "test"); err == nil || !strings.Contains(err.Error(), "setting redis.ca_file (TRIPRIZE_REDIS_CA_FILE)") {
			t.Errorf("the file %s: %v", ca, err)
		}
	}
}

// handshakes listens, and sends whether each handshake succeeds.
func handshakes(t *testing.T, server *tls.Config) (address string, trusts <-chan bool) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: server.Certificates})
	servers.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	results := make(chan bool, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func(conn net.Conn) {
				defer func() { _ = conn.Close() }()
				results <- conn.(*tls.Conn).Handshake() == nil
			}(conn)
		}
	}()
	return listener.Addr().String(), results
}
