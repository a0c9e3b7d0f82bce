package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// readAs reads something at the n-th api, if it is not what one has already.
func readAs(s *fleet.System, n int, key, path, ifNoneMatch string) fleet.Answer {
	header := map[string]string{}
	if ifNoneMatch != "" {
		header["If-None-Match"] = ifNoneMatch
	}
	return s.Do(n, key, http.MethodGet, path, header, nil)
}

func TestACampaignAndABoardAreSentOnceAndThenOnlyWhenTheyChange(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(4)
	campaign := "/v1/campaigns/" + id.String()
	readers := map[string]string{"an operator": s.Operator, "an app": s.App, "a user": fleet.TokenFor(t, "a", ""), "a viewer": fleet.TokenFor(t, "v", "public")}
	tags := make(map[string]string)
	for who, key := range readers {
		for _, path := range []string{campaign, campaign + "/positions"} {
			first := readAs(s, 0, key, path, "")
			tag := first.Header.Get("ETag")
			if first.Status != http.StatusOK || !strings.HasPrefix(tag, `W/"`) || first.Header.Get("Cache-Control") != "private, no-cache" {
				t.Fatalf("%s reads %s: %v, %v", who, path, first, first.Header)
			}
			tags[who+path] = tag
			for api := range 2 { // a tag is the same everywhere
				wantAnswer(t, fmt.Sprintf("%s has %s, at api %d", who, path, api), readAs(s, api, key, path, tag), 304, valued{"ETag", tag})
			}
			wantAnswer(t, who+" has another "+path, readAs(s, 0, key, path, `"x"`), 200, string(first.Body))
		}
	}
	mustAnswer(t, "", s.Buy(fleet.Order{Campaign: id, User: "a", Wait: true}), job.Succeeded)
	for who, key := range readers {
		changed := func() bool {
			a := readAs(s, 1, key, campaign, tags[who+campaign])
			return a.Status == http.StatusOK && a.Header.Get("ETag") != tags[who+campaign] && view(s, a, http.StatusOK).Positions.Sold == 1
		}
		if who == "an operator" && !changed() {
			t.Error("an operator reads a campaign that is not as it is")
		}
		servers.Eventually(t, "the campaign shows the sale", changed) // the copy of the others is half a second old at most
		board := campaign + "/positions"
		servers.Eventually(t, "the sale is on the board", func() bool {
			a := readAs(s, 1, key, board, tags[who+board])
			return a.Status == http.StatusOK && strings.Count(string(a.Body), `"sold"`) == 1
		})
	}
}

func TestACrowdThatReadsACampaignOrTheListCostsTwoReadsASecond(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	tapped := fleet.NewTap(t, s.Settings.Postgres.URL)
	s.RunAPI("TRIPRIZE_POSTGRES_URL=" + tapped.URL)
	id := s.Campaign(10)
	for path, read := range map[string]string{
		"/v1/campaigns/" + id.String():                "FROM layers WHERE campaign_id = $1 ORDER BY layer",
		"/v1/campaigns?state=active":                  "ORDER BY id DESC LIMIT $3",
		"/v1/campaigns/" + id.String() + "/positions": "WHERE p.campaign_id = $1 AND NOT EXISTS (SELECT FROM position_fills WHERE campaign_id = $1) ORDER BY p.layer, col",
	} {
		begun, before, rate := time.Now(), tapped.Count(read), 2.0
		if strings.HasSuffix(path, "/positions") {
			rate = 1
		}
		fleet.Together(20, func(int) {
			for range 50 {
				wantAnswer(t, path, readAs(s, 1, s.App, path, ""), 200, `"positions":`)
			}
		})
		if n, most := tapped.Count(read)-before, int(rate*time.Since(begun).Seconds())+2; n < 1 || n > most {
			t.Errorf("1,000 looks at %s were %d reads within %s, want at most %d", path, n, time.Since(begun), most)
		}
	}
}

// The copies of every process are young whenever somebody looks.
func TestAnOperatorReadsAtOnceWhatItHasChangedAtAnotherProcess(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{APIs: 2, Workers: -1, Schedulers: -1})
	id := s.Campaign(3)
	path := "/v1/campaigns/" + id.String()
	warm := func() {
		for api := range 2 {
			readAs(s, api, s.App, path, "")
			readAs(s, api, s.App, "/v1/campaigns", "")
		}
	}
	type campaign struct {
		ID     uuid.UUID
		Name   string
		Paused bool
	}
	read := func(api int, key string) (one campaign, list []campaign) {
		t.Helper()
		one = fleet.As[campaign](t, readAs(s, api, key, path, ""))
		return one, fleet.As[struct{ Campaigns []campaign }](t, readAs(s, api, key, "/v1/campaigns", "")).Campaigns
	}
	for _, paused := range []bool{true, false, true} {
		warm()
		move := map[bool]string{true: "/pause", false: "/resume"}[paused]
		mustAnswer(t, "", s.Post(path+move, nil), 200)
		for api := range 2 {
			if one, list := read(api, s.Operator); one.Paused != paused || len(list) != 1 || list[0].Paused != paused {
				t.Errorf("at api %d an operator reads %+v, %+v", api, one, list)
			}
		}
		if one, list := read(0, s.App); one.Paused != paused || list[0].Paused != paused {
			t.Errorf("where it was changed an app reads %+v, %+v", one, list)
		}
		servers.Eventually(t, "an app reads it elsewhere", func() bool { one, list := read(1, s.App); return one.Paused == paused && list[0].Paused == paused })
	}
	warm()
	mustAnswer(t, "", s.Do(0, s.Operator, http.MethodPatch, path, nil, map[string]any{"name": "Another"}), 200)
	made := view(s, s.Post("/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated)
	for api := range 2 {
		if one, list := read(api, s.Operator); one.Name != "Another" || len(list) != 2 || list[0].ID != made.ID || list[1].Name != "Another" {
			t.Errorf("at api %d an operator reads %+v, %+v", api, one, list)
		}
	}
	if one, list := read(0, s.App); one.Name != "Another" || len(list) != 1 { // the other one is a draft
		t.Errorf("where it was changed an app reads %+v, %+v", one, list)
	}
}

// A stream of the process makes its copies as new as its events.
func TestWhoFollowsACampaignReadsNothingOlderThanItsEvents(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(6)
	path := "/v1/campaigns/" + id.String()
	l := s.Listen(0, s.App, fleet.CampaignEvents(id), "")
	for sold := 1; sold <= 10; sold++ {
		readAs(s, 0, s.App, path, "") // the copies are young
		readAs(s, 0, s.App, path+"/positions", "")
		mustAnswer(t, "", s.Buy(fleet.Order{Campaign: id, User: "a", Wait: true}), job.Succeeded)
		awaitSale(t, l, "the sale", func(e saleEvent) bool { return e.Positions.Sold == sold })
		if v := view(s, readAs(s, 0, s.App, path, ""), http.StatusOK); v.Positions.Sold != sold {
			t.Errorf("after the event of sale %d the campaign has %+v", sold, v.Positions)
		}
		wantEqual(t, "after the event of sale the board has", onBoard(s, id, "sold"), sold)
	}
}
