//go:build soak || web

package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"triprize/devkit/devstack"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"

	"github.com/google/uuid"
)

// about is dev.json.
type about struct {
	APIURL      string `json:"api_url"`
	PostgresURL string `json:"postgres_url"`
	RedisURL    string `json:"redis_url"`
	OperatorKey string `json:"operator_key"`
	AppKey      string `json:"app_key"`
	SandboxURL  string `json:"sandbox_url"`
	SandboxKey  string `json:"sandbox_key"`
	PIDs        struct {
		API, Worker, Scheduler []int
		Postgres, Redis        int
		PostgresPrimary        int `json:"postgres_primary"`
		RedisPrimary           int `json:"redis_primary"`
		Servers                []int
	} `json:"pids"`
	MetricsURLs []string `json:"metrics_urls"`
	Beacon      *struct {
		ChainHash string `json:"chain_hash"`
		Relays    []string
	}
}

// all returns every process id.
func (a about) all() []int {
	return slices.Concat([]int{a.PIDs.Postgres, a.PIDs.Redis, a.PIDs.PostgresPrimary, a.PIDs.RedisPrimary}, a.PIDs.Servers, a.PIDs.API, a.PIDs.Worker, a.PIDs.Scheduler)
}

func readAbout(dir string) (a about, ok bool) {
	data, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	if err != nil || json.Unmarshal(data, &a) != nil {
		return a, false
	}
	return a, !slices.Contains(a.all(), 0) && len(a.PIDs.API) == 1 && len(a.PIDs.Worker) == 2 && len(a.PIDs.Scheduler) == 1
}

// ask sends a request to the api, or to a host that begins the path.
func (a about) ask(t *testing.T, method, path, key string, body any) fleet.Answer {
	t.Helper()
	return a.send(t, method, path, key, uuid.NewString(), body)
}

func (a about) send(t *testing.T, method, path, key, idempotencyKey string, body any) fleet.Answer {
	t.Helper()
	host := a.APIURL
	if !strings.HasPrefix(path, "/") {
		host, path, _ = strings.Cut(path, "/")
		host, path = "http://"+host, "/"+path
	}
	s := &fleet.System{T: t, URLs: []string{host}}
	return s.Do(0, key, method, path, map[string]string{"Idempotency-Key": idempotencyKey, "Prefer": fleet.UntilFinal}, body)
}

// want is ask that wants a status. A release gives up servers that are too slow: then it asks again, with the same
// idempotency key, as the 503 says.
func (a about) want(t *testing.T, status int, method, path, key string, body any) (answer fleet.Answer) {
	t.Helper()
	once := uuid.NewString()
	servers.Eventually(t, "the api answers "+method+" "+path, func() bool {
		answer = a.send(t, method, path, key, once, body)
		return answer.Status != http.StatusServiceUnavailable
	})
	if answer.Status != status {
		t.Fatalf("%s %s: %v %s", method, path, answer, answer.Body)
	}
	return answer
}

// startDev runs triprize-dev dev on a folder, with further flags, and waits until it is up.
func startDev(t *testing.T, dir string, flags ...string) (*exec.Cmd, about) {
	t.Helper()
	listen, err := devstack.FreeAddress()
	servers.NoError(t, err)
	programs, err := released()
	servers.NoError(t, err)
	cmd := exec.Command(filepath.Join(programs, "triprize-dev"), append([]string{"dev", "--listen", listen, "--data", dir, "--workers", "2"}, flags...)...)
	output := filepath.Join(t.TempDir(), "output")
	file, err := os.Create(output)
	servers.NoError(t, err)
	defer func() { _ = file.Close() }()
	cmd.Stdout, cmd.Stderr = file, file
	servers.NoError(t, cmd.Start())
	said := func() []byte {
		data, err := os.ReadFile(output)
		if err != nil {
			t.Error(err)
		}
		return data
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s", said())
		}
	})
	servers.Eventually(t, "it says that all is running", func() bool { return fleet.Contains(said(), "Triprize is running.") })
	var a about
	servers.Eventually(t, "dev.json is complete", func() (ok bool) {
		a, ok = readAbout(dir)
		return ok && a.APIURL == "http://"+listen // and not that of an earlier run
	})
	servers.NoError(t, devstack.AwaitHTTP(t.Context(), a.APIURL+"/readyz"))
	return cmd, a
}

// runDev runs the developer's tool to its end.
func runDev(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return runCommand(t, exec.Command(triprize(t)+"-dev", args...), nil)
}

// openDir returns a throw-away folder that the user of Postgres can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "triprize-test-*")
	servers.NoError(t, err)
	servers.NoError(t, os.Chmod(dir, 0o711)) // so that it can be entered
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "data")
}
