//go:build soak

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

func TestDevKeepsTheSystemRunningAndStopsItWhole(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	cmd, before := startDev(t, dir)
	if info, err := os.Stat(filepath.Join(dir, "dev.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("dev.json has keys in it and the mode %v", info.Mode())
	}
	for _, pid := range []int{before.PIDs.API[0], before.PIDs.Worker[0], before.PIDs.Scheduler[0], before.PIDs.Redis, before.PIDs.Postgres} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	var after about
	servers.Eventually(t, "everything that was killed is started again, and dev.json says so", func() (ok bool) {
		after, ok = readAbout(dir)
		return ok && after.PIDs.API[0] != before.PIDs.API[0] && after.PIDs.Scheduler[0] != before.PIDs.Scheduler[0] &&
			after.PIDs.Redis != before.PIDs.Redis && after.PIDs.Postgres != before.PIDs.Postgres
	})
	if after.PIDs.Worker[0] == before.PIDs.Worker[0] && after.PIDs.Worker[1] == before.PIDs.Worker[1] {
		t.Errorf("workers %v", after.PIDs.Worker)
	}
	servers.Eventually(t, "the api is ready again", func() bool {
		response, err := http.Get(after.APIURL + "/readyz") //nolint:noctx // loopback
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	if _, stderr, status := runDev(t, "dev", "--data", dir, "--listen", "127.0.0.1:0"); status != 1 || !strings.Contains(stderr, "another process uses this folder") {
		t.Errorf("a second dev on the folder: status %d, %s", status, stderr)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("dev ended with %v", err)
	}
	for _, pid := range after.all() {
		if alive(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "dev.json")); err == nil {
		t.Error("dev.json is still there")
	}
}

// payAtSandbox makes a payment at the sandbox of a running triprize-dev dev, and returns how
// many there are.
func payAtSandbox(t *testing.T, a about) int {
	t.Helper()
	ask := func(method, form string) (body struct{ Data []any }) {
		request, err := http.NewRequestWithContext(t.Context(), method, a.SandboxURL+"/v1/payment_intents", strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth(a.SandboxKey, "")
		if form != "" {
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.Status, err)
		}
		return body
	}
	ask(http.MethodPost, "amount=500&currency=jpy&payment_method=pm_card_visa")
	return len(ask(http.MethodGet, "").Data)
}

func TestDevFindsItsDataAndTheLeftoversOfAKilledRun(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	cmd, before := startDev(t, dir)
	if n := payAtSandbox(t, before); n != 1 {
		t.Errorf("a new sandbox has %d payments after the first", n)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	_, after := startDev(t, dir)
	if n := payAtSandbox(t, after); n != 2 || after.SandboxKey != before.SandboxKey {
		t.Errorf("after a kill the sandbox has %d payments", n)
	}
	if after.OperatorKey != before.OperatorKey || after.AppKey != before.AppKey {
		t.Error("the keys of the folder changed")
	}
	request, _ := http.NewRequest(http.MethodGet, after.APIURL+"/v1/campaigns", nil)
	request.Header.Set("Authorization", "Bearer "+before.OperatorKey)
	if a := fleet.Send(request); a.Status != http.StatusOK {
		t.Errorf("the old key: %v", a)
	}
	for _, pid := range before.all() {
		if alive(pid) {
			t.Errorf("process %d of the killed run is still there", pid)
		}
	}
}

func TestTheDemoHoldsWhatItPromises(t *testing.T) {
	t.Parallel()
	stdout, stderr, status := runDev(t, "demo", "--json", "--base-length", "5", "--buyers", "40")
	var r struct {
		Positions, Buyers, Accepted, Succeeded, Rejected, Sold, Draws int
		Winners                                                       []struct{ Prize int }
		DurationMS                                                    int64                           `json:"duration_ms"`
		PurchasesPerSecond                                            float64                         `json:"purchases_per_second"`
		LatencyMS                                                     struct{ P50, P95, P99 float64 } `json:"latency_ms"`
		OK                                                            bool
	}
	decoder := json.NewDecoder(strings.NewReader(stdout))
	if err := decoder.Decode(&r); err != nil || decoder.More() {
		t.Fatalf("stdout is not one document: %v\n%s\n%s", err, stdout, stderr)
	}
	if status != 0 || !r.OK || r.Positions != 15 || r.Buyers != 40 || r.Accepted != 40 || r.Succeeded != 15 || r.Rejected != 25 ||
		r.Sold != 15 || r.Draws != 1 || len(r.Winners) != 5 || r.DurationMS <= 0 || r.PurchasesPerSecond <= 0 || r.LatencyMS.P50 <= 0 || r.LatencyMS.P99 < r.LatencyMS.P50 {
		t.Errorf("status %d: %s\n%s", status, stdout, stderr)
	}
}

func TestADemoThatIsInterruptedTellsWhatIsKnown(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(triprize(t)+"-dev", "demo", "--json", "--base-length", "50", "--buyers", "2000") // longer than an interrupt takes
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var errs strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		errs.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "is on sale") {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait()
	var r struct {
		CampaignID        uuid.UUID `json:"campaign_id"`
		Positions, Buyers int
		Winners           []struct{ Prize int }
		OK                *bool
	}
	decoder := json.NewDecoder(&stdout)
	if err := decoder.Decode(&r); err != nil || decoder.More() {
		t.Fatalf("stdout is not one document: %v\n%s", err, errs.String())
	}
	if cmd.ProcessState.ExitCode() != 1 || r.OK == nil || *r.OK || r.CampaignID == uuid.Nil || r.Positions != 1275 || r.Buyers != 2000 || r.Winners == nil ||
		!strings.Contains(errs.String(), "interrupted") {
		t.Errorf("%v: %+v\n%s", cmd.ProcessState, r, errs.String())
	}
}

func TestADemoThatDoesNotSellOutDrawsNothing(t *testing.T) {
	t.Parallel()
	stdout, stderr, status := runDev(t, "demo", "--base-length", "4", "--buyers", "7")
	if status != 0 || !strings.Contains(stdout, "7 buyers for 10 positions: 7 succeeded, 0 refused, drawn 0 time(s)") {
		t.Errorf("status %d: %s\n%s", status, stdout, stderr)
	}
	if _, stderr, status := runDev(t, "demo", "--buyers", "0"); status != 1 || !strings.Contains(stderr, "--buyers") {
		t.Errorf("without buyers: status %d, %s", status, stderr)
	}
}
