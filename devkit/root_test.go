package devkit

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triprize.example/client"
	"triprize/internal/testkit/servers"
)

// TestMain stops the servers of the tests.
func TestMain(m *testing.M) { servers.Main(m) }

func run(args ...string) (stdout, stderr string, status int) {
	var out, errs bytes.Buffer
	status = Run(args, &out, &errs)
	return out.String(), errs.String(), status
}

func TestBadArgumentsAreRefusedWithAReason(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"dev --listen 0.0.0.0:8080":     "loopback only",
		"dev --listen :8080":            "loopback only",
		"dev --listen 192.0.2.1:8080":   "loopback only",
		"dev --listen example.com:8080": "loopback only",
		"dev --listen 8080":             "host:port",
		"dev --workers 0":               "1 to 64",
		"dev --workers 65":              "1 to 64",
		"dev --redis two":               "single, three, sentinel or cluster",
		"dev --postgres both":           "single or standby",
		"dev now":                       "now",
		"sandbox --listen 0.0.0.0:1":    "loopback only",
		"sandbox --listen 8080":         "host:port",
		"sandbox now":                   "now",
		"sandbox --listen 127.0.0.1:0 --data= --key sk_live_0123456789":                                                      "sk_test_",
		"sandbox --listen 127.0.0.1:0 --data= --webhook-url http://127.0.0.1:1/":                                             "needs a webhook secret",
		"sandbox --listen 127.0.0.1:0 --data= --webhook-url here --webhook-secret whsec_":                                    "not an http or https URL",
		"sandbox --listen 127.0.0.1:0 --data= --webhook-secret whsec_1":                                                      "--webhook-url",
		"sandbox --listen 127.0.0.1:0 --data= --webhook-events charge.failed":                                                "--webhook-url",
		"sandbox --listen 127.0.0.1:0 --data= --webhook-url http://127.0.0.1:1/ --webhook-secret whsec_1 --webhook-events *": "no type of events",
		"sandbox --listen 127.0.0.1:0 --data /dev/null/sandbox":                                                              "/dev/null",
		"demo --base-length 2":  "3 to 50",
		"demo --base-length 51": "3 to 50",
		"demo --buyers 10001":   "1 to 10000",
		"demo --json=maybe":     "maybe",
		"with-servers":          "at least 1 arg",
	} {
		stdout, stderr, status := run(strings.Fields(line)...)
		if status != 1 || stdout != "" || !strings.HasPrefix(stderr, "triprize-dev: ") || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d\n%s%s", line, status, stdout, stderr)
		}
	}
	for _, listen := range []string{"127.0.0.1:0", "127.8.9.1:80", "[::1]:8080", "localhost:8080"} {
		if err := checkLoopback(listen); err != nil {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

func TestACommandWithServersHasThemAndItsStatusIsOurs(t *testing.T) {
	t.Parallel()
	script := `echo "$` + servers.PostgresVariable + ` $` + servers.RedisVariable + ` $*"; exit $1`
	stdout, stderr, status := run("with-servers", "sh", "-c", script, "sh", "0", "--json")
	postgres, rest, _ := strings.Cut(stdout, " ")
	redis, args, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if status != 0 || !strings.HasPrefix(postgres, "postgres://") || postgres == os.Getenv(servers.PostgresVariable) ||
		!strings.HasPrefix(redis, "redis://") || redis == os.Getenv(servers.RedisVariable) || args != "0 --json" {
		t.Errorf("status %d: %s\n%s", status, stdout, stderr)
	}
	if _, stderr, status := run("with-servers", "sh", "-c", script, "sh", "3"); status != 1 || !strings.Contains(stderr, "exit status 3") {
		t.Errorf("status %d: %s", status, stderr)
	}
	if _, stderr, status := run("with-servers", "no-such-program"); status != 1 || !strings.Contains(stderr, "no-such-program") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

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
		servers.NoError(t, os.WriteFile(file, []byte(text), 0o600))
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

func TestABrowserThatIsMissingOrFailsIsReported(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if err := browse("http://127.0.0.1:1/c/x"); err == nil || !strings.Contains(err.Error(), "executable file not found") {
		t.Errorf("without any: %v", err)
	}
	for status, want := range map[string]string{"0": "", "3": "exit status 3"} {
		for _, name := range []string{"xdg-open", "open"} { // the second is that of macOS
			servers.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nprintf %s \"$*\" > '"+dir+"/opened'\nexit "+status+"\n"), 0o700))
		}
		err := browse("http://127.0.0.1:1/c/" + status)
		if opened, _ := os.ReadFile(filepath.Join(dir, "opened")); string(opened) != "http://127.0.0.1:1/c/"+status || (err != nil) != (want != "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q is opened, %v", opened, err)
		}
	}
}

func TestTheDemosOfferWhatTheySay(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ positions, base, prizes int }{"triangle": {210, 20, 20}, "hall": {120, 0, 6}, "raffle": {10_000, 0, 100}} {
		o, err := demoOffer(name, 20)
		if err != nil || o.form.Count() != want.positions || o.form.BaseLength() != want.base || o.prizes != want.prizes || want.positions%o.each != 0 {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	if _, err := demoOffer("pyramid", 20); err == nil || !strings.Contains(err.Error(), "triangle, hall or raffle") {
		t.Errorf("a shape that nobody knows: %v", err)
	}
}

func TestADemoCountsAnswersAndNamesBrokenPromises(t *testing.T) {
	t.Parallel()
	failed := func(code string) client.Job {
		return client.Job{State: client.JobStateFailed, Problem: &client.Problem{Code: code}}
	}
	sold := purchaseAnswer{job: client.Job{State: client.JobStateSucceeded}, took: 2 * time.Millisecond}
	refused := purchaseAnswer{job: failed("sold-out"), took: time.Millisecond}
	late := purchaseAnswer{err: &client.Error{Problem: client.Problem{Code: "sold-out", Status: 409}}}
	busy := purchaseAnswer{err: &client.Error{Problem: client.Problem{Code: "overloaded", Status: 503}}}
	other := purchaseAnswer{job: failed("campaign-not-on-sale")}
	silent := purchaseAnswer{err: errors.New("no answer came")}
	for name, c := range map[string]struct {
		answers []purchaseAnswer
		wrong   []string
	}{
		"all is well":        {[]purchaseAnswer{sold, refused, sold}, nil},
		"too late for a job": {[]purchaseAnswer{sold, late, sold}, nil},
		"not served":         {[]purchaseAnswer{sold, busy, sold}, []string{"a buyer got no final answer", "0 buyers were told sold-out"}},
		"sold too often":     {[]purchaseAnswer{sold, sold, sold}, []string{"3 purchases succeeded, 2 should have", "0 buyers were told sold-out, 1 should have been"}},
		"sold too rarely":    {[]purchaseAnswer{sold, refused, refused}, []string{"1 purchases succeeded, 2 should have", "2 buyers were told sold-out"}},
		"another reason":     {[]purchaseAnswer{sold, sold, other}, []string{"0 buyers were told sold-out, 1 should have been: map[campaign-not-on-sale:1]"}},
		"a missing outcome":  {[]purchaseAnswer{sold, sold, silent}, []string{"a buyer got no final answer: no answer came", "0 buyers were told sold-out"}},
	} {
		d := &demo{offer: offer{each: 1}, buyers: 3, report: demoReport{Positions: 2, DurationMS: 500}}
		d.count(c.answers)
		if len(d.wrong) != len(c.wrong) {
			t.Errorf("%s: %v", name, d.wrong)
			continue
		}
		for i, want := range c.wrong {
			if !strings.Contains(d.wrong[i], want) || !strings.Contains(d.complaints(), "  - "+want) {
				t.Errorf("%s: %q does not say %q", name, d.complaints(), want)
			}
		}
		if name == "all is well" && (d.report.Accepted != 3 || d.report.Rejected != 1 || d.report.PurchasesPerSecond != 4 || d.report.LatencyMS != latency{2, 2, 2}) {
			t.Errorf("%s: %+v", name, d.report)
		}
	}
}
