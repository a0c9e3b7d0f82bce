package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
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

func TestACrowdThatWatchesABoardCostsOneReadASecond(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	tapped := fleet.NewTap(t, s.Settings.Postgres.URL)
	s.RunAPI("TRIPRIZE_POSTGRES_URL=" + tapped.URL)
	const read = "WHERE p.campaign_id = $1 AND NOT EXISTS (SELECT FROM position_fills WHERE campaign_id = $1) ORDER BY p.layer, col"
	id := s.Campaign(20)
	path := "/v1/campaigns/" + id.String() + "/positions"
	var crowd sync.WaitGroup
	var mu sync.Mutex
	begun, reads := time.Now(), 0
	for sales := range 3 { // a crowd watches until it sees each sale
		bought := make(chan struct{})
		for range 20 {
			crowd.Go(func() {
				var late time.Time // set once the sale is over
				for isOld := true; isOld; {
					select {
					case <-bought:
						if late.IsZero() {
							late = time.Now().Add(servers.Patience)
						}
					default:
					}
					if !late.IsZero() && time.Now().After(late) {
						t.Error("a sale never shows among the positions")
						return
					}
					a := readAs(s, 2, s.App, path, "")
					isOld = strings.Count(string(a.Body), `"sold"`) <= sales
					if a.Status != http.StatusOK || fleet.Contains(a.Body, "user_id") {
						t.Errorf("the board: %v %s", a, fleet.Tail(a.Body, 500))
						return
					}
					mu.Lock()
					reads++
					mu.Unlock()
				}
			})
		}
		if a := s.Buy(fleet.Order{Campaign: id, User: "a", Wait: true}); a.State != job.Succeeded {
			t.Error(a)
		}
		close(bought)
		crowd.Wait()
	}
	n, most := tapped.Count(read), int(time.Since(begun).Seconds())+2
	if n < 2 || n > most || reads < 60 {
		t.Errorf("%d looks at the board were %d reads within %s, want at most %d", reads, n, time.Since(begun), most)
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

// page is one page of a list.
type page struct {
	Campaigns, Purchases []struct {
		ID    uuid.UUID
		State string
	}
	NextCursor *string `json:"next_cursor"`
}

// walk reads a list to its end in pages of two and does something between them.
func walk(s *fleet.System, path string, between func()) (ids []uuid.UUID) {
	s.T.Helper()
	for cursor := ""; ; {
		a := s.Do(0, s.Operator, http.MethodGet, path+"limit=2"+cursor, nil, nil)
		var p page
		if err := json.Unmarshal(a.Body, &p); err != nil || a.Status != http.StatusOK || len(p.Campaigns)+len(p.Purchases) > 2 {
			s.T.Fatal(a, err)
		}
		for _, one := range append(p.Campaigns, p.Purchases...) {
			ids = append(ids, one.ID)
		}
		if p.NextCursor == nil {
			return ids
		}
		cursor = "&cursor=" + *p.NextCursor
		between()
	}
}

func TestAListIsReadOnceThroughWhateverComesIn(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{})
	id := s.Campaign(12)
	buy := func(user string) uuid.UUID {
		t.Helper()
		a := s.Buy(fleet.Order{Campaign: id, User: user, Wait: true})
		if a.State != job.Succeeded {
			t.Fatal(a)
		}
		return a.Result.PurchaseID
	}
	for n := range 5 { // empty, odd and even: the last page may be full
		user := fmt.Sprint("reader-", n)
		var want []uuid.UUID // newest first
		for range n {
			want = append([]uuid.UUID{buy(user)}, want...)
		}
		buy("another")
		got := walk(s, "/v1/users/"+user+"/purchases?", func() { buy(user) })
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d purchases: got %v, want %v", n, got, want)
		}
	}
	var pending []uuid.UUID
	for range 3 {
		pending = append([]uuid.UUID{view(s, s.Post("/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated).ID}, pending...)
	}
	create := func() { s.Post("/v1/campaigns", fleet.CampaignBody(3)) }
	if got := walk(s, "/v1/campaigns?state=pending&", create); fmt.Sprint(got) != fmt.Sprint(pending) {
		t.Errorf("pending campaigns: got %v, want %v", got, pending)
	}
	if got := walk(s, "/v1/campaigns?state=active&", create); len(got) != 1 || got[0] != id {
		t.Errorf("active campaigns: %v, want %s", got, id)
	}
	if got := walk(s, "/v1/campaigns?", func() {}); len(got) < 5 || got[len(got)-1] != id {
		t.Errorf("all campaigns, newest first: %v", got)
	}
	if got := walk(s, "/v1/campaigns?state=cancelled&", create); len(got) != 0 {
		t.Errorf("cancelled campaigns: %v", got)
	}
}
