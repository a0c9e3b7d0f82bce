//go:build soak

package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// payAtSandbox makes a payment at the sandbox, and returns how many there are.
func (a about) payAtSandbox(t *testing.T) int {
	t.Helper()
	form := url.Values{"amount": {"500"}, "currency": {"jpy"}, "payment_method": {"pm_card_visa"}}
	fleet.Want(t, http.StatusOK, askProvider(a.SandboxURL, a.SandboxKey, http.MethodPost, "/v1/payment_intents", form))
	return len(fleet.As[struct{ Data []any }](t, askProvider(a.SandboxURL, a.SandboxKey, http.MethodGet, "/v1/payment_intents", nil)).Data)
}

func (a about) stateOf(t *testing.T, campaign string) string {
	t.Helper()
	return string(a.ask(t, http.MethodGet, "/v1/campaigns/"+campaign, a.OperatorKey, nil).State)
}

// system returns a client of what runs.
func (a about) system(t *testing.T) *fleet.System {
	t.Helper()
	settings := servers.Patient(servers.Defaults(t))
	settings.Postgres.URL, settings.Redis.URL = a.PostgresURL, a.RedisURL
	return &fleet.System{T: t, URLs: []string{a.APIURL}, App: a.AppKey, DB: servers.Pool(t, settings), Redis: servers.Redis(t, settings)}
}

// kill kills processes, and waits until others are in their places, as dev.json says, and the standby, if there is to be
// one, is in step.
func (a about) kill(s *fleet.System, dir string, pids ...int) (now about) {
	s.T.Helper()
	for _, pid := range pids {
		servers.NoError(s.T, syscall.Kill(pid, syscall.SIGKILL))
	}
	killed := func(pid int) bool { return slices.Contains(pids, pid) }
	servers.Eventually(s.T, "everything that was killed is started again, and dev.json says so", func() (ok bool) {
		if now, ok = readAbout(dir); !ok || len(now.PIDs.Servers) != len(a.PIDs.Servers) || slices.ContainsFunc(now.all(), killed) {
			return false
		}
		const inStep = `SELECT (count(*) = 1) = $1 FROM pg_stat_replication WHERE sync_state = 'sync'`
		return s.DB.QueryRow(s.T.Context(), inStep, a.several()).Scan(&ok) == nil && ok
	})
	return now
}

// several tells whether servers have others that replace them.
func (a about) several() bool { return len(a.PIDs.Servers) > 4 } // single: 2, three: 4

// One folder through four lives, with each kind of servers: in the middle of a sale and while its draw waits for a round
// processes are killed, then dev itself, then it is stopped; with a beacon, without, and with it again.
func TestDevKeepsTheSystemRunningStopsItWholeAndFindsItsData(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) { liveFourTimes(t) })
	t.Run("three", func(t *testing.T) { liveFourTimes(t, "--redis", "three") })
	t.Run("sentinel", func(t *testing.T) { liveFourTimes(t, "--postgres", "standby", "--redis", "sentinel") })
	t.Run("cluster", func(t *testing.T) { liveFourTimes(t, "--postgres", "standby", "--redis", "cluster") })
}

func liveFourTimes(t *testing.T, flags ...string) {
	t.Parallel()
	dir, own := openDir(t), filepath.Join(t.TempDir(), "own.yaml")
	servers.NoError(t, os.WriteFile(own, []byte("campaigns: {max_positions: 55}\n"), 0o600))
	cmd, first := startDev(t, dir, append(flags, "--beacon", "--config", own)...)
	if info, err := os.Stat(filepath.Join(dir, "dev.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("dev.json has keys in it and the mode %v", info.Mode())
	}
	if first.Beacon == nil || len(first.Beacon.Relays) != 3 {
		t.Fatalf("dev.json says %+v of the beacon", first.Beacon)
	}
	for _, relay := range first.Beacon.Relays { // nobody has a round
		first.want(t, http.StatusOK, http.MethodPut, strings.TrimPrefix(relay, "http://")+"/control/faults", "", map[string]any{"away": "hang"})
	}
	withBeacon := fleet.CampaignBody(10)
	withBeacon["policies"] = map[string]any{"beacon": true}
	id := first.want(t, http.StatusCreated, http.MethodPost, "/v1/campaigns", first.OperatorKey, withBeacon).ID
	first.want(t, http.StatusOK, http.MethodPost, "/v1/campaigns/"+id.String()+"/publish", first.OperatorKey, nil)
	first.want(t, http.StatusBadRequest, http.MethodPost, "/v1/campaigns", first.OperatorKey, fleet.CampaignBody(11)) // more positions than --config allows
	if n := first.payAtSandbox(t); n != 1 {
		t.Errorf("a new sandbox has %d payments after the first", n)
	}

	s := first.system(t)
	servers.NoError(t, s.Redis.Set(t.Context(), "kept", "so far", 0).Err())
	sale := queueUp(s, id, 10, 8)
	sale.underWay()
	again := first.kill(s, dir, first.PIDs.API[0], first.PIDs.Worker[0], first.PIDs.Scheduler[0], first.PIDs.RedisPrimary, first.PIDs.PostgresPrimary)
	for _, primary := range []int{again.PIDs.RedisPrimary, again.PIDs.PostgresPrimary} {
		if promoted := slices.Contains(first.PIDs.Servers, primary); promoted != first.several() {
			t.Errorf("of %v the primaries %+v were killed; in their place is %d", first.PIDs.Servers, first.PIDs, primary)
		}
	}
	if n := sale.succeeded(); n != 55 {
		t.Errorf("%d orders succeeded for 55 positions", n)
	}
	again = again.kill(s, dir, again.PIDs.Servers[:2]...) // the standby, too
	servers.Eventually(t, "the api is ready again", func() bool { return again.ask(t, http.MethodGet, "/readyz", "", nil).Status == http.StatusOK })
	if _, stderr, status := runDev(t, "dev", "--data", dir, "--listen", "127.0.0.1:0"); status != 1 || !strings.Contains(stderr, "another process uses this folder") {
		t.Errorf("a second dev on the folder: status %d, %s", status, stderr)
	}
	servers.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()

	cmd, second := startDev(t, dir, flags...)
	noneLeft(t, again)
	s = second.system(t)
	place := func(of about) int { return slices.Index(of.PIDs.Servers, of.PIDs.RedisPrimary) }
	if place(second) != place(again) {
		t.Errorf("the primary of Redis was server %d, and is %d", place(again), place(second))
	}
	if kept, err := s.Redis.Get(t.Context(), "kept").Result(); kept != "so far" {
		t.Errorf("after a failover, a crash and a restart Redis has %q, %v", kept, err)
	}
	if n := second.payAtSandbox(t); n != 2 || second.SandboxKey != first.SandboxKey || second.OperatorKey != first.OperatorKey || second.AppKey != first.AppKey {
		t.Errorf("after a kill the sandbox has %d payments, and the keys are %+v, and were %+v", n, second, first)
	}
	if a := second.want(t, http.StatusBadRequest, http.MethodPost, "/v1/campaigns", first.OperatorKey, withBeacon); !fleet.Contains(a.Body, "/policies/beacon") || second.Beacon != nil {
		t.Errorf("without --beacon: %s, %+v", a.Body, second.Beacon)
	}
	for range 2 { // so that the last primary of Postgres was a standby at first
		second = second.kill(s, dir, second.PIDs.RedisPrimary, second.PIDs.PostgresPrimary)
		servers.Eventually(t, "without a relay the draw waits", func() bool { return second.stateOf(t, id.String()) == "drawing" })
	}
	servers.NoError(t, cmd.Process.Signal(os.Interrupt)) // Ctrl-C
	if err := cmd.Wait(); err != nil {
		t.Errorf("dev ended with %v", err)
	}
	noneLeft(t, second)
	if _, err := os.Stat(filepath.Join(dir, "dev.json")); err == nil {
		t.Error("dev.json is still there")
	}

	_, third := startDev(t, dir, "--beacon") // on one server of each, which waits for no standby
	if third.Beacon == nil || third.Beacon.ChainHash != first.Beacon.ChainHash {
		t.Fatalf("the chain was %+v, and is %+v", first.Beacon, third.Beacon)
	}
	s = third.system(t)
	s.AwaitDrawn(id)
	expectRecordsOnce(s, id)
	fixture.Sound(t, s.DB)
}

// noneLeft wants no process of a run to live.
func noneLeft(t *testing.T, of about) {
	t.Helper()
	for _, pid := range of.all() {
		if state := processState(pid); state != "" && state != "Z" {
			t.Errorf("process %d is still there", pid)
		}
	}
}

// Test mode and no standby are info.
func TestTheToolFindsNothingWrongWithAFreshDev(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	_, a := startDev(t, dir)
	programs, err := released()
	servers.NoError(t, err)
	tool := func(args ...string) (stdout, stderr string, status int) {
		return runCommand(t, exec.Command(filepath.Join(programs, "triprize"), args...), []string{"TRIPRIZE_API=" + a.APIURL, "TRIPRIZE_KEY=" + a.OperatorKey})
	}
	servers.Eventually(t, "all is well", func() bool { // processes find each other
		_, _, status := tool("status")
		return status == 0
	})
	for _, args := range [][]string{{"failed"}, {"user", "nobody"}, {"doctor", "--config", filepath.Join(dir, "triprize.yaml")}} {
		if stdout, stderr, status := tool(args...); status != 0 || stderr != "" || strings.Contains(stdout, "warning") || strings.Contains(stdout, "critical") {
			t.Errorf("%s: status %d\n%s%s", args, status, stdout, stderr)
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
		ColdLatencyMS                                                 struct{ P50, P95, P99 float64 } `json:"cold_latency_ms"`
		OK                                                            bool
	}
	decoder := json.NewDecoder(strings.NewReader(stdout))
	if err := decoder.Decode(&r); err != nil || decoder.More() {
		t.Fatalf("stdout is not one document: %v\n%s\n%s", err, stdout, stderr)
	}
	if status != 0 || !r.OK || r.Positions != 15 || r.Buyers != 40 || r.Accepted != 40 || r.Succeeded != 15 || r.Rejected != 25 ||
		r.Sold != 15 || r.Draws != 1 || len(r.Winners) != 5 || r.DurationMS <= 0 || r.PurchasesPerSecond <= 0 || r.LatencyMS.P50 <= 0 || r.LatencyMS.P99 < r.LatencyMS.P50 ||
		r.ColdLatencyMS.P50 <= 0 || r.ColdLatencyMS.P99 < r.ColdLatencyMS.P50 {
		t.Errorf("status %d: %s\n%s", status, stdout, stderr)
	}
}

// The browser fails and the user presses Ctrl-C at the end: neither is a failure of the demo.
func TestTheDemoShowsItsLivePageUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"xdg-open", "open"} { // the second is that of macOS
		servers.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nprintf %s \"$*\" > '"+dir+"/opened'\nexit 3\n"), 0o700))
	}
	demo := exec.Command(triprize(t)+"-dev", "demo", "--open", "--base-length", "5", "--buyers", "40")
	demo.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	file, err := os.Create(filepath.Join(dir, "output"))
	servers.NoError(t, err)
	defer func() { _ = file.Close() }()
	demo.Stdout, demo.Stderr = file, file
	_, err = demo.StdinPipe() // without an end
	servers.NoError(t, err)
	servers.NoError(t, demo.Start())
	t.Cleanup(func() { _ = demo.Process.Kill() })
	var said []byte
	servers.Eventually(t, "it has ended, and waits", func() bool {
		said, err = os.ReadFile(file.Name())
		return err == nil && fleet.Contains(said, "until Enter or Ctrl-C")
	})
	opened, err := os.ReadFile(filepath.Join(dir, "opened"))
	servers.NoError(t, err)
	fleet.Want(t, http.StatusOK, about{}.ask(t, http.MethodGet, strings.TrimPrefix(string(opened), "http://"), "", nil))
	servers.NoError(t, demo.Process.Signal(syscall.SIGINT))
	want := `(?s)watch it live: ` + regexp.QuoteMeta(string(opened)) + `\n.*open: exit status 3\n.*latency cold: p50 .* warm: p50 .*every promise held`
	if err := demo.Wait(); err != nil || !regexp.MustCompile(want).Match(said) {
		t.Errorf("%v: %s", err, said)
	}
}
