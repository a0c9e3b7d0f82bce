//go:build web

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"triprize/devkit/devstack"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

const exampleShop = "../examples/shop"

// hall is a running examples/shop.
type hall struct {
	url      string
	campaign uuid.UUID

	mu    sync.Mutex
	heard []heard
}

// heard is what the shop says of an event that it handles.
type heard struct {
	Event         uuid.UUID
	Type, Subject string
}

func (h *hall) events() []heard {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]heard{}, h.heard...)
}

// compiledShop compiles the client and then the shop with it, as npm install and npm start do.
func compiledShop(t *testing.T) string {
	t.Helper()
	dir, modules := t.TempDir(), "../tools/npm/node_modules"
	client := filepath.Join(dir, "node_modules/@triprize/client")
	types, err := filepath.Abs(filepath.Join(modules, "@types"))
	servers.NoError(t, err)
	for _, command := range [][]string{
		{"mkdir", "-p", client},
		{"cp", "../clients/typescript/package.json", client},
		{"cp", exampleShop + "/server.ts", exampleShop + "/page.html", exampleShop + "/tsconfig.json", exampleShop + "/package.json", dir},
		{"ln", "-s", types, filepath.Join(dir, "node_modules/@types")},
		{modules + "/.bin/tsc", "--project", "../clients/typescript/tsconfig.json", "--outDir", filepath.Join(client, "dist")},
		{modules + "/.bin/tsc", "--project", dir},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s (make npm installs what it needs): %v\n%s", strings.Join(command, " "), err, out)
		}
	}
	return dir
}

// openShop starts the shop on a system, and waits until it sells.
func openShop(t *testing.T, api, app, operator string) *hall {
	t.Helper()
	address, err := devstack.FreeAddress()
	servers.NoError(t, err)
	h := &hall{url: "http://" + address}
	startNode(t, filepath.Join(compiledShop(t), "server.js"), []string{"API=" + api, "APP=" + app, "OPERATOR=" + operator, "PORT=" + address[strings.LastIndexByte(address, ':')+1:]}, "The shop is open", func(line string) {
		if id, found := strings.CutPrefix(line, "campaign "); found {
			h.campaign = uuid.MustParse(id)
		}
		var one heard
		if json.Unmarshal([]byte(line), &one) == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.heard = append(h.heard, one)
		}
	})
	return h
}

// A buyer whose cards are declined keeps the seats, brings others, authenticates at the page of the bank, has
// the seats, and gives them back.
func TestABuyerBuysAtTheExampleShop(t *testing.T) {
	t.Parallel()
	_, dev := startDev(t, openDir(t))
	h := openShop(t, dev.APIURL, dev.AppKey, dev.OperatorKey)
	b := browse(t, h.url)
	const seats = `["seat-4-7", "seat-4-8"].map((id) => document.getElementById(id))`
	b.await(`document.querySelectorAll("#map button.available").length === 80`)
	pay := func(card string) {
		b.do(`document.getElementById("card").value = "` + card + `"; document.getElementById("pay").click()`)
		b.await(`!document.getElementById("pay")?.disabled`)
	}
	says := func(text string) {
		b.await(`document.getElementById("said").textContent === "` + text + `"`)
	}
	atTheBank := func(outcome string) {
		pay("pm_card_threeDSecure2Required")
		b.await(`location.port !== "` + h.url[strings.LastIndexByte(h.url, ':')+1:] + `" && document.querySelector("[value=succeed]")`)
		b.do(`document.querySelector("[value=` + outcome + `]").click()`)
	}
	b.do(seats + `.forEach((seat) => seat.click())`)
	pay("pm_card_chargeDeclined")
	b.do(`window.before = true; location.reload()`)
	b.await(`!window.before`)
	for range 4 { // the first purchase takes five cards, and its hold is bought again then
		says("Your card was declined. Choose another card, and pay.")
		b.await(`/^[0-2]:[0-5][0-9] left$/.test(document.getElementById("left").textContent)`)
		pay("pm_card_chargeDeclined")
	}
	says("Not sold: Your card was declined. The seats are still held for you.")
	b.await(seats + `.every((seat) => seat.classList.contains("held"))`)
	atTheBank("fail")
	b.await(`document.getElementById("said").textContent.endsWith("Choose another card, and pay.")`)
	atTheBank("succeed")
	b.await(`document.getElementById("said").textContent === "Yours: Row D 7, Row D 8"`)
	b.await(seats + `.every((seat) => seat.classList.contains("sold"))`)
	b.await(`document.getElementById("mine").textContent.includes("Row D 7, Row D 8: completed")`)
	b.do(`document.querySelector("#mine button").click()`)
	b.await(`document.getElementById("said").textContent.startsWith("The seats are free")`)
	b.await(seats + `.every((seat) => seat.classList.contains("available"))`)
	heardOf := func() (types map[string]int, bought uuid.UUID) {
		types = make(map[string]int)
		for _, one := range h.events() {
			if types[one.Type]++; one.Type == "purchase.completed" {
				bought = one.Event
			}
		}
		return types, bought
	}
	servers.Eventually(t, "the shop hears of the sale and of its end", func() bool {
		types, _ := heardOf()
		return types["purchase.completed"] == 1 && types["purchase.cancelled"] == 1 && types["purchase.refunded"] == 1
	})
	_, event := heardOf()
	endpoint := regexp.MustCompile(`"id":"([^"]+)"`).FindSubmatch(dev.want(t, http.StatusOK, http.MethodGet, "/v1/webhook-endpoints", dev.AppKey, nil).Body)
	delivery := fmt.Sprintf("/v1/webhook-endpoints/%s/deliveries/%s", endpoint[1], event)
	dev.want(t, http.StatusOK, http.MethodPost, delivery+"/replay", dev.AppKey, nil)
	servers.Eventually(t, "the sale is told once more", func() bool {
		a := dev.want(t, http.StatusOK, http.MethodGet, delivery, dev.AppKey, nil)
		return fleet.Contains(a.Body, `"state":"delivered"`) && strings.Count(string(a.Body), `"status":2`) == 2
	})
	if types, _ := heardOf(); types["purchase.completed"] != 1 {
		t.Errorf("the shop has handled %d sales", types["purchase.completed"])
	}
}

// tab is a tab of a headless Chromium of its own.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func browse(t *testing.T, address string) tab {
	t.Helper()
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.WSURLReadTimeout(servers.Patience))...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	if err := chromedp.Do(ctx, chromedp.Navigate(address)); err != nil {
		t.Fatalf("Chromium (make browser installs it): %v", err)
	}
	return tab{t, ctx}
}

// try sets into to the value of an expression, or of its promise.
func (b tab) try(expression string, into any) error {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`(async () => JSON.stringify((await (`+expression+`)) ?? null))()`, chromedp.EvalAwaitPromise))
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), into)
}

// do runs an expression.
func (b tab) do(expression string) {
	b.t.Helper()
	var ignored any
	servers.NoError(b.t, b.try(`(() => {`+expression+`})()`, &ignored))
}

// await waits until an expression is true, also while the tab goes to another page.
func (b tab) await(expression string) {
	b.t.Helper()
	servers.Eventually(b.t, expression, func() bool {
		var holds bool
		return b.try("!!("+expression+")", &holds) == nil && holds
	})
}

// startNode runs a program with Node.js, which says each line of its output to hear. It returns when the program has said
// that it is ready; kill ends it at once, as does the end of the test.
func startNode(t *testing.T, program string, env []string, ready string, hear func(line string)) (kill func()) {
	t.Helper()
	node := exec.Command("node", program)
	node.Env = append(append(os.Environ(), env...), fleet.NodeEnv(t)...)
	var errs servers.Journal
	node.Stderr = &errs
	out, err := node.StdoutPipe()
	servers.NoError(t, err)
	servers.NoError(t, node.Start())
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if hear(lines.Text()); strings.Contains(lines.Text(), ready) {
				close(begun)
			}
		}
	}()
	kill = sync.OnceFunc(func() {
		_ = node.Process.Kill()
		<-ended
		_ = node.Wait()
		if t.Failed() {
			t.Logf("%s says\n%s", program, fleet.Tail([]byte(errs.String()), 4000))
		}
	})
	t.Cleanup(kill)
	select {
	case <-begun:
	case <-ended:
		t.Fatalf("%s has ended: %s", program, errs.String())
	}
	return kill
}
