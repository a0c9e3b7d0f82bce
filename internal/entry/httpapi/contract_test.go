package httpapi_test

import (
	"encoding/json"
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

// campaignView is what the tests read of a campaign.
type campaignView struct {
	ID            uuid.UUID
	Name          string
	State         string
	Paused        bool
	PurchaseLimit *int `json:"purchase_limit"`
	Positions     struct{ Total, Available, Reserved, Sold int }
	Layers        []struct {
		Layer     int
		Price     int
		Prizes    []struct{ Name string }
		Positions struct{ Available, Sold int }
	}
	Commitment *string
	Rules      *struct{ Version string }
}

// view decodes a campaign and fails the test unless the status is as wanted.
func view(s *fleet.System, a fleet.Answer, status int) (v campaignView) {
	s.T.Helper()
	if a.Status != status {
		s.T.Fatalf("want status %d, got %v: %s", status, a, a.Body)
	}
	if err := json.Unmarshal(a.Body, &v); err != nil {
		s.T.Fatal(err)
	}
	return v
}

func TestTheLifeOfACampaign(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	made := s.Post("/v1/campaigns", fleet.CampaignBody(3))
	c := view(s, made, http.StatusCreated)
	path := "/v1/campaigns/" + c.ID.String()
	if c.State != "pending" || c.Positions.Total != 6 || len(c.Layers) != 3 || c.Commitment != nil || made.Header.Get("Location") != path {
		t.Errorf("created: %s, Location %q", made.Body, made.Header.Get("Location"))
	}
	if a := s.Buy(fleet.Order{Campaign: c.ID, User: "early", Wait: true}); a.Status != http.StatusNotFound {
		t.Errorf("a purchase before publication: %v", a)
	}
	c = view(s, s.Do(0, s.Operator, http.MethodPatch, path, nil, map[string]any{"name": "Renamed", "purchase_limit": 4}), http.StatusOK)
	if c.Name != "Renamed" || *c.PurchaseLimit != 4 || len(c.Layers) != 3 {
		t.Errorf("patched: %+v", c)
	}
	c = view(s, s.Post(path+"/publish", nil), http.StatusOK)
	if c.State != "active" || c.Commitment == nil || len(*c.Commitment) != 64 || c.Rules == nil || c.Rules.Version != "triprize-draw/1" {
		t.Errorf("published: %+v", c)
	}
	if a := s.Post(path+"/publish", nil); a.Status != http.StatusConflict || a.Refusal() != "state-conflict" {
		t.Errorf("published twice: %v", a)
	}

	view(s, s.Post(path+"/pause", nil), http.StatusOK)
	if a := s.Buy(fleet.Order{Campaign: c.ID, User: "a", Wait: true}); a.Refusal() != "campaign-paused" {
		t.Errorf("a purchase while paused: %v", a)
	}
	c = view(s, s.Post(path+"/resume", nil), http.StatusOK)
	if c.Paused {
		t.Error("still paused")
	}
	first := s.Buy(fleet.Order{Campaign: c.ID, User: s.User("a"), Layer: 3, Quantity: 2, Wait: true})
	if first.State != job.Succeeded || first.Result.Amount != 600 || len(first.Result.Positions) != 2 {
		t.Fatalf("got %v: %s", first, first.Body)
	}
	checkReads(s, path, first)
	if a := s.Buy(fleet.Order{Campaign: c.ID, User: "b", Quantity: 4, Wait: true}); a.State != job.Succeeded {
		t.Fatalf("got %v", a)
	}
	s.AwaitDrawn(c.ID)
	checkDraw(s, path)
	if a := s.Buy(fleet.Order{Campaign: c.ID, User: "late", Wait: true}); a.Refusal() != "sold-out" {
		t.Errorf("a purchase after the draw: %v", a)
	}
	c = view(s, s.Do(0, s.Operator, http.MethodPatch, path, nil, map[string]any{"name": "Over"}), http.StatusOK)
	if c.State != "completed" || c.Name != "Over" {
		t.Errorf("a completed campaign: %+v", c)
	}
	if a := s.Do(0, s.Operator, http.MethodPatch, path, nil, map[string]any{"purchase_limit": 9}); a.Status != http.StatusConflict {
		t.Errorf("a limit after the draw: %v", a)
	}
	ended := s.Campaign(3)
	if a := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+ended.String()+"/cancel", map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": "wait=30"},
		fleet.RawJSON(`{"reason":"a mistake"}`)); a.State != job.Succeeded {
		t.Fatal(a)
	}
	if a := s.Buy(fleet.Order{Campaign: ended, User: "late", Wait: true}); a.Refusal() != "campaign-not-active" {
		t.Errorf("a purchase in a cancelled campaign: %v", a)
	}
}

// checkReads looks at what can be read of a sale of two positions of layer 3 to user a.
func checkReads(s *fleet.System, path string, bought fleet.Answer) {
	s.T.Helper()
	c := view(s, s.Do(0, s.App, http.MethodGet, path, nil, nil), http.StatusOK)
	if c.Positions.Sold != 2 || c.Positions.Available != 4 || c.Layers[2].Positions.Sold != 2 || c.Layers[0].Positions.Available != 1 {
		s.T.Errorf("counts: %+v", c)
	}
	purchase := s.Do(0, s.App, http.MethodGet, "/v1/purchases/"+bought.Result.PurchaseID.String(), nil, nil)
	if purchase.Status != http.StatusOK || !fleet.Contains(purchase.Body, `"reference":"ref-`+s.User("a")+`"`) || !fleet.Contains(purchase.Body, `"state":"completed"`) {
		s.T.Errorf("the purchase: %s", purchase.Body)
	}
	list := s.Do(0, s.App, http.MethodGet, "/v1/users/"+s.User("a")+"/purchases", nil, nil)
	if list.Status != http.StatusOK || !fleet.Contains(list.Body, bought.Result.PurchaseID.String()) {
		s.T.Errorf("the user's purchases: %s", list.Body)
	}
	position := bought.Result.Positions[0]
	one := fmt.Sprintf("%s/positions/%d/%d", path, position.Layer, position.Column)
	if a := s.Do(0, s.App, http.MethodGet, one, nil, nil); a.Status != http.StatusOK || string(a.State) != "sold" || fleet.Contains(a.Body, "user_id") {
		s.T.Errorf("a position, for an app: %s", a.Body)
	}
	if a := s.Do(0, s.Operator, http.MethodGet, one, nil, nil); !fleet.Contains(a.Body, `"user_id":"`+s.User("a")+`"`) {
		s.T.Errorf("a position, for an operator: %s", a.Body)
	}
	board := s.Do(0, s.App, http.MethodGet, path+"/positions", nil, nil)
	if n := strings.Count(string(board.Body), `"layer"`); n != 6 || fleet.Contains(board.Body, "rank") {
		s.T.Errorf("the board has %d positions: %s", n, board.Body)
	}
}

func checkDraw(s *fleet.System, path string) {
	s.T.Helper()
	a := s.Do(0, s.App, http.MethodGet, path+"/draw", nil, nil)
	var d struct {
		State, Trust, Commitment, Root, Secret string
		Winners                                []struct {
			Prize, Layer int
			Column       *int
			PurchaseID   *uuid.UUID `json:"purchase_id"`
			Name         string
		}
	}
	if err := json.Unmarshal(a.Body, &d); err != nil {
		s.T.Fatal(err)
	}
	if d.State != "completed" || d.Trust != "operator" || len(d.Commitment) != 64 || len(d.Root) != 64 || len(d.Secret) != 64 || len(d.Winners) != 3 {
		s.T.Errorf("the draw: %s", a.Body)
	}
	for i, w := range d.Winners {
		if w.Prize != i+1 || w.Layer != i+1 || w.Column == nil || w.PurchaseID == nil || w.Name != fmt.Sprintf("Prize %d", i+1) {
			s.T.Errorf("winner %d: %+v", i, w)
		}
	}
}

func TestASaleWindowIsKept(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	now := time.Now()
	for name, c := range map[string]struct {
		starts, ends time.Time
		want         string
	}{
		"not yet":    {now.Add(time.Hour), now.Add(2 * time.Hour), "sale-not-open"},
		"over":       {now.Add(-2 * time.Hour), now.Add(-time.Hour), "sale-not-open"},
		"in between": {now.Add(-time.Hour), now.Add(time.Hour), ""},
	} {
		body := fleet.CampaignBody(3)
		body["sale_starts_at"], body["sale_ends_at"] = c.starts, now.Add(2*time.Hour)
		v := view(s, s.Post("/v1/campaigns", body), http.StatusCreated)
		view(s, s.Post("/v1/campaigns/"+v.ID.String()+"/publish", nil), http.StatusOK)
		servers.Exec(t, s.DB, `UPDATE campaigns SET sale_ends_at = $2 WHERE id = $1`, v.ID, c.ends) // none is published that has ended
		if a := s.Buy(fleet.Order{Campaign: v.ID, User: "a", Wait: true}); a.Refusal() != c.want {
			t.Errorf("%s: %v", name, a)
		}
	}
}

func TestACommandIsReplayedWithItsAnswer(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	header := map[string]string{"Idempotency-Key": "create-1"}
	first := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns", header, fleet.CampaignBody(3))
	again := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns", header, fleet.CampaignBody(3))
	if again.Status != http.StatusCreated || string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replayed") != "true" ||
		again.Header.Get("Location") != first.Header.Get("Location") {
		t.Errorf("first %s\nagain %v %s", first.Body, again, again.Body)
	}
	if other := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns", header, fleet.CampaignBody(4)); other.Status != http.StatusUnprocessableEntity {
		t.Errorf("another body: %v", other)
	}
	id := view(s, first, http.StatusCreated).ID
	refused := map[string]string{"Idempotency-Key": "resume-1"}
	path := "/v1/campaigns/" + id.String() + "/resume"
	a := s.Do(0, s.Operator, http.MethodPost, path, refused, nil)
	view(s, s.Post("/v1/campaigns/"+id.String()+"/publish", nil), http.StatusOK)
	b := s.Do(0, s.Operator, http.MethodPost, path, refused, nil)
	if a.Status != http.StatusConflict || b.Status != http.StatusConflict || b.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a refusal must stay one: %v, then %v", a, b)
	}
}

func TestListsArePaged(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	for range 5 {
		s.Campaign(3)
	}
	view(s, s.Post("/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated) // pending: on none of the pages
	type list struct {
		Campaigns  []struct{ ID uuid.UUID }
		NextCursor *uuid.UUID `json:"next_cursor"`
	}
	seen, cursor, pages := map[uuid.UUID]bool{}, "", 0
	for {
		var page list
		a := s.Do(0, s.App, http.MethodGet, "/v1/campaigns?state=active&limit=2"+cursor, nil, nil)
		if err := json.Unmarshal(a.Body, &page); err != nil || a.Status != http.StatusOK {
			t.Fatal(a, err)
		}
		for _, c := range page.Campaigns {
			seen[c.ID] = true
		}
		if pages++; page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + page.NextCursor.String()
		s.Campaign(3) // an insert in between shifts nothing
	}
	if len(seen) != 5 || pages != 3 {
		t.Errorf("%d campaigns on %d pages", len(seen), pages)
	}
}

// The first page is kept for the next reader, but not for one that may see less, and not
// for another page.
func TestTheFirstPageOfAListIsThatOfItsReader(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: fleet.Trusting.Env})
	for range 3 {
		path := "/v1/campaigns/" + s.Campaign(3).String()
		if a := s.Do(0, s.Operator, http.MethodPatch, path, nil, fleet.RawJSON(`{"metadata":{"order":"4711"}}`)); a.Status != http.StatusOK {
			t.Fatal(a)
		}
	}
	mina := fleet.TokenFor(t, "mina", "")
	for _, query := range []string{"", "?state=active", "?state=active&limit=2", "?limit=1", "?state=completed"} {
		for _, reader := range []string{s.App, mina, s.App, mina} {
			a := s.Do(0, reader, http.MethodGet, "/v1/campaigns"+query, nil, nil)
			want := map[string]int{"?state=active&limit=2": 2, "?limit=1": 1, "?state=completed": 0, "": 3, "?state=active": 3}[query]
			shown := 0
			if reader == s.App {
				shown = want
			}
			if n := strings.Count(string(a.Body), `"base_length"`); a.Status != http.StatusOK || n != want || strings.Count(string(a.Body), `"4711"`) != shown {
				t.Errorf("%s, an app: %t: %d campaigns, %v %s", query, reader == s.App, n, a, a.Body)
			}
		}
	}
}
