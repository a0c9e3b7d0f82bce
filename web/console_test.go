//go:build web

package web_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

// set is an action that sets something of a tab.
func set[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, command, params)
		return err
	})
}

// visit opens a page of the console in a browser of its own, after what is set before.
func visit(s *fleet.System, page string, before ...chromedp.Action[chromedp.Void]) *tab {
	s.T.Helper()
	p := openIn(browser, s.T, "about:blank", chromedp.WithNewBrowserContext())
	p.run(append(before, chromedp.Navigate(s.URLs[0]+page))...)
	s.T.Cleanup(func() {
		s.T.Log(chromedp.Run(p.ctx, chromedp.Evaluate[string](`location + "\n" + document.body.innerText`)))
	})
	return p
}

// operator visits a page and signs in on the way.
func operator(s *fleet.System, name, page string, before ...chromedp.Action[chromedp.Void]) *tab {
	s.T.Helper()
	p := visit(s, page, before...)
	p.press(200, "main button", "/key", s.Operator, "/operator", name)
	p.isAt(page)
	return p
}

// send fills in fields, by their names, and presses what a selector finds: a link, or the button of a form. It returns
// the status of the page that follows, when that is there.
func (p *tab) send(selector string, fields ...string) (status int64, err error) {
	press := chromedp.Evaluate[bool](fmt.Sprintf(`(() => {
		for (const [name, value] of %s ?? []) Object.assign(document.querySelector('[name="' + name + '"]'), {value, checked: true});
		document.querySelector(%s).click();
		return true;
	})()`, quote(slices.Collect(slices.Chunk(fields, 2))), quote(selector)))
	answer, err := chromedp.RunResponse(p.ctx, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error { _, err := press(ctx, target); return err }))
	if answer != nil {
		status = answer.Status
	}
	return status, err
}

// press is send that wants a status.
func (p *tab) press(want int64, selector string, fields ...string) {
	p.t.Helper()
	if status, err := p.send(selector, fields...); err != nil || status != want {
		p.t.Fatalf("%s %q leads to a page with status %d, %v, not %d", selector, fields, status, err, want)
	}
}

// until waits until an expression is true, on this page or on one that follows.
func (p *tab) until(expression string) {
	p.t.Helper()
	is := chromedp.Evaluate[bool](expression)
	servers.Eventually(p.t, expression, func() bool { yes, err := chromedp.Run(p.ctx, is); return err == nil && yes })
}

func (p *tab) shows(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.until(`document.body.innerText.includes(` + quote(text) + `)`)
	}
}

func (p *tab) isAt(path string) {
	p.t.Helper()
	p.until(`location.pathname + location.search === ` + quote(path))
}

// says wants a field to have a value, and to say what is wrong with it: a part of that, or nothing.
func (p *tab) says(name, value, fault string) {
	p.t.Helper()
	var field struct{ Has, Says string }
	p.eval(`(({value, labels}) => ({Has: value, Says: labels[0].querySelector(".fault")?.innerText ?? ""}))(document.querySelector('[name="`+name+`"]'))`, &field)
	if field.Has != value || !strings.Contains(field.Says, fault) || (fault == "") != (field.Says == "") {
		p.t.Errorf("%s: %+v, not %q and %q", name, field, value, fault)
	}
}

// mark marks a page, and isMarked tells that it was not loaded again.
const mark, isMarked = `window.isMarked = true`, `window.isMarked === true`

// create makes a campaign, which is a draft unless it is published, and returns its page.
func create(s *fleet.System, isPublished bool, change fleet.Fields) (id uuid.UUID, page string) {
	s.T.Helper()
	body := fleet.CampaignBody(3)
	maps.Copy(body, change)
	id = fleet.Want(s.T, http.StatusCreated, s.Post("/v1/campaigns", body)).ID
	if isPublished {
		fleet.Want(s.T, http.StatusOK, s.Post("/v1/campaigns/"+id.String()+"/publish", nil))
	}
	return id, "/console/campaigns/" + id.String()
}

var idle, withBeacon = fleet.Options{Workers: -1, Schedulers: -1}, fleet.Fields{"policies": fleet.Fields{"beacon": true}}

func TestAnOperatorSignsInAndComesBackToThePage(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, idle)
	id, page := create(s, true, nil)
	to := func(page string) string { return "/console/sign-in?to=" + url.QueryEscape(page) }
	p := visit(s, page+"/pause")
	p.isAt(to(page + "/pause"))
	p.press(401, "main button", "/key", "wrong", "/operator", "Mina")
	p.says("/key", "", "the API key is not known")
	p.says("/operator", "Mina", "")
	p.press(200, "main button", "/key", s.Operator)
	p.isAt(page + "/pause")
	p.shows("Mina", s.Client("ops"))

	// The session ends: a page that moves leads to the sign-in by itself, a form when it is sent.
	watching := openIn(p.ctx, t, s.URLs[0]+page)
	servers.Exec(t, s.DB, `UPDATE console_sessions SET seen_at = seen_at - interval '1 hour'`)
	watching.isAt(to(page))
	p.press(401, "main button", "/reason", "a test")
	p.shows("your session has ended")
	if s.CampaignNow(id).PausedAt != nil {
		t.Error("somebody without a session has paused the sale")
	}
	p.press(200, "main button", "/key", s.Operator, "/operator", "Mina")
	p.says("/reason", "a test", "")
	p.press(200, "main button")
	p.shows("active, paused")

	p.press(200, "header button")
	p.isAt("/console/sign-in")
	p.run(chromedp.Navigate(s.URLs[0] + page))
	p.isAt(to(page))
}

// pictured waits until so many positions of the picture are in a state.
func (p *tab) pictured(state string, n int) {
	p.t.Helper()
	p.until(fmt.Sprintf(`document.querySelectorAll('#board[data-version] [data-at][data-state=%s]').length === %d`, state, n))
}

// atStep waits until a draw is at a step; empty: it is over.
func (p *tab) atStep(title string) {
	p.t.Helper()
	p.until(`(document.querySelector(".steps li[aria-current=step] strong")?.innerText ?? "") === ` + quote(title))
}

func TestThePageOfACampaignFollowsTheCrowdAndTheDraw(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Beacon: 1})
	relay := s.Beacon.Relays()[0]
	servers.NoError(t, relay.SetFaults(drandsim.Faults{Away: drandsim.AwayRefuse})) // nothing is drawn until it answers
	id, page := create(s, true, withBeacon)
	p := operator(s, "Mina", page)
	p.eval(mark, nil)
	p.pictured("free", 6)
	p.atStep("Everything is sold, or the sale has ended")
	s.Crowd(9, func(i int) fleet.Order { return fleet.Order{Campaign: id, User: fmt.Sprint("user-", i), Wait: true} })
	p.pictured("sold", 6)
	p.atStep("The list of buyers is frozen")
	servers.NoError(t, relay.SetFaults(drandsim.Faults{}))
	p.pictured("won", 3)
	p.atStep("")
	p.shows("completed", "6 of 6 sold", "3 won", "Verify the draw")
	p.until(isMarked)
}

// The picture of many positions is a canvas, which has its counts in words.
func TestTheCanvasOfALargeCampaignFollowsItsPositions(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{})
	id := s.Campaign(63)
	p := operator(s, "Mina", "/console/campaigns/"+id.String())
	p.eval(mark, nil)
	const words, inColour = `document.querySelector("#board:not(:has([data-at])) [role=img]")?.ariaLabel.startsWith("2016 positions in 63 layers: %d free, 0 held, 0 reserved, %d sold,")`, `((state) => {
		const canvas = document.querySelector("#board canvas"), probe = document.createElement("canvas").getContext("2d");
		probe.fillStyle = getComputedStyle(canvas).getPropertyValue("--" + state);
		probe.fillRect(0, 0, 1, 1);
		const [colour] = new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer);
		return new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer).includes(colour);
	})`
	p.until(fmt.Sprintf(words, 2016, 0))
	p.until(inColour + `("free") && !` + inColour + `("sold")`)
	fleet.WantSucceeded(t, s.Buy(fleet.Order{Campaign: id, User: "mina", Layer: 63, Quantity: 2, Wait: true}))
	p.until(fmt.Sprintf(words, 2014, 2))
	p.until(inColour + `("sold")`)
	p.until(isMarked)
}

func TestOperatorsPauseRefundAndCancelByForms(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{})
	id, page := create(s, true, fleet.Fields{"name": "The hall"})
	wallet := s.Wallet("mina", 10_000)
	bought := s.Buy(fleet.Order{Campaign: id, User: "mina", Layer: 3, Quantity: 3, ByWallet: true, Wait: true})
	fleet.WantSucceeded(t, bought)
	p := operator(s, "Mina", page)
	p.press(200, `a[href$="/pause"]`)
	p.press(200, "main button", "/reason", "a pause")
	p.shows("Done.", "active, paused", "Resume the sale")

	p.press(200, `#purchases a[href$="`+bought.Result.PurchaseID.String()+`"]`)
	p.press(200, `a[href$="/cancel-positions"]`)
	p.press(400, "main button", "/reason", "fell ill")
	p.shows("choose at least one")
	p.press(200, "main button", "position/4", "on", "position/6", "on")
	p.shows("600 JPY of it refunded", "by operator:"+s.Client("ops")+": fell ill")
	s.ExpectWallet(wallet, 9_700, 0)
	p.press(200, ".said a")
	p.shows("succeeded")
	p.run(chromedp.Navigate(s.URLs[0] + "/console/now"))
	p.eval(`(window.was = document.querySelector("#live time").dateTime, document.querySelector("details").open = true)`, nil)
	p.until(`document.querySelector("#live time").dateTime !== window.was && document.querySelector("details").open`) // it moves, and what is open stays so

	p.run(chromedp.Navigate(s.URLs[0] + page + "/cancel"))
	p.shows("1 positions, 300 JPY")
	p.press(400, "main button", "/reason", "no hall", "typed", "the hall")
	p.says("typed", "", "type exactly: The hall")
	p.says("/reason", "no hall", "")
	p.press(200, "main button", "typed", "The hall")
	p.shows("Accepted: ", "Cancelled", "no hall")
	s.ExpectWallet(wallet, 10_000, 0)
}

// The beacon does not answer for a day, so the draw may be voided.
func TestADrawIsVoidedByItsForm(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Beacon: 1, Workers: -1, Schedulers: -1})
	servers.NoError(t, s.Beacon.Relays()[0].SetFaults(drandsim.Faults{Away: drandsim.AwayRefuse}))
	settings, clock := servers.NewClock(t, s.Settings)
	id, page := create(s, true, withBeacon)
	fixture.SellOut(t, s.DB, id)
	clock.MoveOn(25 * time.Hour)
	s.RunWorker("TRIPRIZE_POSTGRES_URL=" + settings.Postgres.URL)
	p := operator(s, "Mina", page)
	p.atStep("The list of buyers is frozen")
	p.press(200, `a[href$="/void"]`)
	p.shows("6 positions, 1,400 JPY")
	p.press(400, "main button", "/reason", "the beacon is silent", "typed", "another")
	p.says("typed", "", "type exactly: "+s.CampaignNow(id).Name)
	p.press(200, "main button", "typed", s.CampaignNow(id).Name)
	p.shows("Accepted: ", "Cancelled", "the beacon is silent", "0 of 6 sold")
}

// Two operators publish at once: one does, the other is told why not, and both see it on a page that they have open.
func TestTwoOperatorsPublishAtOnce(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, idle)
	_, page := create(s, false, nil)
	forms, looking := make([]*tab, 2), make([]*tab, 2)
	for i, name := range []string{"Mina", "Otto"} {
		forms[i] = operator(s, name, page+"/publish")
		looking[i] = openIn(forms[i].ctx, t, s.URLs[0]+page)
		looking[i].eval(mark, nil)
	}
	statuses := fleet.AtOnce(2, func(i int) int64 { status, _ := forms[i].send("main button", "/reason", "a test"); return status })
	late := slices.Index(statuses, 409)
	if late < 0 || statuses[1-late] != 200 {
		t.Fatal(statuses)
	}
	forms[late].shows("only a pending campaign can be published")
	for i := range looking {
		looking[i].shows("Pause the sale")
		looking[i].pictured("free", 6)
		looking[i].until(isMarked)
	}
}

func TestTheConsoleWorksWithoutScripts(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, idle)
	_, page := create(s, false, nil)
	p := operator(s, "Mina", page, set(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	for _, form := range []string{"publish", "pause"} {
		p.press(200, `a[href$="/`+form+`"]`)
		p.press(200, "main button", "/reason", "a test")
		p.shows("Without scripts this page stays as it is")
	}
	p.shows("active, paused")
}

// fillEveryPage makes what the pages of the console show, campaigns of each shape and state among it, and returns the
// paths of all pages, with the form of each command.
func fillEveryPage(s *fleet.System) (pages []string) {
	type fields = fleet.Fields
	t := s.T
	t.Helper()
	row := func(n, positions int, label string) fields {
		return fields{"layer": n, "positions": positions, "price": 100 * n, "label": label, "aisles": []int{4, 8}, "prizes": []fields{{"name": "Gold", "count": 1}}}
	}
	endpoint := fleet.Want(t, 201, s.Execute("/v1/webhook-endpoints", fields{"url": "http://127.0.0.1:1024/", "events": []string{"*"}})).ID.String()
	drawn := s.Campaign(3)
	s.Crowd(6, func(int) fleet.Order { return fleet.Order{Campaign: drawn, User: "mina", Wait: true} })
	s.AwaitDrawn(drawn)
	hall, _ := create(s, true, fields{"base_length": nil, "sale_ends_at": time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339), "policies": fields{"unsold": "draw"},
		"layers": []fields{row(1, 12, "Row A"), row(2, 9, "A row whose name is far too long for its place")}})
	wallet := s.Wallet("mina", 10_000)
	bought := s.Buy(fleet.Order{Campaign: hall, User: "mina", Quantity: 3, ByWallet: true, Wait: true})
	ofApp := s.Buy(fleet.Order{Campaign: hall, User: "otto", Quantity: 2, Wait: true}).Result.PurchaseID
	fleet.WantSucceeded(t, s.Cancel(s.Operator, ofApp, uuid.NewString(), "fell ill"))
	refund := servers.Value[string](t, s.DB, `SELECT id FROM refunds WHERE purchase_id = $1`, ofApp)
	free := fixture.Free(t, s.DB, hall)
	s.MustHold(fleet.HoldOrder{Campaign: hall, User: "noor", At: free[:1]})
	fleet.Want(t, 200, s.Post("/v1/campaigns/"+hall.String()+"/positions/block", fields{"positions": free[1:2]}))
	oneRow, _ := create(s, true, fields{"base_length": nil, "layers": []fields{row(1, 300, "The only row")}})
	draft, _ := create(s, false, nil)
	cancelled, _ := create(s, true, nil)
	fleet.Want(t, 202, s.Post("/v1/campaigns/"+cancelled.String()+"/cancel", fields{"reason": "no hall"}))
	difference := servers.Value[string](t, s.DB, `INSERT INTO payment_discrepancies (id, kind, object_id, there_amount, there_currency, detail)
		VALUES ($1, 'unknown-here', 'pi_1', 500, 'JPY', 'captured') RETURNING id`, uuidv7.New())
	servers.Eventually(t, "events fail", func() bool { return servers.Value[int](t, s.DB, `SELECT count(*) FROM webhook_attempts`) > 0 })
	event, prefix := servers.Value[string](t, s.DB, `SELECT event_id FROM webhook_attempts LIMIT 1`), servers.Value[string](t, s.DB, `SELECT prefix FROM api_keys WHERE role = 'app'`)
	for root, paths := range map[string]string{
		"":               "/now /sweeps/stale-locks /campaigns /campaigns?state=active /campaigns/new /find /find?q=mina /find?q=nobody /failed /waiting /discrepancies/explain /webhooks /keys /trail /none",
		"/trail?target=": hall.String(), "/keys/" + prefix: "/revoke", "/jobs/": bought.ID.String(), "/refunds/" + refund: "/retry /resolve", "/discrepancies/" + difference: "/explain",
		"/webhooks/" + endpoint:                           " ?state=pending /test /replay /enable /disable /delivery?event=" + event + " /again/" + event,
		"/wallets/" + fleet.WalletID(wallet):              " /credit",
		"/purchases/":                                     ofApp.String(),
		"/purchases/" + bought.Result.PurchaseID.String(): " /cancel /cancel-positions /payment/retry /payment/resolve",
		"/campaigns/":                                     strings.Trim(fmt.Sprint([]any{drawn, oneRow, draft, cancelled, s.Campaign(63)}), "[]"),
		"/campaigns/" + hall.String():                     " /edit /publish /pause /resume /block /unblock /draw /round /void /cancel /refunds/resolve",
	} {
		for path := range strings.SplitSeq(paths, " ") {
			pages = append(pages, "/console"+root+path)
		}
	}
	return pages
}

const moving = `[...document.querySelectorAll("*")].filter((e) => { const s = getComputedStyle(e); return s.transitionDuration !== "0s" || s.animationName !== "none"; }).map((e) => e.localName)`

// wishing makes a browser ask for a colour scheme, and for motion or not.
func wishing(scheme, motion string) chromedp.Action[chromedp.Void] {
	return set(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion}}})
}

// look checks a page that is open, light and dark, wide and narrow, after all that it hides is open.
func (p *tab) look(page string) {
	p.t.Helper()
	axe, err := os.ReadFile("../tools/npm/node_modules/axe-core/axe.min.js")
	if err != nil {
		p.t.Fatalf("axe-core is not installed: run make npm: %v", err)
	}
	p.until(`!document.querySelector("#board:not([data-version])")`)
	p.eval("(() => {"+string(axe)+`
		document.querySelectorAll("details").forEach((d) => { d.open = true; });
		document.body.addEventListener("htmx:beforeSwap", ({detail}) => { detail.shouldSwap = false; }); // what is looked at stays
		window.fetch = () => new Promise(() => {});
	})()`, nil)
	for i := range 4 {
		scheme, width := []string{"light", "dark"}[i/2], []int64{1280, 390}[i%2]
		p.run(chromedp.EmulateViewport(width, 800), wishing(scheme, "reduce"))
		var found []string
		p.eval(`axe.run().then(({violations}) => [...violations.map(({id, help, nodes}) => id + ": " + help + ": " + nodes.map((n) => n.html + " " + n.failureSummary).join("; ")),
			...document.getAnimations().map(() => "an animation"), ...`+moving+`, ...document.documentElement.scrollWidth > document.documentElement.clientWidth ? ["it is too wide"] : [],
			...performance.getEntriesByType("resource").filter((e) => e.responseStatus >= 400).map((e) => e.name)])`, &found)
		if len(found) > 0 {
			p.t.Errorf("%s, %s, %d pixels: %q", page, scheme, width, found)
		}
	}
}

// Every page of the console, light and dark, wide and narrow: axe-core finds nothing to complain about, nothing is
// missing or wider than the page, and nothing moves for who does not want that. What breaks the policy fails every test.
func TestEveryPageOfTheConsoleIsAccessible(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: []string{"TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8", "TRIPRIZE_SWEEPS_DUE_ITEMS_INTERVAL=100ms"}})
	p := visit(s, "/console/campaigns/new")
	p.look("the sign-in page")
	p.press(401, "main button", "/key", "wrong", "/operator", "Mina")
	p.look("after a wrong key")
	p.press(200, "main button", "/key", s.Operator)
	p.press(400, "main button:last-of-type", "/name", "The hall", "/currency", "yen", "/layers", "wrong", "/reason", "a test")
	p.look("a draft that is refused")
	p.press(200, "[name=preview]", "/currency", "JPY", "/layers", "4 | Row A | 100")
	p.look("the preview of a draft")
	p.press(200, "main button:last-of-type")
	p.shows("Done.", "The hall", "pending")
	for _, page := range fillEveryPage(s) {
		p.run(chromedp.Navigate(s.URLs[0] + page))
		p.look(page)
	}
	p.run(chromedp.Navigate(s.URLs[0]+"/console/now"), wishing("light", "no-preference"))
	var moves []string
	if p.eval(moving, &moves); len(moves) == 0 {
		t.Error("nothing ever moves: this test cannot see what does")
	}
}
