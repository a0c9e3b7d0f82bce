//go:build web

package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
)

// A page of the own machine, on any port, calls triprize-dev dev with the token of its user. The settings of
// the developer come before those of dev.
func TestAPageIsDevelopedWithTokensOfDev(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	own := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(own, []byte("campaigns: {max_positions: 6}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, dev := startDev(t, dir, "--config", own)
	signed, stderr, status := runDev(t, "token", "--config", filepath.Join(dir, "triprize.yaml"), "--user", "alice")
	if status != 0 {
		t.Fatal(stderr)
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<!doctype html><title>A shop</title>"))
	}))
	t.Cleanup(page.Close)
	ask := func(credential, method, path, body string) (answer struct {
		Status int
		Code   string
	}) {
		t.Helper()
		script := `(async () => {
			const headers = { Authorization: "Bearer " + ` + quote(credential) + `, "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID() };
			const answer = await fetch(` + quote(dev.APIURL+path) + `, { method: ` + quote(method) + `, headers, ...(` + quote(body) + ` === "" ? {} : { body: ` + quote(body) + ` }) });
			return { Status: answer.status, Code: (await answer.json()).code };
		})()`
		if err := browse(t, strings.Replace(page.URL, "127.0.0.1", "localhost", 1)).try(script, &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	token := strings.TrimSpace(signed)
	if a := ask(token, "GET", "/v1/users/alice/purchases", ""); a.Status != http.StatusOK {
		t.Errorf("her own purchases: %+v", a)
	}
	if a := ask(token, "GET", "/v1/users/bob/purchases", ""); a.Status != http.StatusNotFound {
		t.Errorf("those of another user: %+v", a)
	}
	draft, err := json.Marshal(fleet.CampaignBody(4))
	if err != nil {
		t.Fatal(err)
	}
	if a := ask(dev.OperatorKey, "POST", "/v1/campaigns", string(draft)); a.Status != http.StatusBadRequest || a.Code != "invalid-request" {
		t.Errorf("more positions than --config allows: %+v", a)
	}
}

func quote(text string) string {
	data, _ := json.Marshal(text)
	return string(data)
}
