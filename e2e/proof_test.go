//go:build web

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

// From outside, without a key but the buyer's own for its proof of purchase: the proof is the same bytes
// each time, the tool and the script of the specification agree with it, and neither believes a changed one.
func TestAStrangerChecksADrawFromOutside(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Beacon: 3})
	campaign := drawable(s, true)
	bought := s.Buy(fleet.Order{Campaign: campaign, User: "buyer-1", Quantity: 5, Wait: true}).Result.PurchaseID
	fixture.SellOut(t, s.DB, campaign)
	s.AwaitDrawn(campaign)
	path := "/v1/campaigns/" + campaign.String() + "/draw/proof"
	proof, again := s.Do(0, "", http.MethodGet, path, nil, nil), s.Do(0, "", http.MethodGet, path, nil, nil)
	if proof.Status != http.StatusOK || string(proof.Body) != string(again.Body) || proof.Header.Get("ETag") == "" || !strings.Contains(proof.Header.Get("Cache-Control"), "immutable") {
		t.Fatalf("%v, %v, the same again: %v", proof, proof.Header, string(proof.Body) == string(again.Body))
	}
	if fleet.Contains(proof.Body, "buyer-") {
		t.Error("the proof says who bought")
	}
	mine := s.Read("/v1/purchases/" + bought.String() + "/proof")
	if mine.Status != http.StatusOK {
		t.Fatal(mine, string(mine.Body))
	}
	script := chapter(t, "../docs/draw.md", "```python\n", "```")
	chain, dir := s.Beacon.Chain().Info().Hash, t.TempDir()
	for name, content := range map[string]string{"proof.json": string(proof.Body), "purchase.json": string(mine.Body), "check.py": script,
		"changed.json": strings.Replace(string(proof.Body), `"prize":1`, `"prize":2`, 1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		command string
		status  int // of the script: 3, as it leaves out the signature of the beacon
		says    string
	}{
		{"triprize verify proof.json --purchase purchase.json --json --chain-hash " + chain, 0, ""},
		{"triprize verify proof.json", 1, ""}, // a chain that nobody has named
		{"triprize verify changed.json --chain-hash " + chain, 1, "winners"},
		{"python3 -I check.py proof.json " + chain, 3, ""},
		{"python3 -I check.py changed.json " + chain, 1, ""},
	} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", c.command)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), fmt.Sprintf("PATH=%s:%s", filepath.Dir(triprize(t)), os.Getenv("PATH")))
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != c.status || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: %v\n%s", c.command, cmd.ProcessState, out)
		}
	}
}
