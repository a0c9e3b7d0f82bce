//go:build web

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// compressing is the part of nginx' settings that a proxy needs which compresses what it passes on.
const compressing = `daemon off;
pid %[1]s/pid;
error_log stderr;
events {}
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  gzip on;
  gzip_proxied any;
  gzip_min_length 1;
  gzip_types application/json;
  server {
    listen unix:%[1]s/socket;
    location / { proxy_pass %[2]s; }
  }
}
`

// behindNginx starts nginx before an api, and returns a client that reaches nothing else.
func behindNginx(t *testing.T, url string) *http.Client {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		program = "/usr/sbin/nginx" // which Debian leaves out of the PATH of a user
	}
	dir, err := os.MkdirTemp("", "nginx") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	settings, socket := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "socket")
	if err := os.WriteFile(settings, fmt.Appendf(nil, compressing, dir, url), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-c", settings, "-p", dir)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	servers.Eventually(t, "nginx listens", func() bool {
		conn, err := dial(t.Context(), "", "")
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	return &http.Client{Transport: &http.Transport{DialContext: dial}} // it accepts gzip by itself
}

// The guide's recipe for a decision on a balance holds where a proxy compresses the answers: it makes tags weak.
func TestABalanceIsDecidedOnBehindAProxyThatCompresses(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{})
	proxy, wallet := behindNginx(t, s.URLs[0]), s.Wallet("mina", 1000)
	ask := func(method, path, body string, header ...string) (status int, tag string, zipped bool) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://shop.example"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+s.App)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", uuid.NewString())
		for i := 0; i < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		answer, err := proxy.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode, answer.Header.Get("ETag"), answer.Uncompressed
	}
	status, tag, zipped := ask(http.MethodGet, wallet, "")
	if status != http.StatusOK || !zipped || tag != `W/"1"` {
		t.Fatalf("the wallet: %d, %s, compressed: %t", status, tag, zipped)
	}
	if status, after, _ := ask(http.MethodPost, wallet+"/debit", `{"amount":100}`, "If-Match", tag); status != http.StatusOK || after != `W/"2"` {
		t.Errorf("at the version that was read: %d, %s", status, after)
	}
	if status, _, _ := ask(http.MethodPost, wallet+"/debit", `{"amount":100}`, "If-Match", tag); status != http.StatusPreconditionFailed {
		t.Errorf("at a version that is over: %d", status)
	}
	campaign := "/v1/campaigns/" + s.Campaign(3).String()
	_, seen, _ := ask(http.MethodGet, campaign, "")
	if status, _, _ := ask(http.MethodGet, campaign, "", "If-None-Match", seen); seen == "" || status != http.StatusNotModified {
		t.Errorf("a campaign that was read: %d", status)
	}
	s.ExpectWallet(wallet, 900, 0)
}
