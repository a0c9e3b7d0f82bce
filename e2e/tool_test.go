package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/devstack"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/migrations"
)

var tool struct {
	sync.Once
	path string
	err  error
}

// triprize returns the operator's tool, built once, with the fleet beside it.
func triprize(t *testing.T) string {
	t.Helper()
	tool.Do(func() {
		built, err := fleet.Binaries() // makes the folder that is removed at the end
		if err != nil {
			tool.err = err
			return
		}
		dir := filepath.Join(built, "release")
		if tool.err = os.MkdirAll(dir, 0o700); tool.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", dir+"/", "triprize/cmd/...").CombinedOutput()
		if tool.path, tool.err = filepath.Join(dir, "triprize"), err; err != nil {
			t.Logf("%s", out)
		}
	})
	if tool.err != nil {
		t.Fatal(tool.err)
	}
	return tool.path
}

// run runs the tool to its end.
func run(t *testing.T, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.Command(triprize(t), args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Run returns it bare
		return out.String(), errs.String(), exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), 0
}

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
	} `json:"pids"`
	MetricsURLs []string `json:"metrics_urls"`
	Beacon      *struct {
		ChainHash string `json:"chain_hash"`
		Relays    []string
	}
}

// all returns every process id.
func (a about) all() []int {
	return append(append(append([]int{a.PIDs.Postgres, a.PIDs.Redis}, a.PIDs.API...), a.PIDs.Worker...), a.PIDs.Scheduler...)
}

func readAbout(dir string) (a about, ok bool) {
	data, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	if err != nil || json.Unmarshal(data, &a) != nil {
		return a, false
	}
	for _, pid := range a.all() {
		ok = pid != 0
	}
	return a, ok && len(a.PIDs.API) == 1 && len(a.PIDs.Worker) == 2 && len(a.PIDs.Scheduler) == 1
}

func alive(pid int) bool {
	state := processState(pid)
	return state != "" && state != "Z"
}

// startDev runs triprize dev on a folder, with further flags, and waits until it is up.
func startDev(t *testing.T, dir string, flags ...string) (*exec.Cmd, about) {
	t.Helper()
	listen, err := devstack.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(triprize(t), append([]string{"dev", "--listen", listen, "--data", dir, "--workers", "2"}, flags...)...)
	cmd.Env = append(os.Environ(), "TRIPRIZE_API_MAX_WAIT=3m")
	output := filepath.Join(t.TempDir(), "output")
	file, err := os.Create(output)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
	fixture.Eventually(t, "it says that all is running", func() bool { return fleet.Contains(said(), "Triprize is running.") })
	var a about
	fixture.Eventually(t, "dev.json is complete", func() (ok bool) {
		a, ok = readAbout(dir)
		return ok && a.APIURL == "http://"+listen // and not that of an earlier run
	})
	if err := devstack.AwaitHTTP(t.Context(), a.APIURL+"/readyz"); err != nil {
		t.Fatal(err)
	}
	return cmd, a
}

// openDir returns a throw-away folder that the user of Postgres can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "triprize-test-*")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // so that it can be entered
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "data")
}

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
	fixture.Eventually(t, "everything that was killed is started again, and dev.json says so", func() (ok bool) {
		after, ok = readAbout(dir)
		return ok && after.PIDs.API[0] != before.PIDs.API[0] && after.PIDs.Scheduler[0] != before.PIDs.Scheduler[0] &&
			after.PIDs.Redis != before.PIDs.Redis && after.PIDs.Postgres != before.PIDs.Postgres
	})
	if after.PIDs.Worker[0] == before.PIDs.Worker[0] && after.PIDs.Worker[1] == before.PIDs.Worker[1] {
		t.Errorf("workers %v", after.PIDs.Worker)
	}
	fixture.Eventually(t, "the api is ready again", func() bool {
		response, err := http.Get(after.APIURL + "/readyz") //nolint:noctx // loopback
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	if _, stderr, status := run(t, nil, "dev", "--data", dir, "--listen", "127.0.0.1:0"); status != 1 || !strings.Contains(stderr, "another process uses this folder") {
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

// payAtSandbox makes a payment at the sandbox of a running triprize dev, and returns how
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
	stdout, stderr, status := run(t, nil, "demo", "--json", "--base-length", "5", "--buyers", "40")
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
	cmd := exec.Command(triprize(t), "demo", "--json", "--base-length", "50", "--buyers", "2000") // longer than an interrupt takes
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
	stdout, stderr, status := run(t, nil, "demo", "--base-length", "4", "--buyers", "7")
	if status != 0 || !strings.Contains(stdout, "7 buyers for 10 positions: 7 succeeded, 0 refused, drawn 0 time(s)") {
		t.Errorf("status %d: %s\n%s", status, stdout, stderr)
	}
	if _, stderr, status := run(t, nil, "demo", "--buyers", "0"); status != 1 || !strings.Contains(stderr, "--buyers") {
		t.Errorf("without buyers: status %d, %s", status, stderr)
	}
}

func TestEveryProgramSaysItsVersion(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"api", "worker", "scheduler", "triprize"} {
		out, err := exec.Command(filepath.Join(filepath.Dir(triprize(t)), name), "--version").Output() // without any setting
		if line := string(out); err != nil || !regexp.MustCompile(`^`+name+` \S+ \(go\S+, \w+/\w+\)\n$`).MatchString(line) {
			t.Errorf("%s: %q, %v", name, line, err)
		}
	}
}

func TestMigrationsAndKeysByHand(t *testing.T) {
	t.Parallel()
	settings := fixture.Settings(t)
	env := []string{"TRIPRIZE_POSTGRES_URL=" + settings.Postgres.URL, "TRIPRIZE_REDIS_URL=" + settings.Redis.URL,
		"TRIPRIZE_DRAW_SECRET_KEY=" + settings.Draw.SecretKey, "TRIPRIZE_POSTGRES_START_WAIT=0"}
	expect := func(want string, args ...string) string {
		t.Helper()
		stdout, stderr, status := run(t, env, args...)
		if status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%v: status %d\n%s%s", args, status, stdout, stderr)
		}
		return stdout
	}
	expect("up to date", "migrate", "up")
	newest := fmt.Sprintf("%05d", newestMigration(t))
	expect(newest, "migrate", "down")
	expect("pending", "migrate", "status")
	if _, stderr, status := runBeside(t, env, "worker"); status != 1 || !strings.Contains(stderr, "triprize migrate up") {
		t.Errorf("a worker on an older schema: status %d, %s", status, stderr)
	}
	expect(newest, "migrate", "up")
	db := fixture.Pool(t, settings)
	if _, err := db.Exec(t.Context(), `CREATE TABLE kept AS SELECT * FROM goose_db_version; DELETE FROM goose_db_version WHERE version_id > 8;
		INSERT INTO wallets (id, owner_id, currency) VALUES (gen_random_uuid(), 'alice', 'JPY')`); err != nil {
		t.Fatal(err) // the migration with the wallets is the newest one
	}
	if _, stderr, status := run(t, env, "migrate", "down"); status != 1 || !strings.Contains(stderr, "wallets: 1 row") || !strings.Contains(stderr, "--destroy-data") {
		t.Errorf("wallets with money in them: status %d, %s", status, stderr)
	}
	if _, err := db.Exec(t.Context(), `INSERT INTO goose_db_version SELECT * FROM kept WHERE version_id > 8`); err != nil {
		t.Fatal(err)
	}
	expect("", "audit")

	key := strings.TrimSpace(expect("tp_", "key", "create", "--role", "app", "--client", "shop-1"))
	prefix := strings.Split(key, "_")[1]
	if list := expect(prefix, "key", "list"); strings.Contains(list, strings.Split(key, "_")[2]) || !strings.Contains(list, "never") {
		t.Errorf("the list shows the secret, or that the key was used: %s", list)
	}
	expect("", "key", "revoke", prefix)
	expect(`"revoked_at":"20`, "key", "list", "--json")
	for _, args := range [][]string{{"key", "create", "--role", "king", "--client", "x"}, {"key", "create", "--role", "app", "--client", "No Spaces"},
		{"key", "create"}, {"key", "revoke", "000000000000"}, {"migrate", "sideways"}, {"nonsense"}} {
		if _, stderr, status := run(t, env, args...); status == 0 || stderr == "" {
			t.Errorf("%v: status %d, %q", args, status, stderr)
		}
	}
}

func TestTheAuditFindsWhatIsBrokenAndSaysSo(t *testing.T) {
	t.Parallel()
	settings := fixture.Settings(t)
	env := []string{"TRIPRIZE_POSTGRES_URL=" + settings.Postgres.URL, "TRIPRIZE_REDIS_URL=" + settings.Redis.URL}
	db, err := postgres.Open(t.Context(), settings.Postgres, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	id := fixture.Campaign(t, db, fixture.Draft(3))
	fixture.Sell(t, db, id, 2)
	if stdout, stderr, status := run(t, env, "audit"); status != 0 || !strings.Contains(stdout, "invariants hold") {
		t.Errorf("a sound database: status %d, %s%s", status, stdout, stderr)
	}
	if _, err := db.Exec(t.Context(), `UPDATE campaigns SET positions_sold = 3 WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := run(t, env, "audit")
	if status != 1 || !strings.Contains(stdout, "counts 3 sold") || !strings.Contains(stderr, "1 violations") {
		t.Errorf("a counter that is wrong: status %d, %s%s", status, stdout, stderr)
	}
	stdout, _, status = run(t, env, "audit", "--json")
	var report struct {
		OK         bool
		Invariants int
		Violations []struct{ Invariant, Subject string }
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || status != 1 || report.OK || report.Invariants < 20 || len(report.Violations) != 1 {
		t.Errorf("as JSON: status %d, %v, %s", status, err, stdout)
	}
	if _, stderr, status := run(t, env, "audit", "--limit", "0"); status != 1 || !strings.Contains(stderr, "--limit") {
		t.Errorf("a limit of nothing: status %d, %s", status, stderr)
	}
}

// newestMigration returns the number of the last migration there is.
func newestMigration(t *testing.T) int {
	t.Helper()
	files, err := fs.Glob(migrations.Files, "*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	number, _, _ := strings.Cut(files[len(files)-1], "_")
	newest, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	return newest
}

// runBeside runs a binary of the fleet that is expected to end by itself.
func runBeside(t *testing.T, env []string, name string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(triprize(t)), name))
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
