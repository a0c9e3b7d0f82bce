package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
)

// campaignBody is a valid body of POST /v1/campaigns.
func campaignBody(baseLength int) map[string]any {
	var layers []map[string]any
	for layer := 1; layer <= baseLength; layer++ {
		layers = append(layers, map[string]any{"layer": layer, "price": 100 * layer,
			"prizes": []map[string]any{{"name": fmt.Sprintf("Prize %d", layer), "count": 1}}})
	}
	return map[string]any{"name": "夏の三角くじ", "base_length": baseLength, "currency": "JPY", "layers": layers}
}

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

// post sends a command as the operator with a fresh key.
func (s *system) post(path string, body any) answer {
	return s.do(0, s.operator, http.MethodPost, path, map[string]string{"Idempotency-Key": uuid.NewString()}, body)
}

// view decodes a campaign and fails the test unless the status is as wanted.
func (s *system) view(a answer, status int) (v campaignView) {
	s.t.Helper()
	if a.status != status {
		s.t.Fatalf("want status %d, got %v: %s", status, a, a.body)
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		s.t.Fatal(err)
	}
	return v
}

func TestTheLifeOfACampaign(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	made := s.post("/v1/campaigns", campaignBody(3))
	c := s.view(made, http.StatusCreated)
	path := "/v1/campaigns/" + c.ID.String()
	if c.State != "pending" || c.Positions.Total != 6 || len(c.Layers) != 3 || c.Commitment != nil || made.header.Get("Location") != path {
		t.Errorf("created: %s, Location %q", made.body, made.header.Get("Location"))
	}
	if a := s.buy(order{campaign: c.ID, user: "early", wait: 10}); a.code() != "campaign-not-active" {
		t.Errorf("a purchase before publication: %v", a)
	}
	c = s.view(s.do(0, s.operator, http.MethodPatch, path, nil, map[string]any{"name": "Renamed", "purchase_limit": 4}), http.StatusOK)
	if c.Name != "Renamed" || *c.PurchaseLimit != 4 || len(c.Layers) != 3 {
		t.Errorf("patched: %+v", c)
	}
	c = s.view(s.post(path+"/publish", nil), http.StatusOK)
	if c.State != "active" || c.Commitment == nil || len(*c.Commitment) != 64 || c.Rules == nil || c.Rules.Version != "triprize-draw/1" {
		t.Errorf("published: %+v", c)
	}
	if a := s.post(path+"/publish", nil); a.status != http.StatusConflict || a.code() != "state-conflict" {
		t.Errorf("published twice: %v", a)
	}

	s.view(s.post(path+"/pause", nil), http.StatusOK)
	if a := s.buy(order{campaign: c.ID, user: "a", wait: 10}); a.code() != "campaign-paused" {
		t.Errorf("a purchase while paused: %v", a)
	}
	c = s.view(s.post(path+"/resume", nil), http.StatusOK)
	if c.Paused {
		t.Error("still paused")
	}
	first := s.buy(order{campaign: c.ID, user: "a", layer: 3, quantity: 2, wait: 10})
	if first.State != job.Succeeded || first.Result.Amount != 600 || len(first.Result.Positions) != 2 {
		t.Fatalf("got %v: %s", first, first.body)
	}
	s.checkReads(path, first)
	if a := s.buy(order{campaign: c.ID, user: "b", quantity: 4, wait: 10}); a.State != job.Succeeded {
		t.Fatalf("got %v", a)
	}
	s.awaitDrawn(20*time.Second, c.ID)
	s.checkDraw(path)
	if a := s.buy(order{campaign: c.ID, user: "late", wait: 10}); a.code() != "sold-out" {
		t.Errorf("a purchase after the draw: %v", a)
	}
	c = s.view(s.do(0, s.operator, http.MethodPatch, path, nil, map[string]any{"name": "Over"}), http.StatusOK)
	if c.State != "completed" || c.Name != "Over" {
		t.Errorf("a completed campaign: %+v", c)
	}
	if a := s.do(0, s.operator, http.MethodPatch, path, nil, map[string]any{"purchase_limit": 9}); a.status != http.StatusConflict {
		t.Errorf("a limit after the draw: %v", a)
	}
}

// checkReads looks at what can be read of a sale of two positions of layer 3 to user a.
func (s *system) checkReads(path string, bought answer) {
	s.t.Helper()
	c := s.view(s.do(0, s.app, http.MethodGet, path, nil, nil), http.StatusOK)
	if c.Positions.Sold != 2 || c.Positions.Available != 4 || c.Layers[2].Positions.Sold != 2 || c.Layers[0].Positions.Available != 1 {
		s.t.Errorf("counts: %+v", c)
	}
	purchase := s.do(0, s.app, http.MethodGet, "/v1/purchases/"+bought.Result.PurchaseID.String(), nil, nil)
	if purchase.status != http.StatusOK || !contains(purchase.body, `"reference":"ref-a"`) || !contains(purchase.body, `"state":"completed"`) {
		s.t.Errorf("the purchase: %s", purchase.body)
	}
	list := s.do(0, s.app, http.MethodGet, "/v1/users/a/purchases", nil, nil)
	if list.status != http.StatusOK || !contains(list.body, bought.Result.PurchaseID.String()) {
		s.t.Errorf("the user's purchases: %s", list.body)
	}
	position := bought.Result.Positions[0]
	one := fmt.Sprintf("%s/positions/%d/%d", path, position.Layer, position.Column)
	if a := s.do(0, s.app, http.MethodGet, one, nil, nil); a.status != http.StatusOK || string(a.State) != "sold" || contains(a.body, "user_id") {
		s.t.Errorf("a position, for an app: %s", a.body)
	}
	if a := s.do(0, s.operator, http.MethodGet, one, nil, nil); !contains(a.body, `"user_id":"a"`) {
		s.t.Errorf("a position, for an operator: %s", a.body)
	}
	board := s.do(0, s.app, http.MethodGet, path+"/positions", nil, nil)
	if n := strings.Count(string(board.body), `"layer"`); n != 6 || contains(board.body, "rank") {
		s.t.Errorf("the board has %d positions: %s", n, board.body)
	}
}

func (s *system) checkDraw(path string) {
	s.t.Helper()
	a := s.do(0, s.app, http.MethodGet, path+"/draw", nil, nil)
	var d struct {
		State, Trust, Commitment, Root, Secret string
		Winners                                []struct {
			Prize, Layer int
			Column       *int
			PurchaseID   *uuid.UUID `json:"purchase_id"`
			Name         string
		}
	}
	if err := json.Unmarshal(a.body, &d); err != nil {
		s.t.Fatal(err)
	}
	if d.State != "completed" || d.Trust != "operator" || len(d.Commitment) != 64 || len(d.Root) != 64 || len(d.Secret) != 64 || len(d.Winners) != 3 {
		s.t.Errorf("the draw: %s", a.body)
	}
	for i, w := range d.Winners {
		if w.Prize != i+1 || w.Layer != i+1 || w.Column == nil || w.PurchaseID == nil || w.Name != fmt.Sprintf("Prize %d", i+1) {
			s.t.Errorf("winner %d: %+v", i, w)
		}
	}
}

func TestASaleWindowIsKept(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	now := time.Now()
	for name, c := range map[string]struct {
		starts, ends time.Time
		want         string
	}{
		"not yet":    {now.Add(time.Hour), now.Add(2 * time.Hour), "sale-not-open"},
		"over":       {now.Add(-2 * time.Hour), now.Add(-time.Hour), "sale-not-open"},
		"in between": {now.Add(-time.Hour), now.Add(time.Hour), ""},
	} {
		body := campaignBody(3)
		body["sale_starts_at"], body["sale_ends_at"] = c.starts, c.ends
		v := s.view(s.post("/v1/campaigns", body), http.StatusCreated)
		s.view(s.post("/v1/campaigns/"+v.ID.String()+"/publish", nil), http.StatusOK)
		if a := s.buy(order{campaign: v.ID, user: "a", wait: 10}); a.code() != c.want {
			t.Errorf("%s: %v", name, a)
		}
	}
}

func TestACommandIsReplayedWithItsAnswer(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1})
	header := map[string]string{"Idempotency-Key": "create-1"}
	first := s.do(0, s.operator, http.MethodPost, "/v1/campaigns", header, campaignBody(3))
	again := s.do(0, s.operator, http.MethodPost, "/v1/campaigns", header, campaignBody(3))
	if again.status != http.StatusCreated || string(again.body) != string(first.body) || again.header.Get("Idempotent-Replayed") != "true" ||
		again.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("first %s\nagain %v %s", first.body, again, again.body)
	}
	if other := s.do(0, s.operator, http.MethodPost, "/v1/campaigns", header, campaignBody(4)); other.status != http.StatusUnprocessableEntity {
		t.Errorf("another body: %v", other)
	}
	id := s.view(first, http.StatusCreated).ID
	refused := map[string]string{"Idempotency-Key": "resume-1"}
	path := "/v1/campaigns/" + id.String() + "/resume"
	a := s.do(0, s.operator, http.MethodPost, path, refused, nil)
	s.view(s.post("/v1/campaigns/"+id.String()+"/publish", nil), http.StatusOK)
	b := s.do(0, s.operator, http.MethodPost, path, refused, nil)
	if a.status != http.StatusConflict || b.status != http.StatusConflict || b.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a refusal must stay one: %v, then %v", a, b)
	}
}

func TestListsArePaged(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1})
	for range 5 {
		s.campaign(3)
	}
	type list struct {
		Campaigns  []struct{ ID uuid.UUID }
		NextCursor *uuid.UUID `json:"next_cursor"`
	}
	seen, cursor, pages := map[uuid.UUID]bool{}, "", 0
	for {
		var page list
		a := s.do(0, s.app, http.MethodGet, "/v1/campaigns?state=active&limit=2"+cursor, nil, nil)
		if err := json.Unmarshal(a.body, &page); err != nil || a.status != http.StatusOK {
			t.Fatal(a, err)
		}
		for _, c := range page.Campaigns {
			seen[c.ID] = true
		}
		if pages++; page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + page.NextCursor.String()
		s.campaign(3) // an insert in between shifts nothing
	}
	if len(seen) != 5 || pages != 3 {
		t.Errorf("%d campaigns on %d pages", len(seen), pages)
	}
}
