//go:build web

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"

	"triprize.example/client"
)

const esbuild = "../tools/npm/node_modules/.bin/esbuild"

// seller is one of the clients that sell a campaign together.
type seller struct {
	name  string
	count int
	sell  func(t *testing.T, s *fleet.System, api string, campaign uuid.UUID, count int) []receipt
}

// receipt is what a client says that it has bought.
type receipt struct {
	Purchase  uuid.UUID `json:"purchase_id"`
	Positions []struct{ Layer, Column int }
}

// losing stands between a client and the api, and loses every third answer to a POST: the
// api has done what it was asked, and the client does not hear of it.
func losing(t *testing.T, api string) (address string, lost *atomic.Int64) {
	t.Helper()
	target, err := url.Parse(api)
	servers.NoError(t, err)
	var posts atomic.Int64
	lost = new(atomic.Int64)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = nil
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) } // as the api itself: no answer
	proxy.ModifyResponse = func(r *http.Response) error {
		if r.Request.Method == http.MethodPost && posts.Add(1)%3 == 0 {
			lost.Add(1)
			return fmt.Errorf("the answer to %s is lost", r.Request.URL)
		}
		return nil
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL, lost
}

func sellInGo(t *testing.T, s *fleet.System, api string, campaign uuid.UUID, count int) (all []receipt) {
	c, err := client.New(api, s.App, client.WithTimeout(10*time.Minute),
		client.WithRetry(client.RetryPolicy{Attempts: 1000, Elapsed: 10 * time.Minute, Longest: time.Second / 2}))
	if err != nil {
		t.Error(err)
		return nil
	}
	for n := 1; n <= count; n++ {
		if n == count/2 { // in the middle of it, while the others go on
			s.APIs[0].Kill()
		}
		order := client.PurchaseRequest{UserID: "go", Selection: client.Selection{Quantity: 1}, Payment: client.PaymentDraft{Method: client.PaymentDraftMethodExternal}}
		job, err := c.Buy(t.Context(), campaign, order, client.WithKey(fmt.Sprintf("go-%d-%s", n, campaign)))
		if err != nil {
			t.Errorf("the Go client: %v", err)
			return all
		}
		if _, err := job.Purchased(); err != nil {
			t.Errorf("the Go client: %v", err)
			return all
		}
		var one receipt
		if err := json.Unmarshal(job.Result, &one); err != nil {
			t.Error(err)
		}
		all = append(all, one)
	}
	return all
}

// sellInTypeScript runs a program with the client, which prints a line of JSON for each purchase.
func sellInTypeScript(t *testing.T, s *fleet.System, api string, campaign uuid.UUID, count int) (all []receipt) {
	bundle := filepath.Join(t.TempDir(), "seller.mjs")
	if out, err := exec.CommandContext(t.Context(), esbuild, "../clients/typescript/test/seller.ts", "--bundle", "--platform=node", "--format=esm", "--outfile="+bundle).CombinedOutput(); err != nil {
		t.Errorf("esbuild (make npm installs it): %v\n%s", err, out)
		return nil
	}
	cmd := exec.CommandContext(t.Context(), "node", bundle)
	cmd.Env = append(os.Environ(), "API="+api, "APP="+s.App, "CAMPAIGN="+campaign.String(), "USER_ID=typescript", fmt.Sprintf("COUNT=%d", count))
	cmd.Env = append(cmd.Env, fleet.NodeEnv(t)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Errorf("the TypeScript client: %v\n%s", err, &errs)
	}
	for line := range bytes.Lines(bytes.TrimSpace(out.Bytes())) {
		var one receipt
		if err := json.Unmarshal(line, &one); err != nil {
			t.Errorf("the TypeScript client says %s: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}

// Two clients sell one campaign at once, each through a line that loses answers, while the
// api is killed: what each of them says is what the tables have, and the draw is verified.
func TestTwoClientsSellOneCampaignTogether(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Restart: 200 * time.Millisecond})
	campaign := s.Campaign(8)
	sellers := []seller{{"go", 18, sellInGo}, {"typescript", 18, sellInTypeScript}} // all 36 positions
	said := make([][]receipt, len(sellers))
	var all sync.WaitGroup
	for i, one := range sellers {
		api, lost := losing(t, s.URLs[0])
		all.Go(func() {
			said[i] = one.sell(t, s, api, campaign, one.count)
			if lost.Load() == 0 {
				t.Errorf("%s has lost no answer", one.name)
			}
		})
	}
	all.Wait()
	taken := make(map[string]string)
	for i, one := range sellers {
		if len(said[i]) != one.count {
			t.Errorf("%s has bought %d times, of %d", one.name, len(said[i]), one.count)
		}
		var told []string
		for _, p := range said[i] {
			for _, at := range p.Positions {
				name := fmt.Sprintf("%d/%d", at.Layer, at.Column)
				if other, twice := taken[name]; twice {
					t.Errorf("%s was sold to %s and to %s", name, other, one.name)
				}
				taken[name] = one.name
				told = append(told, p.Purchase.String()+" "+name)
			}
		}
		if kept := servers.Value[[]string](t, s.DB, `
			SELECT array_agg(p.id || ' ' || i.layer || '/' || i.col ORDER BY p.id, i.layer, i.col) FROM purchases p JOIN purchase_items i ON i.purchase_id = p.id
			WHERE p.campaign_id = $1 AND p.user_id = $2 AND p.state = 'completed'`, campaign, one.name); !slices.Equal(kept, slices.Sorted(slices.Values(told))) {
			t.Errorf("%s says\n%q\nand the tables have\n%q", one.name, told, kept)
		}
	}
	if len(taken) != 36 || s.Purchases(campaign) != 36 {
		t.Errorf("%d positions were sold in %d purchases", len(taken), s.Purchases(campaign))
	}
	s.AwaitDrawn(campaign)
	proof := filepath.Join(t.TempDir(), "proof.json")
	servers.NoError(t, os.WriteFile(proof, s.Read("/v1/campaigns/"+campaign.String()+"/draw/proof").Body, 0o600))
	if told, stderr, code := run(t, nil, "verify", proof); code != 0 {
		t.Errorf("verify: status %d\n%s\n%s", code, told, stderr)
	}
}
