//go:build web

package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// A page with the TypeScript client, bundled as a shop would do it, sells to its user: with the
// user's token, a stream that is read as it comes, and no API key.
func TestAPageSellsWithTheTypeScriptClient(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: append([]string{"TRIPRIZE_TOKENS_CLIENT=shop"}, fleet.Trusting.Env...)})
	campaign := s.Campaign(3)
	wallet := s.Wallet("mina", 100_000)
	bundle := filepath.Join(t.TempDir(), "client.js")
	if out, err := exec.CommandContext(t.Context(), "../tools/npm/node_modules/.bin/esbuild", "../clients/typescript/src/index.ts",
		"--bundle", "--platform=browser", "--format=iife", "--global-name=triprize", "--outfile="+bundle).CombinedOutput(); err != nil {
		t.Fatalf("esbuild (make npm installs it): %v\n%s", err, out)
	}
	script, err := os.ReadFile(bundle)
	servers.NoError(t, err)
	api, err := url.Parse(s.URLs[0])
	servers.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/v1/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(api) }, FlushInterval: -1})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, "<!doctype html><title>Shop</title><link rel=icon href=data:,><script>%s</script>", script)
	})
	shop := httptest.NewServer(mux)
	t.Cleanup(shop.Close)

	p := open(t, shop.URL+"/")
	var told struct {
		Amount int64
		States []string
		Code   string
		Ended  string
		Same   bool
	}
	p.eval(fmt.Sprintf(`(async () => {
		const { Triprize, TriprizeError, purchased } = triprize;
		const client = new Triprize({ baseUrl: location.origin, credential: () => Promise.resolve(%s), timeoutMs: 600_000, retry: { elapsedMs: 600_000 } });
		const campaign = %s, at = { path: { campaign } };
		const order = (quantity) => ({ user_id: "mina", selection: { quantity }, payment: { method: "wallet" } });
		const job = await client.post("/v1/campaigns/{campaign}/purchases", { ...at, body: order(1) });
		const states = [];
		for await (const now of client.followJob(job.id)) states.push(now.state);
		const first = purchased(await client.wait(job.id));
		const tag = await client.getIfChanged("/v1/campaigns/{campaign}/draw/proof", undefined, at).catch((e) => e);
		let ended = "";
		const followed = (async () => { for await (const event of client.followCampaign(campaign)) ended = event.state; })();
		const rest = purchased(await client.buy(campaign, order(5)));
		await followed;
		const again = await client.getIfChanged("/v1/campaigns/{campaign}", (await client.getIfChanged("/v1/campaigns/{campaign}", undefined, at)).etag, at);
		return { amount: first.amount + rest.amount, states, code: tag instanceof TriprizeError ? tag.code : "", ended, same: again === undefined };
	})()`, quote(fleet.TokenFor(t, "mina", "")), quote(campaign.String())), &told)
	if !slices.Contains(told.States, "succeeded") || told.Code != "state-conflict" || told.Ended != "completed" || !told.Same {
		t.Errorf("%+v", told)
	}
	s.ExpectWallet(wallet, 100_000-told.Amount, 0)
}

// The page as the api serves it, with the proof that the api makes: a draw is checked by who
// opens an address, without a key.
func TestTheDrawOfARunningSystemIsCheckedAtItsAddress(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{})
	campaign := s.Campaign(4)
	var bought uuid.UUID
	for range 10 {
		a := s.Buy(fleet.Order{Campaign: campaign, User: "mina", Wait: true})
		fleet.WantSucceeded(t, a)
		bought = a.Result.PurchaseID
	}
	s.AwaitDrawn(campaign)
	p := open(t, s.URLs[0]+"/verify?campaign="+campaign.String())
	p.done()
	if text := p.text("report"); p.verdict() != "weaker" {
		t.Error(text)
	}
	p.choose("purchase", file(t, "purchase.json", s.Read("/v1/purchases/"+bought.String()+"/proof").Body))
	p.done()
	if text := p.text("report"); p.verdict() != "weaker" || !strings.Contains(text, "took part") {
		t.Error(text)
	}
	fixture.Sound(t, s.DB)
}
