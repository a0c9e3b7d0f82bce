//go:build web

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// stranger gets a public page without a key.
func stranger(s *fleet.System, path string) (status int, body []byte, header http.Header) {
	s.T.Helper()
	request, err := http.NewRequestWithContext(s.T.Context(), http.MethodGet, s.URLs[0]+path, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		s.T.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if body, err = io.ReadAll(answer.Body); err != nil {
		s.T.Fatal(err)
	}
	return answer.StatusCode, body, answer.Header
}

// drawView is a draw of the contract, as far as these tests look at it.
type drawView struct {
	State  string
	Rules  struct{ Beacon *struct{} }
	Trust  string
	Round  *uint64
	Freeze *struct {
		Hash   string
		Record struct{ Secret *string }
	}
}

// soldWithBeacon sells out a campaign with a beacon over HTTP, and returns it with one of its purchases and what a stranger could see before its round.
func soldWithBeacon(s *fleet.System) (campaign string, bought uuid.UUID, frozen drawView) {
	s.T.Helper()
	draft := fleet.CampaignBody(3)
	draft["policies"] = map[string]any{"beacon": true}
	made := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns", map[string]string{"Idempotency-Key": uuid.NewString()}, draft)
	if made.Status != http.StatusCreated {
		s.T.Fatal(made, string(made.Body))
	}
	path := "/v1/campaigns/" + made.ID.String()
	if status, _, _ := stranger(s, path+"/draw"); status != http.StatusNotFound {
		s.T.Errorf("a stranger sees a draft: %d", status)
	}
	if published := s.Do(0, s.Operator, http.MethodPost, path+"/publish", map[string]string{"Idempotency-Key": uuid.NewString()}, nil); published.Status != http.StatusOK {
		s.T.Fatal(published, string(published.Body))
	}
	if status, body, _ := stranger(s, path+"/draw/proof"); status != http.StatusConflict {
		s.T.Errorf("before the draw the proof is %d, %s", status, body)
	}
	for i := range 6 {
		a := s.Buy(fleet.Order{Campaign: made.ID, User: fmt.Sprintf("buyer-%d", i), Quantity: 1})
		if a = s.AwaitJob(0, a.ID); a.Refusal() != "" {
			s.T.Fatal(a)
		}
		bought = a.Result.PurchaseID
	}
	_, body, _ := stranger(s, path+"/draw")
	if bound := decodeAs[drawView](s.T, body); bound.Rules.Beacon == nil { // before the sale
		s.T.Errorf("a stranger cannot read the rules: %s", body)
	}
	servers.Eventually(s.T, "a stranger sees the freeze record", func() bool {
		_, body, _ := stranger(s, path+"/draw")
		frozen = decodeAs[drawView](s.T, body)
		return frozen.Freeze != nil
	})
	s.AwaitDrawn(made.ID)
	return made.ID.String(), bought, frozen
}

// From outside, without a key but the buyer's own for its proof of purchase: the record is
// public before its round, the proof is the same bytes each time, the tool and the script of
// the specification agree with it, and neither believes a changed one.
func TestAStrangerChecksADrawFromOutside(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Beacon: 3})
	campaign, bought, frozen := soldWithBeacon(s)
	if frozen.Round == nil || frozen.Freeze.Record.Secret == nil || frozen.Trust != "beacon" {
		t.Fatalf("the freeze record is %+v", frozen)
	}
	_, body, _ := stranger(s, "/v1/campaigns/"+campaign+"/draw")
	if now := decodeAs[drawView](t, body); now.Freeze.Hash != frozen.Freeze.Hash || *now.Round != *frozen.Round {
		t.Errorf("once drawn its freeze is %+v, and was %+v", now, frozen)
	}
	status, proof, header := stranger(s, "/v1/campaigns/"+campaign+"/draw/proof")
	_, again, _ := stranger(s, "/v1/campaigns/"+campaign+"/draw/proof")
	if status != http.StatusOK || string(proof) != string(again) || header.Get("ETag") == "" || !strings.Contains(header.Get("Cache-Control"), "immutable") {
		t.Fatalf("%d, %v, the same again: %v", status, header, string(proof) == string(again))
	}
	if strings.Contains(string(proof), "buyer-") {
		t.Error("the proof says who bought")
	}
	mine := s.Read("/v1/purchases/" + bought.String() + "/proof")
	if mine.Status != http.StatusOK {
		t.Fatal(mine, string(mine.Body))
	}
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	chain := s.Beacon.Chain().Info().Hash
	whole, purchase := write("proof.json", proof), write("purchase.json", mine.Body)
	told, stderr, code := run(t, nil, "verify", whole, "--purchase", purchase, "--chain-hash", chain, "--json")
	if code != 0 {
		t.Fatalf("verify: status %d\n%s\n%s", code, told, stderr)
	}
	if _, _, code := run(t, nil, "verify", whole); code != 1 {
		t.Errorf("a chain that nobody named is believed: status %d", code)
	}
	_, script, _ := strings.Cut(document(t, "../docs/draw.md"), "```python\n")
	script, _, _ = strings.Cut(script, "```")
	python := write("check.py", []byte(script))
	checker := exec.CommandContext(t.Context(), "python3", "-I", python, whole, chain)
	if out, _ := checker.CombinedOutput(); checker.ProcessState.ExitCode() != 3 { // it leaves out the signature of the beacon
		t.Errorf("the script: %v\n%s", checker.ProcessState, out)
	}
	changed := write("changed.json", []byte(strings.Replace(string(proof), `"prize":1`, `"prize":2`, 1)))
	if out, _, code := run(t, nil, "verify", changed, "--chain-hash", chain); code != 1 || !strings.Contains(out, "winners") {
		t.Errorf("verify believes a changed proof: %d\n%s", code, out)
	}
	checker = exec.CommandContext(t.Context(), "python3", "-I", python, changed, chain)
	if out, _ := checker.CombinedOutput(); checker.ProcessState.ExitCode() != 1 {
		t.Errorf("the script believes a changed proof: %v\n%s", checker.ProcessState, out)
	}
}
