package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
)

// readAs reads something at the n-th api, if it is not what one has already.
func (s *system) readAs(n int, key, path, ifNoneMatch string) answer {
	header := map[string]string{}
	if ifNoneMatch != "" {
		header["If-None-Match"] = ifNoneMatch
	}
	return s.do(n, key, http.MethodGet, path, header, nil)
}

func TestACampaignAndABoardAreSentOnceAndThenOnlyWhenTheyChange(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, env: trusting.env})
	id := s.campaign(4)
	campaign := "/v1/campaigns/" + id.String()
	readers := map[string]string{"an operator": s.operator, "an app": s.app, "a user": tokenFor(t, "a", ""), "a viewer": tokenFor(t, "v", "viewer")}
	tags := make(map[string]string)
	for who, key := range readers {
		for _, path := range []string{campaign, campaign + "/positions"} {
			first := s.readAs(0, key, path, "")
			tag := first.header.Get("ETag")
			if first.status != http.StatusOK || !strings.HasPrefix(tag, `W/"`) || first.header.Get("Cache-Control") != "private, no-cache" {
				t.Fatalf("%s reads %s: %v, %v", who, path, first, first.header)
			}
			tags[who+path] = tag
			for _, known := range []string{tag, strings.TrimPrefix(tag, "W/"), "*", `"x", ` + tag + `, W/"y"`, `"x",` + tag} {
				for api := range 2 { // a tag is the same everywhere
					a := s.readAs(api, key, path, known)
					if a.status != http.StatusNotModified || len(a.body) != 0 || a.header.Get("ETag") != tag {
						t.Errorf("%s has %s of %s at api %d: %v, %v", who, known, path, api, a, a.header)
					}
				}
			}
			for _, unknown := range []string{`"x"`, `W/"x", "y"`, strings.Trim(strings.TrimPrefix(tag, "W/"), `"`), tag[:len(tag)-3] + `"`, `"*"`} {
				if a := s.readAs(0, key, path, unknown); a.status != http.StatusOK || string(a.body) != string(first.body) {
					t.Errorf("%s has %s of %s: %v", who, unknown, path, a)
				}
			}
		}
	}
	if a := s.buy(order{campaign: id, user: "a", wait: 20}); a.State != job.Succeeded {
		t.Fatal(a)
	}
	for who, key := range readers {
		a := s.readAs(1, key, campaign, tags[who+campaign])
		if a.status != http.StatusOK || a.header.Get("ETag") == tags[who+campaign] || s.view(a, http.StatusOK).Positions.Sold != 1 {
			t.Errorf("%s reads the campaign after a sale: %v", who, a)
		}
		board := campaign + "/positions"
		eventually(t, 30*time.Second, "the sale is on the board", func() bool {
			a := s.readAs(1, key, board, tags[who+board])
			return a.status == http.StatusOK && strings.Count(string(a.body), `"sold"`) == 1
		})
	}
}

func TestACrowdThatWatchesABoardCostsOneReadASecond(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	tapped := newTap(t, s.settings.Postgres.URL)
	s.startAPI("TRIPRIZE_POSTGRES_URL=" + tapped.url)
	const read = "FROM positions WHERE campaign_id = $1 ORDER BY layer, col"
	id := s.campaign(20)
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
							late = time.Now().Add(30 * time.Second)
						}
					default:
					}
					if !late.IsZero() && time.Now().After(late) {
						t.Error("a sale is not on the board after 30 s")
						return
					}
					a := s.readAs(1, s.app, path, "")
					isOld = strings.Count(string(a.body), `"sold"`) <= sales
					if a.status != http.StatusOK || contains(a.body, "user_id") {
						t.Errorf("the board: %v %s", a, tail(a.body, 500))
						return
					}
					mu.Lock()
					reads++
					mu.Unlock()
				}
			})
		}
		if a := s.buy(order{campaign: id, user: "a", wait: 20}); a.State != job.Succeeded {
			t.Error(a)
		}
		close(bought)
		crowd.Wait()
	}
	n, most := tapped.count(read), int(time.Since(begun).Seconds())+2
	if n < 2 || n > most || reads < 60 {
		t.Errorf("%d looks at the board were %d reads within %s, want at most %d", reads, n, time.Since(begun), most)
	}
}

// A copy of the board is warm whenever the user looks.
func TestABuyerSeesAtOnceWhatItHasBought(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, env: trusting.env})
	id := s.campaign(10)
	path := "/v1/campaigns/" + id.String() + "/positions"
	mina, otto, viewer := tokenFor(t, "mina", ""), tokenFor(t, "otto", ""), tokenFor(t, "v", "viewer")
	for n := 1; n <= 5; n++ {
		for api := range 2 {
			s.readAs(api, s.app, path, "")
		}
		if a := s.buy(order{campaign: id, user: "mina", wait: 20}); a.State != job.Succeeded {
			t.Fatal(a)
		}
		for api := range 2 {
			hers := string(s.readAs(api, mina, path, "").body)
			if strings.Count(hers, `"user_id":"mina"`) != n || strings.Count(hers, `"sold"`) != n {
				t.Errorf("after purchase %d she sees at api %d: %s", n, api, hers)
			}
			if all := string(s.readAs(api, s.operator, path, "").body); strings.Count(all, `"user_id":"mina"`) != n {
				t.Errorf("after purchase %d an operator sees at api %d: %s", n, api, all)
			}
		}
		for who, key := range map[string]string{"another user": otto, "a viewer": viewer, "an app": s.app} {
			if a := s.readAs(0, key, path, ""); a.status != http.StatusOK || contains(a.body, "mina") || contains(a.body, "user_id") {
				t.Errorf("%s sees whose they are: %s", who, a.body)
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
	NextCursor *uuid.UUID `json:"next_cursor"`
}

// walk reads a list to its end in pages of two and does something between them.
func (s *system) walk(path string, between func()) (ids []uuid.UUID) {
	s.t.Helper()
	for cursor := ""; ; {
		a := s.do(0, s.operator, http.MethodGet, path+"limit=2"+cursor, nil, nil)
		var p page
		if err := json.Unmarshal(a.body, &p); err != nil || a.status != http.StatusOK || len(p.Campaigns)+len(p.Purchases) > 2 {
			s.t.Fatal(a, err)
		}
		for _, one := range append(p.Campaigns, p.Purchases...) {
			ids = append(ids, one.ID)
		}
		if p.NextCursor == nil {
			return ids
		}
		cursor = "&cursor=" + p.NextCursor.String()
		between()
	}
}

func TestAListIsReadOnceThroughWhateverComesIn(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	id := s.campaign(12)
	buy := func(user string) uuid.UUID {
		t.Helper()
		a := s.buy(order{campaign: id, user: user, wait: 20})
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
		got := s.walk("/v1/users/"+user+"/purchases?", func() { buy(user) })
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d purchases: got %v, want %v", n, got, want)
		}
	}
	var pending []uuid.UUID
	for range 3 {
		pending = append([]uuid.UUID{s.view(s.post("/v1/campaigns", campaignBody(3)), http.StatusCreated).ID}, pending...)
	}
	create := func() { s.post("/v1/campaigns", campaignBody(3)) }
	if got := s.walk("/v1/campaigns?state=pending&", create); fmt.Sprint(got) != fmt.Sprint(pending) {
		t.Errorf("pending campaigns: got %v, want %v", got, pending)
	}
	if got := s.walk("/v1/campaigns?state=active&", create); len(got) != 1 || got[0] != id {
		t.Errorf("active campaigns: %v, want %s", got, id)
	}
	if got := s.walk("/v1/campaigns?", func() {}); len(got) < 5 || got[len(got)-1] != id {
		t.Errorf("all campaigns, newest first: %v", got)
	}
	if got := s.walk("/v1/campaigns?state=cancelled&", create); len(got) != 0 {
		t.Errorf("cancelled campaigns: %v", got)
	}
}
