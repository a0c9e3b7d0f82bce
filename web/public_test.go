//go:build web

package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// pictures is a folder for pictures of the public pages, as PNG: make pictures names it. Empty: none are made.
var pictures = os.Getenv("TRIPRIZE_TEST_PICTURES")

// picture saves what a tab shows, on a phone in the dark, or wide and light.
func (p *tab) picture(page string, isPhone bool) {
	p.t.Helper()
	if pictures == "" {
		return
	}
	width, scheme := int64(1100), "light"
	if isPhone {
		width, scheme = 390, "dark"
	}
	p.run(chromedp.EmulateViewport(width, 960), wishing(scheme, "reduce"))
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	servers.NoError(p.t, err)
	servers.NoError(p.t, os.WriteFile(filepath.Join(pictures, page+".png"), png, 0o600))
}

// shown makes a campaign that anybody can watch, and returns its page.
func shown(s *fleet.System, change fleet.Fields) (id uuid.UUID, page string) {
	s.T.Helper()
	fields := fleet.Fields{"public_page": "page", "name": "Summer triangle"}
	for name, value := range change {
		fields[name] = value
	}
	id, _ = create(s, true, fields)
	return id, "/c/" + id.String()
}

// squares waits until the picture has so many positions in a state.
func (p *tab) squares(state string, n int) {
	p.t.Helper()
	p.until(fmt.Sprintf(`document.querySelectorAll("#picture rect[data-state=%s]").length === %d`, state, n))
}

// A buyer watches: the picture fills, the winners come without a load, and lead to the check of the draw.
func TestALivePageFillsUntilItShowsTheWinners(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{})
	id, page := shown(s, nil)
	p := visit(s, page, chromedp.EmulateViewport(390, 800))
	p.eval(mark, nil)
	p.squares("free", 6)
	p.shows("0 of 6 sold", "¥100")
	p.eval(`(window.asked = window.fetch, window.fetch = () => Promise.reject(new Error("away")), true)`, nil)
	p.shows("No connection.")
	p.eval(`(window.fetch = window.asked, true)`, nil)
	p.until(`document.getElementById("away").textContent === ""`)
	const kept = `document.activeElement.id + getSelection()`
	var before, after string
	p.eval(`document.getElementById("layers").focus(), getSelection().selectAllChildren(document.querySelector("#campaign code")), `+kept, &before)
	for sold := range 5 {
		fleet.WantSucceeded(t, s.Buy(fleet.Order{Campaign: id, User: "mina", Wait: true}))
		p.squares("sold", sold+1)
	}
	p.shows("5 of 6 sold")
	if p.eval(kept, &after); len(before) != len("layers")+64 || after != before {
		t.Errorf("the focus and the selection %q are now %q", before, after)
	}
	fleet.WantSucceeded(t, s.Buy(fleet.Order{Campaign: id, User: "mina", Wait: true}))
	p.until(`!!document.querySelector("#campaign[data-state=completed] #winners")`)
	p.squares("won", 3)
	if p.eval(kept, &after); after != before {
		t.Errorf("after the draw the focus and the selection are %q", after)
	}
	p.until(isMarked)
	var order []string
	p.eval(`[...document.querySelectorAll("#winners, #picture, #layers")].map((e) => e.id)`, &order)
	if fmt.Sprint(order) != "[winners picture layers]" {
		t.Errorf("the page shows %v", order)
	}
	var to string
	p.eval(`document.getElementById("verify").href`, &to)
	p.run(chromedp.Navigate(to))
	p.done()
	p.shows("Summer triangle", "not proven", "Prize 3")
	fixture.Sound(t, s.DB)
}

// shop serves a page of another origin, which is known before the fleet starts.
func shop(t *testing.T) (s *httptest.Server, serve func(html string)) {
	t.Helper()
	page := ""
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, "<!doctype html><title>Shop</title><link rel=icon href=data:,>%s", page)
	}))
	t.Cleanup(s.Close)
	return s, func(html string) { page = html }
}

func TestAPublicPageIsFramedByPagesOfItsOriginsOnly(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, idle)
	allowed, serveAllowed := shop(t)
	other, serveOther := shop(t)
	_, page := shown(s, fleet.Fields{"public_page": "embed", "embed_origins": []string{allowed.URL}})
	serveAllowed(`<iframe src="` + s.URLs[0] + page + `" width="390" height="800"></iframe>`)
	serveOther(`<iframe src="` + s.URLs[0] + page + `"></iframe><iframe src="` + s.URLs[0] + page + `/live"></iframe>`)
	framed := func(address string) (polls func() int, p *tab) {
		p, asked := openIn(browser, t, "about:blank", chromedp.WithNewBrowserContext()), 0
		servers.NoError(t, chromedp.Listen(p.ctx, func(event any) {
			if e, ok := event.(*network.EventRequestWillBeSent); ok && strings.Contains(e.Request.URL, page+"/live") {
				p.mu.Lock()
				defer p.mu.Unlock()
				asked++
			}
		}))
		p.run(chromedp.Navigate(address))
		return func() int { p.mu.Lock(); defer p.mu.Unlock(); return asked }, p
	}
	polls, _ := framed(allowed.URL)
	servers.Eventually(t, "the page in the frame polls", func() bool { return polls() > 1 })
	_, p := framed(other.URL)
	servers.Eventually(t, "the browser refuses the frame", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		refused := strings.Count(strings.Join(p.problems, " "), "frame-ancestors") == 2 // the page, and the part that moves
		if refused {
			p.problems = nil // as it must
		}
		return refused
	})
}

// A page of an app's own origin buys for its user, with the user's token and no key; a page of a third origin does not.
func TestAPageOfAnAllowedOriginBuysWithAUsersToken(t *testing.T) {
	t.Parallel()
	allowed, _ := shop(t)
	other, _ := shop(t)
	s := fleet.Start(t, fleet.Options{Env: append([]string{"TRIPRIZE_TOKENS_CLIENT=shop", "TRIPRIZE_API_CORS_ORIGINS=" + allowed.URL}, fleet.Trusting.Env...)})
	id, _ := create(s, true, nil)
	wallet := s.Wallet("mina", 1_000)
	buy := fmt.Sprintf(`fetch(%s, {method: "POST", headers: {Authorization: %s, "Content-Type": "application/json", "Idempotency-Key": "once", Prefer: "wait=60"},
		body: JSON.stringify({user_id: "mina", selection: {layer: 1, quantity: 1}, payment: {method: "wallet"}})}).then((a) => a.json().then(({state}) => a.status + " " + state), (e) => e.name)`,
		quote(s.URLs[0]+"/v1/campaigns/"+id.String()+"/purchases"), quote("Bearer "+fleet.TokenFor(t, "mina", "")))
	for origin, want := range map[string]string{allowed.URL: "200 succeeded", other.URL: "TypeError"} {
		p := openIn(browser, t, origin, chromedp.WithNewBrowserContext())
		var got string
		if p.eval(buy, &got); got != want {
			t.Errorf("%s: %s, not %s", origin, got, want)
		}
	}
	s.ExpectWallet(wallet, 900, 0)
}

func TestAPublicPageWithoutScriptsShowsTheLastSnapshot(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{})
	id, page := shown(s, nil)
	fleet.WantSucceeded(t, s.Buy(fleet.Order{Campaign: id, User: "mina", Quantity: 2, Wait: true}))
	p := visit(s, page, set(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	p.squares("sold", 2)
	p.shows("As of 20", "UTC", "2 of 6 sold", "100 JPY")
}

func TestAPublicPageSpeaksAsItsReaderDoes(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, idle)
	ends := time.Date(time.Now().Year()+1, 7, 31, 20, 30, 0, 0, time.UTC)
	_, path := shown(s, fleet.Fields{"currency": "EUR", "sale_ends_at": ends, "layers": []fleet.Fields{{"layer": 1, "positions": 1500, "price": 123450, "prizes": []any{}}}, "base_length": nil})
	for accepted, texts := range map[string][]string{
		"de-DE": {"Der Verkauf läuft", "1.500", "1.234,50", "22:30 MESZ", "Tagen)"}, "ja-JP": {"販売中", "1,500", "€1,234.50", "22:30 GMT+2", "日後)"}, "en-GB": {"On sale", "1,500", "€1,234.50", "22:30 CEST", "days)"},
	} {
		p := visit(s, path, set(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"}),
			set(emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{UserAgent: "test", AcceptLanguage: accepted}))
		p.shows(texts...)
	}
	// The time left is by the server's clock, also before the first answer: that of the reader is three years ahead.
	ahead := page.AddScriptToEvaluateOnNewDocumentParams{Source: `{ const now = Date.now; Date.now = () => now() + 3 * 365 * 86400e3; window.fetch = () => new Promise(() => {}); }`}
	visit(s, path, set(page.AddScriptToEvaluateOnNewDocument, ahead)).shows("(in ")
}

func TestAnOperationIsFoundByAWord(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, idle)
	p := visit(s, "/docs")
	p.until(`document.querySelectorAll(".opblock").length > 50 && !!document.querySelector(".operation-filter-input")`)
	p.eval(`(() => {
		const field = document.querySelector(".operation-filter-input");
		Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, "POST void draw");
		field.dispatchEvent(new Event("input", {bubbles: true}));
	})()`, nil)
	p.until(`[...document.querySelectorAll(".opblock-tag-section .opblock-summary-path")].map((e) => e.dataset.path).join() === "/v1/campaigns/{campaign}/draw/void"`)
}

// The public pages, light and dark, wide and narrow; make pictures runs this test.
func TestEveryPublicPageIsAccessible(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{})
	long := time.Now().Add(50 * time.Hour)
	drawn, drawnPage := shown(s, fleet.Fields{"base_length": 20, "layers": layersOf(20)})
	fixture.SellOut(t, s.DB, drawn)
	s.AwaitDrawn(drawn)
	selling, sellingPage := shown(s, fleet.Fields{"base_length": 20, "layers": layersOf(20), "sale_ends_at": long})
	for user := range 12 {
		fleet.WantSucceeded(t, s.Buy(fleet.Order{Campaign: selling, User: fmt.Sprint("user", user), Quantity: 10, Wait: true}))
	}
	s.MustHold(fleet.HoldOrder{Campaign: selling, User: "mina", Quantity: 8})
	rows := []fleet.Fields{}
	for i := range 8 {
		rows = append(rows, fleet.Fields{"layer": i + 1, "positions": 24, "label": fmt.Sprintf("Row %c", 'A'+i), "aisles": []int{6, 18}, "price": 100, "prizes": []any{}})
	}
	_, hall := shown(s, fleet.Fields{"base_length": nil, "layers": rows, "sale_starts_at": long})
	p := visit(s, "/")
	for name, page := range map[string]string{"home": "/", "problems": "/problems", "document": "/docs/draw.md", "live": sellingPage, "drawn": drawnPage, "hall": hall,
		"german": drawnPage + "?lang=de", "nothing": "/c/nothing", "verify": "/verify?campaign=" + drawn.String()} {
		p.run(chromedp.Navigate(s.URLs[0] + page))
		if name == "verify" {
			p.done()
		}
		p.picture(name, name == "drawn")
		p.look(name)
	}
}

func layersOf(base int) (layers []fleet.Fields) {
	for i := range base {
		layers = append(layers, fleet.Fields{"layer": i + 1, "price": 100 * (base - i), "prizes": []fleet.Fields{{"name": fmt.Sprintf("Prize of layer %d", i+1), "count": 1}}})
	}
	return layers
}
