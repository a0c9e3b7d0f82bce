package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize.example/draw/verify"
	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// What is accepted has an effect: the tests here send each field of a request, and look for
// what it does and not only for where it is shown.

// campaignView is what the tests read of a campaign.
type campaignView struct {
	ID            uuid.UUID
	Name          string
	Currency      string
	State         string
	Paused        bool
	BaseLength    *int      `json:"base_length"`
	PurchaseLimit *int      `json:"purchase_limit"`
	DrawsAt       time.Time `json:"draws_at"`
	CancelReason  string    `json:"cancel_reason"`
	Positions     struct{ Total, Available, Reserved, Sold, Blocked int }
	Layers        []struct {
		Label     *string
		Aisles    []int
		Positions struct{ Total, Available, Reserved, Sold, Blocked int }
	}
	Commitment *string
	Rules      json.RawMessage
}

// view decodes a campaign and fails the test unless the status is as wanted.
func view(s *fleet.System, a fleet.Answer, status int) (v campaignView) {
	s.T.Helper()
	mustAnswer(s.T, "", a, status)
	return decoded[campaignView](s, a)
}

// sells publishes a campaign that was drafted with these fields and returns its path.
func sells(s *fleet.System, change fleet.Fields) (path string, id uuid.UUID) {
	s.T.Helper()
	body := fleet.CampaignBody(3)
	for name, value := range change {
		body[name] = value
	}
	id = view(s, s.Post("/v1/campaigns", body), http.StatusCreated).ID
	path = "/v1/campaigns/" + id.String()
	view(s, s.Post(path+"/publish", nil), http.StatusOK)
	return path, id
}

// buys sends a purchase as the app and waits for its end.
func buys(s *fleet.System, path, user string, selection, payment fleet.Fields) fleet.Answer {
	s.T.Helper()
	return s.Execute(path+"/purchases", fleet.Fields{"user_id": user, "selection": selection, "payment": payment}, "Prefer", fleet.UntilFinal)
}

var external = fleet.Fields{"method": "external"}

func TestTheLifeOfACampaign(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	made := s.Post("/v1/campaigns", fleet.CampaignBody(3))
	path := "/v1/campaigns/" + made.ID.String()
	wantAnswer(t, "created", made, 201, valued{"Location", path}, `"state":"pending"`, `"commitment":null`)
	one := fleet.Fields{"quantity": 1}
	refused(t, "a purchase before publication", buys(s, path, "early", one, external), 404, "not-found")
	if c := view(s, s.Post(path+"/publish", nil), http.StatusOK); c.State != "active" || c.Commitment == nil || len(*c.Commitment) != 64 || !fleet.Contains(c.Rules, `"version":"triprize-draw/1"`) {
		t.Errorf("published: %+v", c)
	}
	refused(t, "published twice", s.Post(path+"/publish", nil), 409, "state-conflict")
	wantAnswer(t, "paused", s.Post(path+"/pause", nil), 200, `"paused":true`)
	wantAnswer(t, "a purchase while paused", buys(s, path, "a", one, external), coded("campaign-paused"))
	wantAnswer(t, "resumed", s.Post(path+"/resume", nil), 200, `"paused":false`)
	bought := buys(s, path, "a", fleet.Fields{"layer": 3, "quantity": 2}, external)
	if c := view(s, s.Read(path), http.StatusOK); bought.Result.Amount != 600 || c.Positions.Sold != 2 || c.Positions.Available != 4 || c.Layers[2].Positions.Sold != 2 || c.Layers[0].Positions.Available != 1 {
		t.Errorf("%v; counts: %+v", bought, c)
	}
	position := fmt.Sprintf("%s/positions/3/%d", path, bought.Result.Positions[0].Column)
	wantAnswer(t, "a position", s.Do(0, s.Operator, http.MethodGet, position, nil, nil), `"state":"sold"`, `"user_id":"a"`)
	wantAnswer(t, "a position, to an app", s.Read(position), `"state":"sold"`, without(`"user_id":"a"`))
	mustAnswer(t, "the rest", buys(s, path, "b", fleet.Fields{"quantity": 4}, external), job.Succeeded)
	s.AwaitDrawn(made.ID)
	wantAnswer(t, "a purchase after the draw", buys(s, path, "late", one, external), coded("sold-out"))
	patch := func(change fleet.Fields) fleet.Answer {
		return s.Do(0, s.Operator, http.MethodPatch, path, nil, change)
	}
	wantAnswer(t, "a completed campaign", patch(fleet.Fields{"name": "Over"}), 200, `"state":"completed"`, `"name":"Over"`)
	refused(t, "a limit after the draw", patch(fleet.Fields{"purchase_limit": 9}), 409, "state-conflict")
}

// The first page is kept for the next reader, but not for one that may see less, and not
// for another page.
func TestTheFirstPageOfAListIsThatOfItsReader(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: fleet.Trusting.Env})
	for range 3 {
		sells(s, fleet.Fields{"metadata": fleet.Fields{"order": "4711"}})
	}
	mina := fleet.TokenFor(t, "mina", "")
	for query, want := range map[string]int{"": 3, "?state=active": 3, "?state=active&limit=2": 2, "?limit=1": 1, "?state=completed": 0} {
		for _, reader := range []string{s.App, mina, s.App, mina} {
			a, shown := s.Do(0, reader, http.MethodGet, "/v1/campaigns"+query, nil, nil), 0
			if reader == s.App {
				shown = want
			}
			if n := strings.Count(string(a.Body), `"base_length"`); a.Status != http.StatusOK || n != want || strings.Count(string(a.Body), `"4711"`) != shown {
				t.Errorf("%s, an app: %t: %d campaigns, %v %s", query, reader == s.App, n, a, a.Body)
			}
		}
	}
}

func TestEverythingInADraftCanBeChangedBeforeItIsPublished(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	later := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	changed := func(changes ...fleet.Fields) (path string) {
		t.Helper()
		path = "/v1/campaigns/" + view(s, s.Post("/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated).ID.String()
		for _, change := range changes {
			view(s, s.Do(0, s.Operator, http.MethodPatch, path, nil, change), http.StatusOK)
		}
		view(s, s.Post(path+"/publish", nil), http.StatusOK)
		return path
	}
	path := changed(fleet.Fields{"name": "Autumn raffle"}, fleet.Fields{"currency": "USD"}, fleet.Fields{"purchase_limit": 1},
		fleet.Fields{"sale_starts_at": later.Add(-72 * time.Hour), "sale_ends_at": later}, fleet.Fields{"policies": fleet.Fields{"unsold": "draw"}},
		fleet.Fields{"base_length": 4, "layers": []fleet.Fields{{"layer": 1, "price": 100}, {"layer": 2, "price": 777}, {"layer": 3, "price": 300}, {"layer": 4, "price": 400}}})
	if c := view(s, s.Read(path), http.StatusOK); c.Name != "Autumn raffle" || c.Currency != "USD" || *c.BaseLength != 4 || c.State != "active" || !c.DrawsAt.Equal(later) {
		t.Errorf("%+v", c)
	}
	if a := buys(s, path, "mina", fleet.Fields{"layer": 2, "quantity": 1}, external); a.Result.Amount != 777 {
		t.Errorf("a position of layer 2: %v", a)
	}
	wantAnswer(t, "a second position", buys(s, path, "mina", fleet.Fields{"quantity": 1}, external), coded("purchase-limit-exceeded"))
	early, _ := sells(s, fleet.Fields{"sale_starts_at": later})
	for _, path := range []string{early, changed(fleet.Fields{"sale_starts_at": later})} {
		wantAnswer(t, "before its start", buys(s, path, "mina", fleet.Fields{"quantity": 1}, external), coded("sale-not-open"))
	}
	// Of another shape, which is that of the sale.
	path = changed(fleet.Fields{"layers": []any{row(1, 9, "Ticket", "A bicycle")}})
	if a := buys(s, path, "mina", numbered(9), external); len(a.Result.Positions) != 1 || a.Result.Positions[0].Column != 9 {
		t.Errorf("the last ticket: %v %s", a, a.Body)
	}
	refused(t, "after publication", s.Do(0, s.Operator, http.MethodPatch, path, nil, fleet.Fields{"layers": []any{row(1, 8, "")}}), 409, "state-conflict")
}

// The sweep that ends sales looks at all of them at once: when it has cancelled one, it has
// left the other alone.
func TestWhatASaleLeavesUnsoldFollowsItsPolicy(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: []string{"TRIPRIZE_SWEEPS_ENDED_SALES_INTERVAL=100ms"}})
	later := time.Now().Add(time.Hour)
	staying, _ := sells(s, fleet.Fields{"sale_ends_at": later, "policies": fleet.Fields{"unsold": "stay"}})
	cancelled, _ := sells(s, fleet.Fields{"sale_ends_at": later, "policies": fleet.Fields{"unsold": "cancel"}})
	servers.Exec(t, s.DB, `UPDATE campaigns SET sale_ends_at = clock_timestamp() WHERE sale_ends_at = $1`, later)
	state := func(path string) string {
		return view(s, s.Do(0, s.Operator, http.MethodGet, path, nil, nil), http.StatusOK).State
	}
	servers.Eventually(t, "the one is cancelled", func() bool { return state(cancelled) == "cancelled" })
	wantEqual(t, "the other is", state(staying), "active")
}

func TestACancelledCampaignTellsEverybodyWhy(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, id := sells(s, nil)
	a := s.Do(0, s.Operator, http.MethodPost, path+"/cancel", map[string]string{"Idempotency-Key": "off", "Prefer": fleet.UntilFinal}, fleet.Fields{"reason": "a fire"})
	wantAnswer(t, "cancelled", a, coded(""), `"kind":"campaign-cancellation"`)
	const by = `"cancelled_by":"operator:`
	for _, shown := range []string{path, "/v1/campaigns?state=cancelled&limit=1&" + from(id)} {
		wantAnswer(t, shown, s.Do(0, s.Operator, http.MethodGet, shown, nil, nil), `"cancel_reason":"a fire"`, `"cancelled_at":"2`, by)
		servers.Eventually(t, "an app reads it", func() bool { return fleet.Contains(s.Read(shown).Body, `"cancelled_at":"2`) })
		wantAnswer(t, shown+", an app", s.Read(shown), `"cancel_reason":"a fire"`, without(by))
	}
	refused(t, "none", s.Post("/v1/campaigns/"+uuid.NewString()+"/cancel", fleet.Fields{"reason": "r"}), 404, "not-found")
	wantAnswer(t, "a purchase", buys(s, path, "late", fleet.Fields{"quantity": 1}, external), coded("campaign-not-active"))
}

// row is a layer of a draft with a label.
func row(layer, positions int, label string, prizes ...string) map[string]any {
	l := map[string]any{"layer": layer, "positions": positions, "price": 100 * layer}
	if label != "" {
		l["label"] = label
	}
	if len(prizes) > 0 {
		var groups []map[string]any
		for _, name := range prizes {
			groups = append(groups, map[string]any{"name": name, "count": 1})
		}
		l["prizes"] = groups
	}
	return l
}

// openShape creates a campaign of these layers and publishes it.
func openShape(s *fleet.System, more map[string]any, layers ...map[string]any) (path string, id uuid.UUID) {
	s.T.Helper()
	draft := fleet.Fields{"name": "A shape", "base_length": nil, "layers": layers}
	for name, value := range more {
		draft[name] = value
	}
	return sells(s, draft)
}

// buySelection buys what a selection says and waits.
func buySelection(s *fleet.System, path, key, user string, selection map[string]any) fleet.Answer {
	return s.Execute(path+"/purchases", fleet.Fields{"user_id": user, "selection": selection, "payment": external}, "Idempotency-Key", key, "Prefer", fleet.UntilFinal)
}

func numbered(numbers ...int) fleet.Fields {
	var list []map[string]any
	for _, n := range numbers {
		list = append(list, map[string]any{"number": n})
	}
	return fleet.Fields{"positions": list}
}

// seat is a position with its names, wherever it is shown.
type seat struct {
	Layer  int
	Column int
	Number int
	Label  string
}

// wantSeats compares the positions at a path of a document.
func wantSeats(t *testing.T, what string, body []byte, at string, want ...seat) {
	t.Helper()
	for name := range strings.SplitSeq(at, ".") {
		var members map[string]json.RawMessage
		_ = json.Unmarshal(body, &members)
		body = members[name]
	}
	var got []seat
	if err := json.Unmarshal(body, &got); err != nil || !slices.Equal(got, want) {
		t.Errorf("%s has %+v, want %+v", what, got, want)
	}
}

func TestAHallIsChosenByNumberAndShownByLabel(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, id := openShape(s, nil, row(1, 3, "Row A", "A poster"), row(2, 2, ""), row(3, 3, "Row C", "A cup", "A cup"))
	if c := view(s, s.Read(path), http.StatusOK); c.BaseLength != nil || c.Positions.Total != 8 || len(c.Layers) != 3 || *c.Layers[0].Label != "Row A" || c.Layers[1].Label != nil || c.Layers[1].Positions.Total != 2 {
		t.Errorf("the campaign is shown as %+v", c)
	}
	held := s.Execute(path+"/holds", fleet.Fields{"user_id": "mina", "positions": []fleet.Fields{{"number": 8}, {"layer": 2, "column": 1}}})
	wantSeats(t, "the hold", held.Body, "positions", seat{2, 1, 4, "4"}, seat{3, 3, 8, "Row C 3"})
	taken := s.Execute(path+"/holds", fleet.Fields{"user_id": "vera", "positions": []fleet.Fields{{"number": 8}}})
	if p := refused(t, "a taken seat", taken, 409, "position-taken"); p.Detail != "position Row C 3 (3/3) is taken" {
		t.Errorf("a taken seat: %q", p.Detail)
	}
	bought := buys(s, path, "otto", numbered(3, 5), external)
	wantSeats(t, "the job", bought.Body, "result.positions", seat{1, 3, 3, "Row A 3"}, seat{2, 2, 5, "5"})
	wantSeats(t, "the purchase", s.Read("/v1/purchases/"+bought.Result.PurchaseID.String()).Body, "positions", seat{1, 3, 3, "Row A 3"}, seat{2, 2, 5, "5"})
	kept := buys(s, path, "mina", fleet.Fields{"hold_id": held.ID}, external)
	wantSeats(t, "the hold, bought", kept.Body, "result.positions", seat{2, 1, 4, "4"}, seat{3, 3, 8, "Row C 3"})
	wantSeats(t, "the board", s.Read(path+"/positions").Body, "positions", seat{1, 1, 1, "Row A 1"}, seat{1, 2, 2, "Row A 2"}, seat{1, 3, 3, "Row A 3"},
		seat{2, 1, 4, "4"}, seat{2, 2, 5, "5"}, seat{3, 1, 6, "Row C 1"}, seat{3, 2, 7, "Row C 2"}, seat{3, 3, 8, "Row C 3"})
	wantEqual(t, "one position", fleet.As[seat](t, s.Read(path+"/positions/3/2")), (seat{3, 2, 7, "Row C 2"}))
	last := buys(s, path, "vera", fleet.Fields{"quantity": 4}, external)
	s.AwaitDrawn(id)
	winners := fleet.As[struct{ Winners []seat }](t, s.Read(path+"/draw")).Winners
	won := fleet.As[struct {
		Positions []struct {
			seat
			Prize *int
		}
	}](t, s.Read(fmt.Sprintf("%s/positions?since=%d", path, last.Result.Board))).Positions
	if len(winners) != 3 || len(won) != 3 {
		t.Errorf("the winners are %+v; since it was sold out, the board has changed in %+v", winners, won)
	}
	for _, w := range winners {
		want := map[int]seat{1: {1, w.Column, w.Column, fmt.Sprint("Row A ", w.Column)}, 3: {3, w.Column, 5 + w.Column, fmt.Sprint("Row C ", w.Column)}}[w.Layer]
		if w != want {
			t.Errorf("the winner is shown as %+v, want %+v", w, want)
		}
	}
	for _, p := range won {
		if p.Prize == nil || winners[*p.Prize-1] != p.seat {
			t.Errorf("the board shows the winner %+v; the winners are %+v", p, winners)
		}
	}
	wantVerified(s, path)
}

// wantVerified checks the proof of a draw as anybody can.
func wantVerified(s *fleet.System, path string) {
	s.T.Helper()
	proof := s.Do(0, "", http.MethodGet, path+"/draw/proof", nil, nil)
	report, err := verify.Proof(bytes.NewReader(proof.Body), verify.Options{})
	if err != nil || !report.OK {
		s.T.Errorf("the proof does not hold: %v, %+v, %v", proof, report, err)
	}
}

// A selection that can never be makes no job, and its key is free for one that can.
func TestWhatCanNeverBeIsRefusedAtTheDoorAndItsKeyWorksAfterwards(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, id := openShape(s, fleet.Fields{"purchase_limit": 3}, row(1, 4, ""), row(2, 2, ""))
	at := func(place fleet.Fields) fleet.Fields {
		return fleet.Fields{"positions": []fleet.Fields{{"layer": 1, "column": 1}, place}}
	}
	for name, c := range map[string]struct {
		selection fleet.Fields
		pointers  []string
	}{
		"several at fault": {fleet.Fields{"positions": []fleet.Fields{{"number": 7}, {"number": 1}, {"layer": 1, "column": 1}, {"layer": 3, "column": 1}, {"layer": 1}}},
			[]string{"/positions/0/number", "/positions/2", "/positions/3", "/positions/4"}},
		"a layer that is not there":             {fleet.Fields{"layer": 3, "quantity": 1}, []string{"/layer"}},
		"more than the layer has":               {fleet.Fields{"layer": 2, "quantity": 3}, []string{"/quantity"}},
		"more than the campaign has":            {fleet.Fields{"quantity": 7}, []string{"/quantity"}},
		"more than one user may have":           {fleet.Fields{"quantity": 4}, []string{"/quantity"}},
		"more chosen ones than a user may have": {numbered(1, 2, 3, 4), []string{"/positions"}},
		"a column that is not there":            {at(fleet.Fields{"layer": 2, "column": 3}), []string{"/positions/1"}},
		"a position by number and place":        {at(fleet.Fields{"layer": 1, "number": 2}), []string{"/positions/1"}},
		"one position under two names":          {at(fleet.Fields{"number": 1}), []string{"/positions/1"}},
		"nothing":                               {fleet.Fields{"quantity": nil}, []string{""}},
		"a number and chosen ones":              {fleet.Fields{"quantity": 1, "positions": numbered(1)["positions"]}, []string{""}},
		"chosen ones of a layer":                {fleet.Fields{"layer": 1, "positions": numbered(1)["positions"]}, []string{"/layer"}},
	} {
		key := uuid.NewString()
		hold := fleet.Fields{"user_id": "mina"}
		for member, value := range c.selection {
			hold[member] = value
		}
		for prefix, a := range map[string]fleet.Answer{"/selection": buySelection(s, path, key, "mina", c.selection), "": s.Execute(path+"/holds", hold, "Idempotency-Key", key+"-hold")} {
			var pointers []string
			for _, e := range refused(t, name, a, 400, "invalid-request").Errors {
				pointers = append(pointers, strings.TrimPrefix(e.Pointer, prefix))
			}
			if !slices.Equal(pointers, c.pointers) {
				t.Errorf("%s: %v, want %v: %s", name, pointers, c.pointers, a.Body)
			}
		}
		again := s.Execute(path+"/holds", fleet.Fields{"user_id": "user of " + key, "quantity": 1}, "Idempotency-Key", key+"-hold")
		wantAnswer(t, fmt.Sprintf("%s: the key with a body that can be", name), again, 201)
		s.Release(s.App, again.ID)
	}
	wantEqual(t, "jobs", jobsOf(s, id), 0)
	// A limit that was raised is known at once.
	for _, limit := range []any{4, nil} {
		view(s, s.Do(0, s.Operator, http.MethodPatch, path, nil, fleet.Fields{"purchase_limit": limit}), http.StatusOK)
		wantAnswer(t, fmt.Sprintf("with the limit %v", limit), buys(s, path, s.User(fmt.Sprint(limit)), fleet.Fields{"quantity": 4}, external), 200)
	}
}

func TestSeatsSideBySideAreBoughtAndHeld(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	hall := row(1, 8, "Row A")
	hall["aisles"] = []int{3}
	path, _ := openShape(s, nil, hall, row(2, 2, ""))
	if c := view(s, s.Read(path), http.StatusOK); !reflect.DeepEqual(c.Layers[0].Aisles, []int{3}) || c.Layers[1].Aisles == nil || fleet.Contains(c.Rules, "aisle") {
		t.Errorf("the aisles are shown as %+v", c)
	}
	bought := buys(s, path, "mina", fleet.Fields{"quantity": 2, "adjacent": true}, external) // the middle, beside an aisle
	wantSeats(t, "the first pair", bought.Body, "result.positions", seat{1, 4, 4, "Row A 4"}, seat{1, 5, 5, "Row A 5"})
	held := s.Execute(path+"/holds", fleet.Fields{"user_id": "otto", "layer": 1, "quantity": 3, "adjacent": true})
	wantSeats(t, "a hold of three", held.Body, "positions", seat{1, 1, 1, "Row A 1"}, seat{1, 2, 2, "Row A 2"}, seat{1, 3, 3, "Row A 3"})
	for what, c := range map[string]struct {
		selection fleet.Fields
		code      string
		says      string
	}{
		"for now":               {fleet.Fields{"quantity": 4}, "none-available", "the longest free run of the campaign has 3"},
		"never":                 {fleet.Fields{"quantity": 6}, "invalid-request", "no more than 5 positions of the campaign"},
		"never, of a layer":     {fleet.Fields{"layer": 2, "quantity": 3}, "invalid-request", "/selection/quantity"},
		"with chosen positions": {numbered(1), "invalid-request", "adjacent"},
		"of a hold":             {fleet.Fields{"hold_id": held.ID}, "invalid-request", "adjacent"},
	} {
		c.selection["adjacent"] = true
		wantAnswer(t, what, buys(s, path, "vera", c.selection, external), coded(c.code), c.says)
	}
	hall["aisles"] = []int{8}
	a := s.Post("/v1/campaigns", fleet.Fields{"name": "Wrong", "currency": "JPY", "layers": []any{hall}})
	if p := refused(t, "an aisle after the last", a, 400, "invalid-request"); !strings.HasPrefix(p.Errors[0].Pointer, "/layers/0/aisles") {
		t.Errorf("%+v", p)
	}
}

func TestAnOperatorBlocksSeatsAndOnlyOperatorsSeeWhy(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, id := sells(s, fleet.Fields{"sale_ends_at": time.Now().Add(time.Hour), "policies": fleet.Fields{"unsold": "draw"}, "purchase_limit": 1})
	seats := []fleet.Fields{{"layer": 3, "column": 2}, {"number": 6}} // 3/3; more than a user may buy
	if c := view(s, s.Post(path+"/positions/block", fleet.Fields{"positions": seats, "reason": "wheelchair"}), http.StatusOK); c.Positions.Available != 4 || c.Positions.Blocked != 2 || c.Layers[2].Positions.Blocked != 2 {
		t.Errorf("blocked: %+v", c)
	}
	version := fmt.Sprintf("?min_version=%d", s.CampaignNow(id).BoardVersion)
	for key, sees := range map[string]bool{s.Operator: true, s.App: false, fleet.TokenFor(t, "v", "public"): false, fleet.TokenFor(t, "u", ""): false} {
		for _, place := range []string{"/positions/3/2", "/positions" + version} {
			if a := readAs(s, 0, key, path+place, ""); !fleet.Contains(a.Body, `"state":"blocked"`) || fleet.Contains(a.Body, `"block_reason":"wheelchair"`) != sees || fleet.Contains(a.Body, "wheelchair") != sees {
				t.Errorf("%s: %s", place, a.Body)
			}
		}
	}
	wantAnswer(t, "a blocked one was bought", buys(s, path, "a", numbered(5), external), coded("position-taken"))
	if c := view(s, s.Post(path+"/positions/unblock", fleet.Fields{"positions": seats[1:]}), http.StatusOK); c.Positions.Available != 5 || c.Positions.Blocked != 1 {
		t.Errorf("unblocked: %+v", c)
	}
	many := make([]int, 1001)
	for i := range many {
		many[i] = i + 1
	}
	for pointer, body := range map[string]fleet.Fields{
		"/positions": numbered(many...), "/positions/1": {"positions": []fleet.Fields{{"number": 6}, {"layer": 3, "column": 3}}}, "/positions/0": {"positions": []fleet.Fields{{"layer": 3, "column": 4}}},
		"/positions/0/number": numbered(7), "/reason": {"positions": numbered(1)["positions"], "reason": ""}, "/quantity": {"positions": numbered(1)["positions"], "quantity": 1},
	} {
		if a := refused(t, pointer, s.Post(path+"/positions/block", body), 400, "invalid-request"); len(a.Errors) != 1 || a.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v", pointer, a.Errors)
		}
	}
	plain, _ := sells(s, nil)
	refused(t, "one that is drawn sold out", s.Post(plain+"/positions/block", numbered(1)), 409, "state-conflict")
}

func TestMetadataComesBackToAppsAndToNobodyElse(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	mina, user := fleet.TokenFor(t, s.User("mina"), ""), s.User("mina")
	const given = `{"a/b~c":"né\"\\","order":"4711"}`
	with := func(body fleet.Fields) fleet.Fields {
		body["metadata"] = fleet.RawJSON(given)
		return body
	}
	campaign, id := sells(s, nil)
	patch := func(metadata string) fleet.Answer {
		return s.Do(0, s.Operator, http.MethodPatch, campaign, nil, fleet.RawJSON(`{"metadata":`+metadata+`}`))
	}
	hold := s.Execute(campaign+"/holds", with(fleet.Fields{"user_id": user, "quantity": 1}))
	opened := s.Execute("/v1/wallets", with(fleet.Fields{"owner_id": user, "currency": "JPY", "initial_balance": 900}))
	wallet := "/v1/wallets/" + opened.ID.String()
	held := s.Execute(wallet+"/authorizations", with(fleet.Fields{"amount": 5}))
	for what, a := range map[string]fleet.Answer{"a campaign on sale": patch(given), "hold": hold, "wallet": opened, "authorization": held} {
		if a.Status >= 300 || !strings.Contains(string(a.Body), `"metadata":`+given) {
			t.Errorf("%s: %v %s", what, a, a.Body)
		}
	}
	bought := s.Execute(campaign+"/purchases", with(fleet.Fields{"user_id": user, "selection": fleet.Fields{"quantity": 1}, "payment": external}), "Prefer", fleet.UntilFinal)
	for _, path := range []string{campaign, "/v1/campaigns?" + from(id), "/v1/holds/" + hold.ID.String(), "/v1/purchases/" + bought.Result.PurchaseID.String(), "/v1/users/" + user + "/purchases",
		wallet, "/v1/wallets?owner_id=" + user, wallet + "/authorizations/" + held.ID.String(), wallet + "/events"} {
		wantAnswer(t, fmt.Sprintf("an app reads %s", path), s.Read(path), 200, `"metadata":`+given)
		wantAnswer(t, fmt.Sprintf("a user reads %s", path), s.Do(0, mina, http.MethodGet, path, nil, nil), 200, without("metadata"))
	}
	wantAnswer(t, "a user extends the hold of an app", s.Extend(mina, hold.ID).Answer, 200, without("metadata"))
	refused(t, "a user writes some", s.Do(0, mina, http.MethodPost, campaign+"/holds", map[string]string{"Idempotency-Key": "f"}, with(fleet.Fields{"user_id": user, "quantity": 1})), 403, "forbidden")
	wantAnswer(t, "emptied", patch("null"), 200, `"metadata":{}`)
}

func TestACampaignWithoutAPrizeCompletesWithNoWinners(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, id := openShape(s, nil, row(1, 5, ""))
	mustAnswer(t, "all of it", buys(s, path, "mina", fleet.Fields{"quantity": 5}, external), coded(""))
	s.AwaitDrawn(id)
	wantAnswer(t, "the draw", s.Read(path+"/draw"), `"winners":[]`, `"state":"completed"`)
	wantVerified(s, path)
}
