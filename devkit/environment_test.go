package devkit

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// occupied returns an address on which somebody answers every request with 200.
func occupied(t *testing.T) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestAnAddressThatIsTakenIsRefusedBeforeAnythingIsStarted(t *testing.T) {
	t.Parallel()
	listen, dir := occupied(t), filepath.Join(t.TempDir(), "data")
	stdout, stderr, status := run("dev", "--listen", listen, "--data", dir)
	if status != 1 || stdout != "" || !strings.Contains(stderr, listen+" is in use; choose another with --listen") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was made: something was started")
	}
}

func TestSettingsThatDevChoosesAreRefusedBeforeAnythingIsStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "own.yaml")
	for text, c := range map[string]struct {
		flag, reason string
	}{
		"postgres: {url: 'postgres://mine/db'}":          {"--listen=127.0.0.1:0", "setting postgres.url cannot be chosen here"},
		"payments: {stripe: {key: sk_test_of_somebody}}": {"--listen=127.0.0.1:0", "setting payments.stripe.key cannot be chosen here"},
		"beacon: {relays: 'https://api.drand.sh'}":       {"--beacon", "setting beacon.relays cannot be chosen here"},
		"holds: {tll: 5m}":                               {"--listen=127.0.0.1:0", "unknown setting holds.tll"},
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		data := filepath.Join(dir, "data")
		stdout, stderr, status := run("dev", "--data", data, "--config", file, c.flag)
		if status != 1 || stdout != "" || !strings.Contains(stderr, c.reason) {
			t.Errorf("%s: status %d\n%s%s", text, status, stdout, stderr)
		}
		if _, err := os.Stat(data); err == nil {
			t.Fatal("the folder was made: something was started")
		}
	}
}
