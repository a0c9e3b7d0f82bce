package httpapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// awaitPage asks for a page until it has the texts: what moves on it may be two seconds old.
func awaitPage(b browser, page string, texts ...string) {
	b.s.T.Helper()
	servers.Eventually(b.s.T, page+" has "+strings.Join(texts, ", "), func() bool {
		a := b.get(page)
		return a.Status == http.StatusOK && !slices.ContainsFunc(texts, func(text string) bool { return !fleet.Contains(a.Body, text) })
	})
}

func TestTheConsoleShowsEndpointsAndRepairsThem(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, toLoopback)
	b, good, bad := signIn(s), receive(t, http.StatusNoContent, nil), receive(t, http.StatusServiceUnavailable, nil)
	endpoint := endpointAt(s, bad.URL, "wallet.*")
	page := "/webhooks/" + strings.TrimPrefix(endpoint, endpointsPath+"/")
	wantAnswer(t, "an endpoint without events", b.get(page), 200, "There is none.", `href="/console`+page+`/disable"`)
	s.Wallet("mina", 1000)
	event := noted(s, endpoint, "pending", 1)[0].ID // it fails, and is tried again
	one := page + "/delivery?event=" + event
	awaitPage(b, one, "<td>503</td>", "wallet.credit")
	awaitPage(b, "/webhooks", bad.URL, `href="/console`+page+`"`, s.Client("shop"), `<td class="number">1</td>`, `<span class="critical">since</span>`, "shows 0 for them")
	awaitPage(b, page, `href="/console`+one+`"`, "wallet.credit", "Every attempt has failed since", "The last answer: <bdi>503", "<dt>next_attempt</dt>")

	wantAnswer(t, "no reason", b.post(page+"/disable"), 400, "is required")
	wantAnswer(t, "disabled", b.post(page+"/disable", "/reason", "it fails"), 303, valued{"Location", "/console" + page + "?done=1"})
	noted(s, endpoint, "failed", 1)
	awaitPage(b, one, `<strong class="critical">failed</strong>`)
	part := page + "/delivery/live?event=" + event
	moving := b.get(part, "HX-Request", "true")
	wantAnswer(t, "what moves", moving, 200, "wallet.credit", without("<html"))
	wantAnswer(t, "the same once more", b.get(part, "HX-Request", "true", "If-None-Match", moving.Header.Get("ETag")), 304)
	awaitPage(b, page+"?state=failed", `href="/console`+one+`"`, `?state=failed" aria-current="page"`, `hx-get="/console`+page+`/live?state=failed"`)
	wantAnswer(t, "those that failed, again", b.get(page+"/live?state=failed", "HX-Request", "true"), 200, event)
	wantAnswer(t, "those that were delivered", b.get(page+"?state=delivered"), 200, without(event))
	wantAnswer(t, "a test of a disabled one", b.post(page+"/test", "/reason", "x"), 409, "state-conflict")

	endpointOf(s, s.Do(0, s.App, http.MethodPatch, endpoint, nil, map[string]any{"url": good.URL}), 200)
	wantAnswer(t, "enabled", b.post(page+"/enable", "/reason", "repaired"), 303)
	wantAnswer(t, "no time", b.post(page+"/replay", "/reason", "x", "/from", "yesterday"), 400, "must be a time such as", `value="yesterday"`)
	form := []string{"/reason", "repaired", "/state", "failed", "/from", time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04"), "once", uuid.NewString()}
	for range 2 { // sent twice, done once
		wantAnswer(t, "what has failed", b.post(page+"/replay", form...), 303, valued{"Location", "/console" + page + "?done=1"})
	}
	noted(s, endpoint, "delivered", 1)
	wantEqual(t, "the replays", good.times(event), 1)
	wantAnswer(t, "one more", b.post(page+"/again/"+event, "/reason", "asked for"), 303)
	wantAnswer(t, "a test", b.post(page+"/test", "/reason", "does it work"), 303, valued{"Location", "/console" + page + "?done=1"})
	noted(s, endpoint, "delivered", 2)
	wantEqual(t, "the replays after one more", good.times(event), 2)
	for _, path := range []string{"/webhooks/x", "/webhooks/" + uuid.NewString(), page + "/delivery?event=" + uuid.NewString(), page + "/delivery"} {
		wantAnswer(t, path, b.get(path), 404, `<h1 dir="auto">Not shown</h1>`)
	}
}
