package httpapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// anybody asks for a page without a key.
func anybody(s *fleet.System, path string, header ...string) fleet.Answer {
	named := make(map[string]string)
	for pair := range slices.Chunk(header, 2) {
		named[pair[0]] = pair[1]
	}
	return s.Do(0, "", http.MethodGet, path, named, nil)
}

func pageOf(id uuid.UUID) string { return "/c/" + id.String() }

func TestACampaignIsShownToEverybodyOnlyIfItSaysSo(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	body := fleet.CampaignBody(3)
	body["public_page"] = "page"
	draft := view(s, s.Post("/v1/campaigns", body), 201).ID
	const kept = "public, max-age=0, s-maxage=2" // a cache shows no page that was closed
	for page, cached := range map[string]string{pageOf(draft): kept, pageOf(uuid.New()): kept, "/c/x": "no-store", "/c/" + strings.ReplaceAll(draft.String(), "-", ""): "no-store", pageOf(draft) + "%2Flive": "no-store"} {
		wantAnswer(t, page, anybody(s, page), 404, "There is no such page", `<nav aria-label="Triprize"><a href="/" target="_blank"`, valued{"Cache-Control", cached})
		wantAnswer(t, "a part of "+page, anybody(s, page+"/live"), 404, "not-found", valued{"Cache-Control", cached})
	}
	path, id := sells(s, nil)
	wantAnswer(t, "one that does not say so", anybody(s, pageOf(id)), 404)
	const framing = "Content-Security-Policy"
	for _, step := range []struct {
		change   fleet.Fields
		status   int
		has      string
		page     int
		framedBy string
	}{
		{fleet.Fields{"public_page": "embed"}, 400, "/embed_origins", 404, ""},
		{fleet.Fields{"public_page": "embed", "embed_origins": []string{"https://a..example"}}, 400, "must be an origin", 404, ""},
		{fleet.Fields{"embed_origins": []string{"https://shop.example"}}, 400, "/embed_origins", 404, ""},
		{fleet.Fields{"public_page": "embed", "embed_origins": []string{"https://shop.example; script-src *"}}, 400, "must be an origin", 404, ""},
		{fleet.Fields{"public_page": "embed", "embed_origins": []string{"https://shop.example/path"}}, 400, "must be an origin", 404, ""},
		{fleet.Fields{"public_page": "page"}, 200, `"public_page":"page","embed_origins":[]`, 200, "'none'"},
		{fleet.Fields{"public_page": "embed", "embed_origins": []string{"https://shop.example", "http://localhost:3000"}}, 200, `"public_page":"embed"`, 200, "https://shop.example http://localhost:3000"},
		{fleet.Fields{"embed_origins": []string{"https://b.example"}}, 200, `"embed_origins":["https://b.example"]`, 200, "https://b.example"},
		{fleet.Fields{"public_page": "embed"}, 400, "/embed_origins", 200, "https://b.example"}, // it replaces the origins
		{fleet.Fields{"name": "Renamed"}, 200, `"embed_origins":["https://b.example"]`, 200, "https://b.example"},
		{fleet.Fields{"public_page": "page"}, 200, `"embed_origins":[]`, 200, "'none'"},
		{fleet.Fields{"public_page": "none"}, 200, `"public_page":"none"`, 404, ""},
	} {
		wantAnswer(t, fmt.Sprint(step.change), s.Do(0, s.Operator, http.MethodPatch, path, nil, step.change), step.status, step.has)
		servers.Eventually(t, "the page follows", func() bool { // it may be two seconds old
			a := anybody(s, pageOf(id))
			return a.Status == step.page && (step.framedBy == "" || strings.HasSuffix(a.Header.Get(framing), "; frame-ancestors "+step.framedBy))
		})
	}
	mustAnswer(t, "", s.Do(0, s.Operator, http.MethodPatch, path, nil, fleet.Fields{"public_page": "page"}), 200)
	servers.Eventually(t, "it is listed", func() bool { return strings.Contains(string(anybody(s, "/").Body), pageOf(id)) })
	if strings.Contains(string(anybody(s, "/").Body), pageOf(draft)) {
		t.Error("a draft is listed")
	}
}

// Everybody sees what is sold and won, and nobody who has bought it. Every language says the same states.
func TestAPublicPageShowsTheDrawAndNoPerson(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, id := sells(s, fleet.Fields{"public_page": "page", "name": "Fish & <Chips>", "metadata": fleet.Fields{"note": "internal-note"}})
	fleet.WantSucceeded(t, buys(s, path, "otto-the-buyer", fleet.Fields{"quantity": 5}, external))
	count := func(a fleet.Answer, state string) int {
		return strings.Count(string(a.Body), `<rect data-state="`+state+`"`)
	}
	servers.Eventually(t, "the picture shows the sale", func() bool { a := anybody(s, pageOf(id)); return count(a, "sold") == 5 && count(a, "free") == 1 })
	bought := buys(s, path, "otto-the-buyer", fleet.Fields{"quantity": 1}, external)
	fleet.WantSucceeded(t, bought)
	s.AwaitDrawn(id)
	servers.Eventually(t, "the picture shows the winners", func() bool { return count(anybody(s, pageOf(id)), "won") == 3 })
	for accepted, c := range map[string][]string{"": {"en", "Verify this draw"}, "fr, de-AT;q=0.8, en;q=0.5": {"de", "Ziehung überprüfen"}, "ja": {"ja", "この抽選を検証する"}, "xx-broken,,;": {"en", "Verify this draw"}, "de-CH, " + strings.Repeat("x-y;q=", 100): {"de", "Ziehung überprüfen"}} {
		a := anybody(s, pageOf(id), "Accept-Language", accepted)
		wantAnswer(t, accepted, a, 200, `<html lang="`+c[0]+`"`, c[1], `data-state="completed"`, "/verify?campaign="+id.String(), "Fish &amp; &lt;Chips&gt;", valued{"Vary", "Accept-Language, Accept-Encoding"})
		all := string(a.Body) + string(anybody(s, pageOf(id)+"/live", "Accept-Language", accepted).Body) + string(anybody(s, pageOf(id)+"/name").Body)
		for _, private := range []string{"otto-the-buyer", bought.Result.PurchaseID.String(), "internal-note"} {
			if strings.Contains(all, private) {
				t.Errorf("%q tells %s", accepted, private)
			}
		}
	}
	mustAnswer(t, "", s.Do(0, s.Operator, http.MethodPatch, path, nil, fleet.Fields{"public_page": "none"}), 200) // in any state
	servers.Eventually(t, "it is shown no more", func() bool { return anybody(s, pageOf(id)).Status == 404 })
	mustAnswer(t, "", s.Do(0, s.Operator, http.MethodPatch, path, nil, fleet.Fields{"public_page": "page"}), 200)
	wantAnswer(t, "named in the address", anybody(s, pageOf(id)+"?lang=ja", "Accept-Language", "de"), `<html lang="ja"`)
	wantAnswer(t, "the name", anybody(s, pageOf(id)+"/name"), 200, `{"name":"Fish \u0026 \u003cChips\u003e"}`)
}

// Polls are not charged to an address, so that a crowd behind one can watch; asking for what is not there is.
func TestACrowdWatchesForOneReadInTwoSeconds(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	tapped := fleet.NewTap(t, s.Settings.Postgres.URL)
	s.RunAPI("TRIPRIZE_POSTGRES_URL="+tapped.URL, "TRIPRIZE_LIMITS_ADDRESS_RATE=1", "TRIPRIZE_LIMITS_ADDRESS_BURST=3")
	ask := func(path string, header map[string]string) fleet.Answer {
		return s.Do(1, "", http.MethodGet, path, header, nil)
	}
	path, id := sells(s, fleet.Fields{"public_page": "page"})
	const read = "FROM layers WHERE campaign_id = $1 ORDER BY layer"
	begun, before := time.Now(), tapped.Count(read)
	first := ask(pageOf(id)+"/live", nil)
	tag := first.Header.Get("ETag")
	wantAnswer(t, "a poll", first, 200, valued{"Cache-Control", "public, max-age=0, s-maxage=2"}, valued{"Vary", "Accept-Language, Accept-Encoding"})
	if policy := first.Header.Get("Content-Security-Policy"); !strings.HasSuffix(policy, "; frame-ancestors 'none'") {
		t.Errorf("the part that moves can be framed: %q", policy)
	}
	fleet.Together(20, func(i int) {
		for range 50 {
			wantAnswer(t, "a poll", ask(pageOf(id)+"/live?lang="+[]string{"en", "de"}[i%2], nil), 200)
		}
		wantAnswer(t, "who has it", ask(pageOf(id)+"/live", map[string]string{"If-None-Match": tag}), 304)
	})
	if n, most := tapped.Count(read)-before, int(time.Since(begun).Seconds()/2)+2; n < 1 || n > most {
		t.Errorf("1,000 polls were %d reads, want at most %d", n, most)
	}
	const reads = "FROM campaigns WHERE id = $1"
	charged := func(page func() string) {
		statuses, before := make(map[int]int), tapped.Count(reads)
		for _, status := range fleet.AtOnce(20, func(int) int { return ask(page(), nil).Status }) {
			statuses[status]++
		}
		if n := tapped.Count(reads) - before; statuses[429] == 0 || statuses[404]+statuses[429] != 20 || n > statuses[404] {
			t.Errorf("who asks for what is not there gets %v, for %d reads", statuses, n)
		}
	}
	charged(func() string { return pageOf(uuid.New()) })
	wantAnswer(t, "what is there is still shown", ask(pageOf(id), nil), 200)
	mustAnswer(t, "", s.Do(0, s.Operator, http.MethodPatch, path, nil, fleet.Fields{"public_page": "none"}), 200)
	servers.Eventually(t, "the page is closed", func() bool { return ask(pageOf(id), nil).Status == 404 })
	before = tapped.Count(read)
	charged(func() string { return pageOf(id) })
	if n := tapped.Count(read) - before; n != 0 {
		t.Errorf("a closed page was read whole %d times", n)
	}
}

func TestAPublicPageSaysWhatTheCampaignWaitsFor(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	for phase, fields := range map[string]fleet.Fields{
		"on_sale": {}, "upcoming": {"sale_starts_at": in(time.Hour), "sale_ends_at": in(2 * time.Hour)}, "paused": {"sale_starts_at": in(time.Hour)},
	} {
		change := fleet.Fields{"public_page": "page"}
		maps.Copy(change, fields)
		path, id := sells(s, change)
		if phase == "paused" {
			mustAnswer(t, "", s.Post(path+"/pause", nil), 200)
		}
		wantAnswer(t, phase, anybody(s, pageOf(id)), 200, `data-state="`+phase+`"`)
		if strings.Contains(string(anybody(s, pageOf(id)).Body), "Sale begins: ") != (phase != "on_sale") {
			t.Errorf("%s: when the sale begins is shown, or is not", phase)
		}
	}
}
