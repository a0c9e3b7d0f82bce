package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

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
	readers := map[string]string{"an operator": s.Operator, "an app": s.App, "a user": fleet.TokenFor(t, "a", ""), "a viewer": fleet.TokenFor(t, "v", "viewer")}
	tags := make(map[string]string)
	for who, key := range readers {
		for _, path := range []string{campaign, campaign + "/positions"} {
			first := readAs(s, 0, key, path, "")
			tag := first.Header.Get("ETag")
			if first.Status != http.StatusOK || !strings.HasPrefix(tag, `W/"`) || first.Header.Get("Cache-Control") != "private, no-cache" {
				t.Fatalf("%s reads %s: %v, %v", who, path, first, first.Header)
			}
			tags[who+path] = tag
			for _, known := range []string{tag, strings.TrimPrefix(tag, "W/"), "*", `"x", ` + tag + `, W/"y"`, `"x",` + tag} {
				for api := range 2 { // a tag is the same everywhere
					a := readAs(s, api, key, path, known)
					if a.Status != http.StatusNotModified || len(a.Body) != 0 || a.Header.Get("ETag") != tag {
						t.Errorf("%s has %s of %s at api %d: %v, %v", who, known, path, api, a, a.Header)
					}
				}
			}
			for _, unknown := range []string{`"x"`, `W/"x", "y"`, strings.Trim(strings.TrimPrefix(tag, "W/"), `"`), tag[:len(tag)-3] + `"`, `"*"`} {
				if a := readAs(s, 0, key, path, unknown); a.Status != http.StatusOK || string(a.Body) != string(first.Body) {
					t.Errorf("%s has %s of %s: %v", who, unknown, path, a)
				}
			}
		}
	}
	if a := s.Buy(fleet.Order{Campaign: id, User: "a", Wait: true}); a.State != job.Succeeded {
		t.Fatal(a)
	}
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

// A copy of the board is warm whenever the user looks.
func TestABuyerSeesAtOnceWhatItHasBought(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id := s.Campaign(10)
	path := "/v1/campaigns/" + id.String() + "/positions"
	mina, otto, viewer := fleet.TokenFor(t, "mina", ""), fleet.TokenFor(t, "otto", ""), fleet.TokenFor(t, "v", "viewer")
	for n := 1; n <= 5; n++ {
		for api := range 2 {
			readAs(s, api, s.App, path, "")
		}
		if a := s.Buy(fleet.Order{Campaign: id, User: "mina", Wait: true}); a.State != job.Succeeded {
			t.Fatal(a)
		}
		for api := range 2 {
			hers := string(readAs(s, api, mina, path, "").Body)
			if strings.Count(hers, `"user_id":"mina"`) != n || strings.Count(hers, `"sold"`) != n {
				t.Errorf("after purchase %d she sees at api %d: %s", n, api, hers)
			}
			if all := string(readAs(s, api, s.Operator, path, "").Body); strings.Count(all, `"user_id":"mina"`) != n {
				t.Errorf("after purchase %d an operator sees at api %d: %s", n, api, all)
			}
		}
		for who, key := range map[string]string{"another user": otto, "a viewer": viewer, "an app": s.App} {
			if a := readAs(s, 0, key, path, ""); a.Status != http.StatusOK || fleet.Contains(a.Body, "mina") || fleet.Contains(a.Body, "user_id") {
				t.Errorf("%s sees whose they are: %s", who, a.Body)
			}
		}
	}
}
