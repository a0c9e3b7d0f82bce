package devkit

import (
	"bytes"
	"os"
	"strings"
	"testing"

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
