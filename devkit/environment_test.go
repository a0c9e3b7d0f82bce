package devkit

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triprize/devkit/devstack"
	"triprize/sandbox/stripesim"
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

func TestAnAddressThatIsTakenIsRefusedAlsoAfterALookForLeftovers(t *testing.T) {
	t.Parallel()
	listen := occupied(t)
	parent, err := os.MkdirTemp("", "triprize-test-*") // one that the user of Postgres can enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	dir := filepath.Join(parent, "data")
	if err := errors.Join(os.Chmod(parent, 0o711), os.Mkdir(dir, 0o711)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, aboutFile), []byte("{}"), 0o600); err != nil { // as a killed run leaves it
		t.Fatal(err)
	}
	stdout, stderr, status := run("dev", "--listen", listen, "--data", dir)
	if status != 1 || stdout != "" || !strings.Contains(stderr, listen+" is in use; choose another with --listen") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "log")); err == nil {
		t.Error("the fleet was started")
	}
}

func TestAnAddressThatIsFreeIsLeftFree(t *testing.T) {
	t.Parallel()
	e := &environment{listen: "127.0.0.1:0"}
	if err := e.checkListen(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, port, err := net.SplitHostPort(e.listen); err != nil || port == "0" {
		t.Fatalf("the address is %s, %v", e.listen, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", e.listen)
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	e.listen = "192.0.2.1:8080" // nobody's
	if err := e.checkListen(t.Context()); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("got %v", err)
	}
}

// Processes start and end while dev.json is written. The race detector finds a list that
// both use.
func TestEveryProcessIsInDevJSONWhileOthersStart(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(t.Context(), devstack.Options{Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, kind := range []string{"api", "worker", "scheduler"} {
		if err := os.Symlink("/bin/cat", filepath.Join(bin, kind)); err != nil { // it ends at once: nothing is to be read
			t.Fatal(err)
		}
	}
	e := &environment{dir: t.TempDir(), listen: "127.0.0.1:0", sandbox: sandbox{Running: &stripesim.Running{}}}
	described := make(chan struct{}, 100)
	e.fleet = &devstack.Fleet{BinDir: bin, LogDir: t.TempDir(), Scraped: true, Stack: stack, Logger: slog.New(slog.DiscardHandler),
		Changed: func() { e.describe(); described <- struct{}{} }}
	defer func() {
		if err := e.stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := e.startProcesses(4); err != nil {
		t.Fatal(err)
	}
	for range 2 * 6 { // each starts and ends
		<-described
	}
	data, err := os.ReadFile(filepath.Join(e.dir, aboutFile))
	if err != nil {
		t.Fatal(err)
	}
	var written about
	if err := json.Unmarshal(data, &written); err != nil || len(written.MetricsURLs) != 6 {
		t.Errorf("%v: %s", err, data)
	}
}
