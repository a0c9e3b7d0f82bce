//go:build soak

package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// ask sends a request to a development system and returns status and body.
func (a about) ask(t *testing.T, method, url, key string, body any) (int, []byte) {
	t.Helper()
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + key, "Idempotency-Key": uuid.NewString(), "Content-Type": "application/json", "Prefer": fleet.UntilFinal} {
		request.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	told, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, told
}

// withBeacon drafts a campaign with a beacon.
func (a about) withBeacon(t *testing.T) (status int, id string, body []byte) {
	t.Helper()
	draft := fleet.CampaignBody(3)
	draft["policies"] = map[string]any{"beacon": true}
	status, body = a.ask(t, http.MethodPost, a.APIURL+"/v1/campaigns", a.OperatorKey, draft)
	var made struct{ ID string }
	_ = json.Unmarshal(body, &made)
	return status, made.ID, body
}

func (a about) state(t *testing.T, campaign string) string {
	t.Helper()
	var c struct{ State string }
	_, body := a.ask(t, http.MethodGet, a.APIURL+"/v1/campaigns/"+campaign, a.OperatorKey, nil)
	_ = json.Unmarshal(body, &c)
	return c.State
}

func interrupt(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("dev ended with %v", err)
	}
}

func TestDevWithABeaconDrawsWithItAndKeepsItsChain(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	cmd, a := startDev(t, dir, "--beacon")
	if a.Beacon == nil || len(a.Beacon.Relays) != 3 {
		t.Fatalf("dev.json says %+v of the beacon", a.Beacon)
	}
	for _, relay := range a.Beacon.Relays { // nobody has a round
		if status, body := a.ask(t, http.MethodPut, relay+"/control/faults", "", map[string]any{"away": "hang"}); status != http.StatusOK {
			t.Fatal(status, string(body))
		}
	}
	status, campaign, body := a.withBeacon(t)
	if status != http.StatusCreated {
		t.Fatal(status, string(body))
	}
	if status, body := a.ask(t, http.MethodPost, a.APIURL+"/v1/campaigns/"+campaign+"/publish", a.OperatorKey, nil); status != http.StatusOK || !strings.Contains(string(body), a.Beacon.ChainHash) {
		t.Fatal(status, string(body))
	}
	status, body = a.ask(t, http.MethodPost, a.APIURL+"/v1/campaigns/"+campaign+"/purchases", a.AppKey,
		map[string]any{"user_id": "mina", "selection": map[string]any{"quantity": 6}, "payment": map[string]any{"method": "external"}})
	if status != http.StatusOK {
		t.Fatal(status, string(body))
	}
	interrupt(t, cmd)

	cmd, b := startDev(t, dir)
	if status, _, body := b.withBeacon(t); status != http.StatusBadRequest || !strings.Contains(string(body), "/policies/beacon") || b.Beacon != nil {
		t.Errorf("without --beacon: %d, %s, %+v", status, body, b.Beacon)
	}
	if state := b.state(t, campaign); state != "drawing" {
		t.Errorf("without a relay the campaign is %s", state)
	}
	interrupt(t, cmd)

	_, c := startDev(t, dir, "--beacon")
	if c.Beacon == nil || c.Beacon.ChainHash != a.Beacon.ChainHash {
		t.Fatalf("the chain was %+v, and is %+v", a.Beacon, c.Beacon)
	}
	servers.Eventually(t, "the campaign is drawn", func() bool { return c.state(t, campaign) == "completed" })
}
