//go:build web

package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"triprize.example/draw/web"
	"triprize/internal/testkit/servers"
)

// patience is for what a browser does at once; a busy machine may take its time.
const patience = 10 * time.Minute

// browser is a headless Chromium that all tests share; each has a tab of its own.
var browser context.Context

func TestMain(m *testing.M) {
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.WSURLReadTimeout(patience))...)
	var end context.CancelFunc
	browser, end = chromedp.NewContext(allocator)
	if err := chromedp.Do(browser); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "Chromium does not start (make browser installs it): %v\n", err)
		os.Exit(1)
	}
	servers.Main(m, end, stop)
}

// site serves the page as the API does, and a proof under its campaign.
type site struct {
	*httptest.Server
	answer http.HandlerFunc // for the proof

	mu    sync.Mutex
	asked []string
}

func newSite(t *testing.T, answer http.HandlerFunc) *site {
	t.Helper()
	s := &site{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI())
		s.mu.Unlock()
		switch {
		case r.URL.Path == "/verify":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Content-Security-Policy", web.VerifyPolicy())
			_, _ = w.Write(web.VerifyPage)
		case s.answer != nil:
			s.answer(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// tab is a tab of the browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // exceptions and errors in the console
}

// open opens an address in a new tab, which is closed with the test. What the page reports
// as an error fails the test.
func open(t *testing.T, address string) *tab {
	t.Helper()
	return openIn(browser, t, address)
}

// openIn is open in the browser of parent, the context of a tab, unless an option says another.
func openIn(parent context.Context, t *testing.T, address string, options ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(parent, options...)
	t.Cleanup(closeTab)
	ctx, cancel := context.WithTimeout(ctx, patience)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx}
	servers.NoError(t, chromedp.Listen(ctx, p.note))
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.problems) > 0 {
			t.Errorf("the page reports %q", p.problems)
		}
	})
	p.run(chromedp.Navigate(address))
	return p
}

// note keeps what the page reports as an error: also what its policy does not let it do.
func (p *tab) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError {
			p.problems = append(p.problems, fmt.Sprint(e.Args))
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Source == cdplog.EntrySourceSecurity {
			p.problems = append(p.problems, e.Entry.Text)
		}
	}
}

func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	servers.NoError(p.t, chromedp.Do(p.ctx, actions...))
}

// eval sets into to the value of an expression, or of its promise. into may be nil.
func (p *tab) eval(expression string, into any) {
	p.t.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`(async () => JSON.stringify((await (`+expression+`)) ?? null))()`, chromedp.EvalAwaitPromise))
	servers.NoError(p.t, err)
	if into == nil {
		return
	}
	servers.NoError(p.t, json.Unmarshal([]byte(text), into))
}

// done waits until the page shows a report or a problem.
func (p *tab) done() {
	p.t.Helper()
	var ok bool
	p.eval(`new Promise((resolve) => {
		const look = () => { if (!document.getElementById("report").hidden || document.getElementById("status").className === "problem" || !document.getElementById("back").hidden) resolve(true); };
		new MutationObserver(look).observe(document.body, {subtree: true, attributes: true, childList: true, characterData: true});
		look();
	})`, &ok)
}

// text returns what an element shows.
func (p *tab) text(id string) string {
	p.t.Helper()
	var text string
	p.eval(`document.getElementById(`+quote(id)+`).innerText`, &text)
	return text
}

// verdict returns which verdict the page shows: empty for none.
func (p *tab) verdict() string {
	p.t.Helper()
	var verdict string
	p.eval(`document.getElementById("report").hidden ? "" : document.getElementById("verdict").className`, &verdict)
	return verdict
}

// report is what the engine of the page returns.
type report struct {
	Verdict  string
	Headline string
	Checks   []check
	Meaning  struct{ Shows, Open []string }
	Purchase []struct {
		Layer, Column int
		Prizes        []struct{ Prize int }
	}
}

type check struct{ Name, Status, Text string }

// with returns the names of the checks with a status.
func (r report) with(status string) (names []string) {
	for _, c := range r.Checks {
		if c.Status == status {
			names = append(names, c.Name)
		}
	}
	return names
}

// told is what the user of the engine says besides the files.
type told struct {
	ChainHashes []string `json:"chainHashes,omitempty"`
	Commitment  string   `json:"commitment,omitempty"`
	FreezeHash  string   `json:"freezeHash,omitempty"`
}

// verify runs the engine inside the page. purchase may be nil.
func (p *tab) verify(proof, purchase []byte, user told) report {
	p.t.Helper()
	var r report
	p.eval(fmt.Sprintf(`(() => {
		const bytes = (text) => text === null ? undefined : Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
		const { verdict, headline, checks, meaning, purchase } = drawVerifier.verify(bytes(%s), { ...%s, purchase: bytes(%s) });
		return { verdict, headline, checks, meaning, purchase };
	})()`, quote(proof), quote(user), quote(purchase)), &r)
	return r
}

// quote returns a value as JavaScript: bytes as base64, nil bytes as null.
func quote(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// drop drops files onto the page, by their content. What it shows of others is gone then: it reads these first.
func (p *tab) drop(contents ...[]byte) {
	p.t.Helper()
	var script strings.Builder
	script.WriteString(`document.getElementById("report").hidden = true; const data = new DataTransfer();`)
	for _, content := range contents {
		fmt.Fprintf(&script, `data.items.add(new File([Uint8Array.from(atob(%s), (c) => c.charCodeAt(0))], "file"));`, quote(content))
	}
	script.WriteString(`document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));`)
	p.eval("(() => {"+script.String()+"})()", nil)
}
