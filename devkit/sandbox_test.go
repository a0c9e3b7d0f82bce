package devkit

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"triprize/internal/testkit/servers"
)

// runSandboxOnce runs the command, pays, and stops it as Ctrl-C does. It returns the key
// and how many payments there were before.
func runSandboxOnce(t *testing.T, dir string) (key string, before int) {
	t.Helper()
	var stdout, stderr servers.Journal
	ended := make(chan int, 1)
	go func() { ended <- Run([]string{"sandbox", "--listen", "127.0.0.1:0", "--data", dir}, &stdout, &stderr) }()
	said := regexp.MustCompile(`url +(\S+)\n +key +(\S+)\n +account +acct_`)
	var m []string
	servers.Eventually(t, "it says that it runs", func() bool {
		m = said.FindStringSubmatch(stdout.String())
		return m != nil
	})
	ask := func(method, form string) (body struct{ Data []any }) {
		request, err := http.NewRequestWithContext(context.Background(), method, m[1]+"/v1/payment_intents", strings.NewReader(form))
		servers.NoError(t, err)
		request.SetBasicAuth(m[2], "") // as curl -u KEY:
		if form != "" {
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		response, err := http.DefaultClient.Do(request)
		servers.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.Status, err)
		}
		return body
	}
	before = len(ask("GET", "").Data)
	ask("POST", "amount=500&currency=jpy&payment_method=pm_card_visa")
	servers.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	if status := <-ended; status != 0 || stderr.String() != "" {
		t.Errorf("status %d\n%s", status, stderr.String())
	}
	return m[2], before
}

// No test beside this one: the signal is for the whole process.
func TestTheSandboxRunsUntilCtrlCAndGoesOnWhereItWas(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sandbox")
	key, before := runSandboxOnce(t, dir)
	again, after := runSandboxOnce(t, dir)
	if key != again || before != 0 || after != 1 {
		t.Errorf("keys %s, %s; %d payments, then %d", key, again, before, after)
	}
}
