//go:build web

package web_test

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"triprize.example/draw/web"
	"triprize/internal/testkit/servers"
)

// file writes content to a file and returns its path.
func file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	servers.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func (p *tab) choose(id, path string) {
	p.t.Helper()
	p.run(chromedp.SetUploadFiles("#"+id, []string{path}))
}

func TestAFileThatIsChosenOrDroppedLeavesTheBrowserNowhere(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	p := open(t, s.URL+"/verify")
	var sent []string
	if err := chromedp.Listen(p.ctx, func(event any) {
		if e, ok := event.(*network.EventRequestWillBeSent); ok && !strings.HasPrefix(e.Request.URL, "blob:") {
			p.mu.Lock()
			defer p.mu.Unlock()
			sent = append(sent, e.Request.URL)
		}
	}); err != nil {
		t.Fatal(err)
	}
	proof, purchase := draw{}.proof(t, 0)
	p.choose("proof", file(t, "proof.json", proof))
	p.done()
	first := p.verdict()
	p.drop(proof, purchase)
	p.eval(`new Promise((resolve) => {
		const look = () => { if (!document.getElementById("purchase-result").hidden && !document.getElementById("report").hidden) resolve(); };
		new MutationObserver(look).observe(document.body, {subtree: true, attributes: true, childList: true});
		look();
	})`, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	if requests := s.requests(); first != "weaker" || len(sent) > 0 || !slices.Equal(requests, []string{"GET /verify"}) {
		t.Errorf("%q: the browser sent %v, the server got %v", first, sent, requests)
	}
}

func TestAnAddressWithACampaignAsksForItsProofItsLabelsAndItsName(t *testing.T) {
	t.Parallel()
	proof, purchase := draw{beacon: true}.proof(t, 0)
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/labels") {
			_, _ = fmt.Fprintf(w, `{"campaign_id": %q, "layers": [{"layer": 1, "positions": 500, "first_number": 1, "label": "Row <b>D</b>"}, {"layer": 2, "positions": 500, "first_number": 1000, "label": null}]}`, campaignID)
			return
		}
		_, _ = w.Write(proof)
	})
	p := open(t, s.URL+"/verify?campaign="+campaignID.String())
	p.done()
	if text := p.text("verdict"); p.verdict() != "failed" || !strings.Contains(text, "All other checks hold. The draw is as good as its chain") {
		t.Errorf("the chain of nobody: %s", text)
	}
	p.choose("purchase", file(t, "purchase.json", purchase)) // the proof is not asked for again
	p.done()
	p.fill("chain-hash", " "+strings.ToUpper(chainHash()))
	if text := p.text("report"); p.verdict() != "weaker" || !strings.Contains(p.text("verdict"), "not drand’s public one") || !strings.Contains(text, "took part") || !strings.Contains(text, "(Row <b>D</b> 1, as the server says, not proven)") {
		t.Error(text)
	}
	want := []string{"GET /verify?campaign=" + campaignID.String(), "GET /v1/campaigns/" + campaignID.String() + "/draw/proof", "GET /v1/campaigns/" + campaignID.String() + "/draw/labels", "GET /c/" + campaignID.String() + "/name"}
	if requests := s.requests(); !slices.Equal(slices.Sorted(slices.Values(requests)), slices.Sorted(slices.Values(want))) {
		t.Errorf("the server got %v", requests)
	}
}

// A campaign without a draw says why, and sends its visitor back.
func TestWhatTheServerCannotShowIsSaid(t *testing.T) {
	t.Parallel()
	const id = "4420823c-fde6-41c2-ab30-f90ec7dd01e4"
	const busy = `{"title": "Unavailable", "detail": "the server has too much to do <b>now</b>"}`
	for _, c := range []struct {
		campaign string
		proof    int    // status of its proof
		draw     string // empty: it cannot be shown either
		want     string
		problem  bool
		asked    int // how many requests besides the page
	}{
		{id, http.StatusServiceUnavailable, "", "The server has no proof to show (503). Unavailable: the server has too much to do <b>now</b>", true, 1},
		{"../../operations", 0, "", "must be a UUID", true, 0},
		{"", 0, "", "must be a UUID", true, 0},
		{id + "/../../other", 0, "", "must be a UUID", true, 0},
		{id, http.StatusConflict, `{"state": "drawing", "freeze": {}, "voids_at": "2026-12-01T10:00:00Z"}`,
			"The operator has announced to void the draw at 2026-12-01T10:00:00Z. Until then anybody who has the signature of its round can post it, to /v1/campaigns/" + id + "/draw/round.", false, 2},
		{id, http.StatusConflict, `{"state": "drawing", "freeze": {}, "voids_at": null}`, "This campaign is not drawn yet. Its proof will be at this address after the draw.Go back", false, 2},
		{id, http.StatusConflict, `{"state": "cancelled", "freeze": {}}`, "The draw of this campaign was voided: nothing is drawn.", false, 2},
		{id, http.StatusConflict, `{"state": "cancelled", "freeze": null}`, "This campaign was cancelled: nothing is drawn.", false, 2},
		{id, http.StatusConflict, "", "This campaign is not drawn yet.", false, 2},
	} {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/proof") || c.draw == "" {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(c.proof)
				_, _ = w.Write([]byte(busy))
				return
			}
			_, _ = w.Write([]byte(c.draw))
		})
		p := open(t, s.URL+"/verify?campaign="+url.QueryEscape(c.campaign))
		p.done()
		var problem bool
		p.eval(`document.getElementById("status").className === "problem"`, &problem)
		text := p.text("status") + p.text("back")
		if problem != c.problem || !strings.Contains(text, c.want) || p.verdict() != "" || !problem && !strings.Contains(text, "Go back") {
			t.Errorf("%q %s: %t: %s", c.campaign, c.draw, problem, text)
		}
		if requests := s.requests(); len(requests) != 1+c.asked {
			t.Errorf("%q %s: the server got %v", c.campaign, c.draw, requests)
		}
	}
}

func TestACopyOnDiskWorksWithoutAServer(t *testing.T) {
	t.Parallel()
	p := open(t, "file://"+file(t, "verify.html", web.VerifyPage))
	proof, purchase := draw{}.proof(t, 0)
	p.choose("purchase", file(t, "purchase.json", purchase))
	p.choose("proof", file(t, "proof.json", proof))
	p.done()
	if text := p.text("checks"); p.verdict() != "weaker" || !strings.Contains(text, "inclusion") {
		t.Error(text)
	}
	p = open(t, "file://"+file(t, "verify.html", web.VerifyPage)+"?campaign="+campaignID.String())
	p.done()
	if text := p.text("status"); !strings.Contains(text, "a copy of the page without a server") {
		t.Error(text)
	}
}

func TestNonsenseGetsClearWords(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	huge := file(t, "huge", nil)
	servers.NoError(t, os.Truncate(huge, 1<<30))
	p.choose("proof", huge)
	p.done()
	if text := p.text("checks"); !strings.Contains(text, "The file has more than 256 MiB, so it was not read.") || p.verdict() != "failed" {
		t.Errorf("a huge file: %s", text)
	}
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"empty":        {[]byte{}, "The file is empty."},
		"long":         {slices.Concat([]byte(`{"beacon":"`), bytes.Repeat([]byte(`x`), 16<<20), []byte(`"}`)), "a member has more than 16 MiB."},
		"an image":     {[]byte("\x89PNG\r\n\x1a\n\x00\x00"), "Byte 0: this is not JSON."},
		"a text":       {[]byte("hello"), "Byte 0: this is not JSON."},
		"cut":          {[]byte(`{"beacon":`), "Byte 10: the file ends too early."},
		"cut in text":  {[]byte(`{"beacon":"x`), "Byte 12: the file ends within a text."},
		"a list":       {[]byte(`[]`), "The document must be an object."},
		"a number":     {[]byte(`7`), "The document must be an object."},
		"deep":         {bytes.Repeat([]byte(`[`), 1<<20), "deep"},
		"deep objects": {append([]byte(`{"beacon":`), bytes.Repeat([]byte(`{"a":`), 1<<18)...), "deep"},
		"unknown":      {[]byte(`{"beacon":null,"bogus":[`), `The document has a member "bogus", which is not known.`},
		"pretty":       {[]byte("{\n}"), "Byte 1: the name of a member must be here."},
	} {
		r := p.verify(c.content, nil, told{})
		if r.Verdict != "failed" || !slices.Equal(r.with("failed"), []string{"form"}) || !strings.Contains(r.Checks[0].Text, c.want) {
			t.Errorf("%s: %+v", name, r.Checks[0])
		}
	}
}

// Half a million positions are checked in a worker: the page tells how far it has come.
func TestTheLargestTriangleIsCheckedWhileThePageLives(t *testing.T) {
	t.Parallel()
	proof, _ := draw{base: 1000, prizes: prizes(1000, 1000)}.proof(t, 0)
	path := file(t, "proof.json", proof)
	p := open(t, newSite(t, nil).URL+"/verify")
	p.eval(`(() => {
		globalThis.parts = new Set();
		const bar = document.getElementById("progress");
		new MutationObserver(() => { if (!bar.hidden) parts.add(bar.value); }).observe(bar, {attributes: true});
	})()`, nil)
	p.choose("proof", path)
	p.done()
	var seen struct {
		Parts, Rows int
		Colours     []string
		Width       int
	}
	p.eval(`(() => {
		const canvas = document.getElementById("canvas"), context = canvas.getContext("2d");
		const data = context.getImageData(0, canvas.height - 3, canvas.width, 1).data, colours = new Set();
		for (let i = 0; i < data.length; i += 4) colours.add(data.slice(i, i + 4).join());
		return { Parts: parts.size, Rows: document.querySelectorAll("#winners tr").length, Width: canvas.width, Colours: [...colours] };
	})()`, &seen)
	if p.verdict() != "weaker" || seen.Parts < 10 || seen.Rows != 1000 || len(seen.Colours) < 1 || seen.Width == 0 {
		t.Errorf("%s: %+v", p.verdict(), seen)
	}
}

// The picture has a colour for sold, unsold and won positions each, where they are.
func TestThePictureShowsWhichPositionsWon(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, _ := draw{layers: []int{2, 4}, prizes: prizes(1, 2), unsold: func(layer, column int) bool { return layer == 2 && column > 2 }}.proof(t, 0)
	p.drop(proof)
	p.done()
	var cells []string
	p.eval(`(() => {
		const canvas = document.getElementById("canvas"), context = canvas.getContext("2d"), scale = Math.min(devicePixelRatio || 1, 2);
		const style = getComputedStyle(document.documentElement), names = {};
		const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
		for (const name of ["--sold", "--free", "--won"]) {
			probe.fillStyle = style.getPropertyValue(name);
			probe.fillRect(0, 0, 1, 1);
			names[probe.getImageData(0, 0, 1, 1).data.join()] = name.slice(2);
		}
		const at = (column, row) => names[context.getImageData(((column - 1) * 26 + 3) * scale, ((row - 1) * 26 + 3) * scale, 1, 1).data.join()];
		return [at(1, 1), at(2, 1), at(1, 2), at(2, 2), at(3, 2), at(4, 2)];
	})()`, &cells)
	if want := []string{"won", "won", "sold", "sold", "free", "free"}; !slices.Equal(cells, want) {
		t.Errorf("the cells are %v", cells)
	}
}

// A raffle is one row of many positions: it wraps, and each position has a cell that can be seen.
func TestThePictureOfARaffleWraps(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, _ := draw{layers: []int{3000}, prizes: prizes(1, 5)}.proof(t, 0)
	for _, width := range []int64{390, 1280} {
		p.run(chromedp.EmulateViewport(width, 800))
		p.drop(proof)
		p.done()
		var seen struct{ Width, Height, Won float64 }
		p.eval(`(() => {
			const canvas = document.getElementById("canvas"), context = canvas.getContext("2d"), { width, height } = canvas.getBoundingClientRect();
			context.fillStyle = getComputedStyle(canvas).getPropertyValue("--won");
			const won = context.fillStyle.match(/\w\w/g).map((hex) => parseInt(hex, 16)).join(), { data } = context.getImageData(0, 0, canvas.width, canvas.height);
			let n = 0;
			for (let i = 0; i < data.length; i += 4) if (data.slice(i, i + 3).join() === won) n++;
			return { Width: width, Height: height, Won: n * width * height / canvas.width / canvas.height / 5 };
		})()`, &seen)
		if seen.Width < 300 || seen.Width > float64(width) || seen.Height < 200 || seen.Height > 480 || seen.Won < 9 {
			t.Errorf("%d pixels: %+v", width, seen)
		}
	}
}

// What was drawn is seen at once and whole; nothing is green that was not shown.
func TestTheResultComesFirstAndSaysNoMoreThanItShows(t *testing.T) {
	t.Parallel()
	proof, purchase := draw{base: 16, prizes: prizes(16, 16)}.proof(t, 0)
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/c/" + campaignID.String() + "/name":
			_, _ = w.Write([]byte(`{"name": "Summer <b>triangle</b>"}`))
		case "/v1/campaigns/" + campaignID.String() + "/draw/proof":
			_, _ = w.Write(proof)
		default:
			http.NotFound(w, r)
		}
	})
	for _, width := range []int64{390, 1280} {
		p := open(t, "about:blank")
		p.run(chromedp.EmulateViewport(width, 800), chromedp.Navigate(s.URL+"/verify?campaign="+campaignID.String()))
		p.done()
		p.choose("purchase", file(t, "purchase.json", purchase))
		p.done()
		var seen struct {
			Order            []string
			Rows, Well       int
			Hidden, Inactive []string
		}
		p.eval(`(() => {
			const all = (selector) => [...document.querySelectorAll(selector)], colour = (e) => getComputedStyle(e).color;
			const well = colour(document.querySelector("li.ok .status"));
			const top = (e) => e.getBoundingClientRect().top, cuts = (e) => e.clientHeight > 0 && e.scrollHeight > e.clientHeight + 1 && getComputedStyle(e).overflowY !== "visible";
			const inactive = (li) => li.innerText.includes("nothing to check") && colour(li.firstChild) !== well;
			return {
				Order: all("#verdict, #purchase-list, #winners, #shows, #open, #checks, #facts").sort((a, b) => top(a) - top(b)).map((e) => e.id),
				Rows: all("#winners tr").length,
				Hidden: all("main *").filter(cuts).map((e) => e.outerHTML.slice(0, 80)),
				Inactive: all("#checks li").filter(inactive).map((li) => li.children[1].textContent),
				Well: all("#verdict, #verdict *").filter((e) => [colour(e), getComputedStyle(e).borderColor].includes(well)).length,
			};
		})()`, &seen)
		order := []string{"verdict", "purchase-list", "winners", "shows", "open", "checks", "facts"}
		inactive := []string{"freeze-time", "chain", "round", "signature", "randomness"}
		if !slices.Equal(seen.Order, order) || seen.Rows != 16 || len(seen.Hidden) > 0 || !slices.Equal(seen.Inactive, inactive) || seen.Well > 0 {
			t.Errorf("%d pixels: %+v", width, seen)
		}
		if title := p.text("verdict-title"); p.verdict() != "weaker" || title != "Consistent, but the operator could have known the winners beforehand" {
			t.Errorf("%s: %q", p.verdict(), title)
		}
		if name := p.text("campaign"); name != "Summer <b>triangle</b> (as the server says, not proven)" {
			t.Error(name)
		}
		p.drop(changed(t, proof, func(d map[string]any) { d["campaign_id"] = strings.Repeat("0", 8) + campaignID.String()[8:] }))
		p.done()
		if name := p.text("campaign-name"); name != "" {
			t.Errorf("the name of a file that is of another campaign: %s", name)
		}
	}
}

// Rules can have more positions, and more layers, than a picture can show.
func TestRulesThatNoPictureCanShowDoNotStopThePage(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, _ := draw{unsold: func(int, int) bool { return true }}.proof(t, 0)
	rows := make([]map[string]int, 200_000)
	for i := range rows {
		rows[i] = map[string]int{"layer": i + 1, "positions": 1}
	}
	for name, layers := range map[string]any{"positions": []map[string]int{{"layer": 1, "positions": math.MaxUint32}}, "layers": rows} {
		p.drop(changed(t, proof, func(d map[string]any) {
			rules := d["rules"].(map[string]any)
			delete(rules, "base_length")
			rules["layers"], rules["prizes"], d["winners"] = layers, []any{}, []any{}
		}))
		p.done()
		var shown bool
		p.eval(`!document.getElementById("picture").hidden`, &shown)
		if text := p.text("verdict-text"); shown || text != "A check failed. This is not the proof of an honest draw, or not in its true form. See: commitment." {
			t.Errorf("%s: %t, %s, %s", name, shown, text, p.text("status"))
		}
	}
}

// axe-core finds nothing to complain about, light and dark, wide and narrow, before and after.
func TestThePageIsAccessible(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile("../tools/npm/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("axe-core is not installed: run make npm: %v", err)
	}
	good, purchase := draw{}.proof(t, 0)
	bad := bytes.Replace(good, []byte(`"trust":"operator"`), []byte(`"trust":"beacon"`), 1)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1200, 320} {
			p := open(t, newSite(t, nil).URL+"/verify")
			p.run(chromedp.EmulateViewport(width, 800), set(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
			p.eval("(() => {"+string(axe)+"\ndocument.querySelectorAll('details').forEach((d) => { d.open = true; });})()", nil)
			for i, files := range [][][]byte{nil, {good, purchase}, {bad}} {
				if files != nil {
					p.drop(files...)
					p.done()
				}
				var found []struct{ ID, Help string }
				p.eval(`axe.run().then(({violations}) => violations.map(({id, help, nodes}) => ({ID: id, Help: help + ": " + nodes.map((n) => n.html + " " + n.failureSummary).join("; ")})))`, &found)
				var wide bool
				p.eval(`document.documentElement.scrollWidth > document.documentElement.clientWidth`, &wide)
				if len(found) > 0 || wide {
					t.Errorf("%s, %d pixels, state %d: too wide %t, %+v", scheme, width, i, wide, found)
				}
			}
		}
	}
}

// fill puts a text into a field, and waits for what the page says then.
func (p *tab) fill(id, text string) {
	p.t.Helper()
	p.eval(fmt.Sprintf(`(() => { const field = document.getElementById(%s); field.value = %s; field.dispatchEvent(new Event("change")); })()`, quote(id), quote(text)), nil)
	p.done()
}

// A link can name a chain, and the page says that it did. It can name nothing that was noted: it may be
// the operator's.
func TestAnAddressNamesAChainAndNothingThatTheUserNoted(t *testing.T) {
	t.Parallel()
	proof, _ := draw{beacon: true}.proof(t, 0)
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(proof) })
	address := s.URL + "/verify?campaign=" + campaignID.String() + "&chain=" + strings.ToUpper(chainHash())
	commitment, freezeHash := hashesOf(t, proof)
	p := open(t, address+"&commitment="+commitment+"&freeze_hash="+freezeHash)
	p.done()
	if title := p.text("verdict-title"); title != "Verified" || !strings.Contains(p.text("from-address"), "names the chain that is trusted here") {
		t.Error(title, p.text("from-address"))
	}
	if checks := p.text("checks"); strings.Contains(checks, "noted") {
		t.Error(checks)
	}
	p = open(t, address+"&chain="+chainHash())
	p.done()
	if text := p.text("status"); text != "The chain hash must be 64 hex digits." {
		t.Error(text)
	}
}

// The title says whether a proof holds, in a colour of its own where its chain is not drand's.
func TestTheFieldsDecideHowFarAProofGoes(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, _ := draw{beacon: true}.proof(t, 0)
	p.choose("proof", file(t, "proof.json", proof))
	p.done()
	_, freezeHash := hashesOf(t, proof)
	for _, c := range []struct{ field, text, title, class string }{
		{"chain-hash", "xyz", "The chain hash must be 64 hex digits.", ""},
		{"chain-hash", chainHash(), "Verified", "weaker"},
		{"freeze-hash", freezeHash[1:], "The hash of the freeze record must be 64 hex digits.", ""},
		{"freeze-hash", freezeHash, "Verified", "weaker"},
		{"commitment", strings.Repeat("ab", 32), "Not verified", "failed"},
	} {
		p.fill(c.field, c.text)
		title := p.text("status")
		if c.class != "" {
			title = p.text("verdict-title")
		}
		if title != c.title || p.verdict() != c.class {
			t.Errorf("%s %q: %q, %q", c.field, c.text, title, p.verdict())
		}
	}
}
