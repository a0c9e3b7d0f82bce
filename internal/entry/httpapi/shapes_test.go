package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize.example/draw/verify"
	"triprize/internal/testkit/fleet"
)

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
	body := map[string]any{"name": "A shape", "currency": "JPY", "layers": layers}
	for name, value := range more {
		body[name] = value
	}
	made := s.Post("/v1/campaigns", body)
	if made.Status != http.StatusCreated {
		s.T.Fatalf("%v %s", made, made.Body)
	}
	path = "/v1/campaigns/" + made.ID.String()
	if a := s.Post(path+"/publish", nil); a.Status != http.StatusOK {
		s.T.Fatalf("%v %s", a, a.Body)
	}
	return path, made.ID
}

// buySelection buys what a selection says and waits.
func buySelection(s *fleet.System, path, key, user string, selection map[string]any) fleet.Answer {
	return s.Do(0, s.App, http.MethodPost, path+"/purchases", map[string]string{"Idempotency-Key": key, "Prefer": fleet.UntilFinal},
		map[string]any{"user_id": user, "selection": selection, "payment": map[string]string{"method": "external"}})
}

func numbered(numbers ...int) map[string]any {
	var list []map[string]any
	for _, n := range numbers {
		list = append(list, map[string]any{"number": n})
	}
	return map[string]any{"positions": list}
}

// read decodes an answer that must be there.
func read(s *fleet.System, key, path string, into any) {
	s.T.Helper()
	a := s.Do(0, key, http.MethodGet, path, nil, nil)
	if err := json.Unmarshal(a.Body, into); err != nil || a.Status != http.StatusOK {
		s.T.Fatalf("%s: %v %s", path, a, a.Body)
	}
}

// seat is a position with its names, wherever it is shown.
type seat struct {
	Layer  int
	Column int
	Number int
	Label  string
}

func TestAHallIsChosenByNumberAndShownByLabel(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, id := openShape(s, nil, row(1, 3, "Row A", "A poster"), row(2, 2, ""), row(3, 3, "Row C", "A cup", "A cup"))
	var shown struct {
		BaseLength *int `json:"base_length"`
		Positions  struct{ Total int }
		Layers     []struct {
			Label     *string
			Positions struct{ Total int }
		}
	}
	read(s, s.App, path, &shown)
	if shown.BaseLength != nil || shown.Positions.Total != 8 || len(shown.Layers) != 3 || *shown.Layers[0].Label != "Row A" || shown.Layers[1].Label != nil || shown.Layers[1].Positions.Total != 2 {
		t.Errorf("the campaign is shown as %+v", shown)
	}
	held := s.Do(0, s.App, http.MethodPost, path+"/holds", map[string]string{"Idempotency-Key": uuid.NewString()},
		map[string]any{"user_id": "mina", "positions": []map[string]any{{"number": 8}, {"layer": 2, "column": 1}}})
	wantSeats(t, "the hold", held.Body, "positions", seat{2, 1, 4, "4"}, seat{3, 3, 8, "Row C 3"})
	var hold struct{ Currency string }
	if read(s, s.App, "/v1/holds/"+held.ID.String(), &hold); hold.Currency != "JPY" {
		t.Errorf("the hold is in %q", hold.Currency)
	}
	taken := refused(t, "a taken seat", s.Do(0, s.App, http.MethodPost, path+"/holds", map[string]string{"Idempotency-Key": uuid.NewString()},
		map[string]any{"user_id": "vera", "positions": []map[string]any{{"number": 8}}}), http.StatusConflict, "position-taken")
	if taken.Detail != "position Row C 3 (3/3) is taken" {
		t.Errorf("a taken seat: %q", taken.Detail)
	}
	bought := buySelection(s, path, uuid.NewString(), "otto", numbered(3, 5))
	wantSeats(t, "the job", bought.Body, "result.positions", seat{1, 3, 3, "Row A 3"}, seat{2, 2, 5, "5"})
	now := s.Do(0, s.App, http.MethodGet, "/v1/purchases/"+bought.Result.PurchaseID.String(), nil, nil)
	wantSeats(t, "the purchase", now.Body, "positions", seat{1, 3, 3, "Row A 3"}, seat{2, 2, 5, "5"})
	kept := buySelection(s, path, uuid.NewString(), "mina", map[string]any{"hold_id": held.ID})
	wantSeats(t, "the hold, bought", kept.Body, "result.positions", seat{2, 1, 4, "4"}, seat{3, 3, 8, "Row C 3"})
	board := s.Do(0, s.App, http.MethodGet, path+"/positions", nil, nil)
	wantSeats(t, "the board", board.Body, "positions", seat{1, 1, 1, "Row A 1"}, seat{1, 2, 2, "Row A 2"}, seat{1, 3, 3, "Row A 3"},
		seat{2, 1, 4, "4"}, seat{2, 2, 5, "5"}, seat{3, 1, 6, "Row C 1"}, seat{3, 2, 7, "Row C 2"}, seat{3, 3, 8, "Row C 3"})
	var one seat
	if read(s, s.App, path+"/positions/3/2", &one); one != (seat{3, 2, 7, "Row C 2"}) {
		t.Errorf("one position: %+v", one)
	}
	last := buySelection(s, path, uuid.NewString(), "vera", map[string]any{"quantity": 4})
	if last.Problem != nil {
		t.Fatalf("%v %s", last, last.Body)
	}
	sold := fleet.As[struct {
		Result struct {
			BoardVersion int64 `json:"board_version"`
		}
	}](t, last).Result.BoardVersion
	s.AwaitDrawn(id)
	var drawn struct{ Winners []seat }
	read(s, s.App, path+"/draw", &drawn)
	if len(drawn.Winners) != 3 {
		t.Errorf("the winners are %+v", drawn.Winners)
	}
	for _, w := range drawn.Winners {
		want := map[int]seat{1: {1, w.Column, w.Column, "Row A " + string(rune('0'+w.Column))}, 3: {3, w.Column, 5 + w.Column, "Row C " + string(rune('0'+w.Column))}}[w.Layer]
		if w != want {
			t.Errorf("the winner is shown as %+v, want %+v", w, want)
		}
	}
	var won struct {
		Positions []struct {
			seat
			State string
			Prize *int
		}
	}
	read(s, s.App, path+"/positions?since="+strconv.FormatInt(sold, 10), &won)
	if len(won.Positions) != len(drawn.Winners) {
		t.Errorf("since it was sold out, the board has changed in %+v, and there are %d winners", won.Positions, len(drawn.Winners))
	}
	for _, p := range won.Positions {
		if p.Prize == nil || drawn.Winners[*p.Prize-1] != p.seat || p.State != "sold" {
			t.Errorf("the board shows the winner %+v; the winners are %+v", p, drawn.Winners)
		}
	}
	wantVerified(s, path)
}

// wantSeats compares the positions at a path of a document.
func wantSeats(t *testing.T, what string, body []byte, at string, want ...seat) {
	t.Helper()
	var document any
	if err := json.Unmarshal(body, &document); err != nil {
		t.Fatalf("%s: %s", what, body)
	}
	for name := range strings.SplitSeq(at, ".") {
		members, _ := document.(map[string]any)
		document = members[name]
	}
	text, _ := json.Marshal(document)
	var got []seat
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s has %+v, want %+v: %s", what, got, want, body)
	}
}

// wantVerified checks the proof of a draw as anybody can.
func wantVerified(s *fleet.System, path string) {
	s.T.Helper()
	proof := s.Do(0, "", http.MethodGet, path+"/draw/proof", nil, nil)
	if proof.Status != http.StatusOK {
		s.T.Fatalf("%v %s", proof, proof.Body)
	}
	report, err := verify.Proof(bytes.NewReader(proof.Body), verify.Options{})
	if err != nil || !report.OK {
		s.T.Errorf("the proof does not hold: %+v, %v", report, err)
	}
}

func TestACampaignWithoutAPrizeCompletesWithNoWinners(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, id := openShape(s, nil, row(1, 5, ""))
	if a := buySelection(s, path, uuid.NewString(), "mina", map[string]any{"layer": 1, "quantity": 5}); a.Problem != nil || len(a.Result.Positions) != 5 {
		t.Fatalf("%v %s", a, a.Body)
	}
	s.AwaitDrawn(id)
	drawn := s.Do(0, s.App, http.MethodGet, path+"/draw", nil, nil)
	if !fleet.Contains(drawn.Body, `"winners":[]`) || !fleet.Contains(drawn.Body, `"state":"completed"`) {
		t.Errorf("%s", drawn.Body)
	}
	wantVerified(s, path)
}

func TestWhatCanNeverBeIsRefusedAtTheDoorAndItsKeyWorksAfterwards(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, _ := openShape(s, map[string]any{"purchase_limit": 3}, row(1, 4, ""), row(2, 2, ""))
	at := func(layer, column int) map[string]any {
		return map[string]any{"positions": []map[string]any{{"layer": 1, "column": 1}, {"layer": layer, "column": column}}}
	}
	all := refused(t, "several at fault", buySelection(s, path, uuid.NewString(), "mina", map[string]any{"positions": []map[string]any{
		{"number": 7}, {"number": 1}, {"layer": 1, "column": 1}, {"layer": 3, "column": 1}, {"layer": 1}}}), http.StatusBadRequest, "invalid-request")
	pointers := make([]string, len(all.Errors))
	for i, e := range all.Errors {
		pointers[i] = strings.TrimPrefix(e.Pointer, "/selection/positions/")
	}
	if !slices.Equal(pointers, []string{"0/number", "2", "3", "4"}) {
		t.Errorf("of several at fault it names %+v", all.Errors)
	}
	for name, c := range map[string]struct {
		selection map[string]any
		pointer   string
	}{
		"a layer that is not there":             {map[string]any{"layer": 3, "quantity": 1}, "/layer"},
		"more than the layer has":               {map[string]any{"layer": 2, "quantity": 3}, "/quantity"},
		"more than the campaign has":            {map[string]any{"quantity": 7}, "/quantity"},
		"more than one user may have":           {map[string]any{"quantity": 4}, "/quantity"},
		"more chosen ones than a user may have": {numbered(1, 2, 3, 4), "/positions"},
		"a column that is not there":            {at(2, 3), "/positions/1"},
		"a layer of no position":                {at(3, 1), "/positions/1"},
		"a number that is not there":            {numbered(1, 7), "/positions/1/number"},
		"a position by number and place":        {map[string]any{"positions": []map[string]any{{"layer": 1, "number": 1}}}, "/positions/0"},
		"a position by half a place":            {map[string]any{"positions": []map[string]any{{"layer": 1}}}, "/positions/0"},
		"one position under two names":          {map[string]any{"positions": []map[string]any{{"number": 5}, {"layer": 2, "column": 1}}}, "/positions/1"},
	} {
		key := uuid.NewString()
		a := buySelection(s, path, key, "mina", c.selection)
		if a.Status != http.StatusBadRequest || a.Refusal() != "invalid-request" || !fleet.Contains(a.Body, `"pointer":"/selection`+c.pointer+`"`) {
			t.Errorf("%s: %v %s", name, a, a.Body)
		}
		hold := map[string]any{"user_id": "mina"}
		for member, value := range c.selection {
			hold[member] = value
		}
		h := s.Do(0, s.App, http.MethodPost, path+"/holds", map[string]string{"Idempotency-Key": key + "-hold"}, hold)
		if h.Status != http.StatusBadRequest || !fleet.Contains(h.Body, `"pointer":"`+c.pointer+`"`) {
			t.Errorf("%s, held: %v %s", name, h, h.Body)
		}
		var jobs int
		if err := s.DB.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE idempotency_key LIKE $1 || '%'`, key).Scan(&jobs); err != nil || jobs != 0 {
			t.Errorf("%s: %d jobs, %v", name, jobs, err)
		}
		user := "user of " + key
		again := s.Do(0, s.App, http.MethodPost, path+"/holds", map[string]string{"Idempotency-Key": key + "-hold"}, map[string]any{"user_id": user, "quantity": 1})
		if again.Status != http.StatusCreated {
			t.Errorf("%s: the key with a body that can be: %v %s", name, again, again.Body)
		}
		s.Release(s.App, again.ID)
	}
	key := uuid.NewString()
	buySelection(s, path, key, "otto", map[string]any{"layer": 2, "quantity": 3})
	if a := buySelection(s, path, key, "otto", map[string]any{"layer": 2, "quantity": 2}); a.Problem != nil || len(a.Result.Positions) != 2 {
		t.Errorf("a key whose first body could not be: %v %s", a, a.Body)
	}
}

func TestARaisedLimitIsKnownAtTheDoorAtOnce(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, _ := openShape(s, map[string]any{"purchase_limit": 1}, row(1, 4, ""))
	if a := buySelection(s, path, uuid.NewString(), "mina", map[string]any{"quantity": 2}); a.Status != http.StatusBadRequest {
		t.Errorf("beyond the limit: %v %s", a, a.Body)
	}
	for _, c := range []struct{ limit, quantity any }{{2, 2}, {nil, 2}} {
		if a := s.Do(0, s.Operator, http.MethodPatch, path, nil, map[string]any{"purchase_limit": c.limit}); a.Status != http.StatusOK {
			t.Fatalf("%v %s", a, a.Body)
		}
		if a := buySelection(s, path, uuid.NewString(), "mina", map[string]any{"quantity": c.quantity}); a.Problem != nil || len(a.Result.Positions) != 2 {
			t.Errorf("with the limit %v: %v %s", c.limit, a, a.Body)
		}
	}
}

// The door knows a draft's shape as it is, and forgets none of a published campaign.
func TestADraftThatIsReshapedIsSoldInItsLastShape(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	made := s.Post("/v1/campaigns", fleet.CampaignBody(3))
	path := "/v1/campaigns/" + made.ID.String()
	if a := buySelection(s, path, uuid.NewString(), "mina", numbered(6)); a.Status != http.StatusNotFound {
		t.Errorf("of a draft: %v %s", a, a.Body)
	}
	if a := s.Do(0, s.Operator, http.MethodPatch, path, nil, map[string]any{"layers": []any{row(1, 9, "Ticket", "A bicycle")}}); a.Status != http.StatusOK || !fleet.Contains(a.Body, `"base_length":null`) {
		t.Fatalf("%v %s", a, a.Body)
	}
	if a := s.Do(0, s.Operator, http.MethodPatch, path, nil, map[string]any{"base_length": 3}); a.Status != http.StatusBadRequest {
		t.Errorf("a triangle of one layer: %v %s", a, a.Body)
	}
	if a := s.Post(path+"/publish", nil); a.Status != http.StatusOK {
		t.Fatalf("%v %s", a, a.Body)
	}
	bought := buySelection(s, path, uuid.NewString(), "mina", numbered(9))
	wantSeats(t, "the ticket", bought.Body, "result.positions", seat{1, 9, 9, "Ticket 9"})
	if a := s.Do(0, s.Operator, http.MethodPatch, path, nil, map[string]any{"layers": []any{row(1, 8, "")}}); a.Refusal() != "state-conflict" {
		t.Errorf("after publication: %v %s", a, a.Body)
	}
}

func TestTheSettingBoundsThePositionsOfACampaign(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With("TRIPRIZE_CAMPAIGNS_MAX_POSITIONS=21")
	for name, c := range map[string]struct {
		body   map[string]any
		status int
	}{
		"as many as there may be": {map[string]any{"layers": []any{row(1, 20, ""), row(2, 1, "")}}, http.StatusCreated},
		"one more":                {map[string]any{"layers": []any{row(1, 20, ""), row(2, 2, "")}}, http.StatusBadRequest},
		"a triangle":              {fleet.CampaignBody(6), http.StatusCreated},
		"a larger one":            {fleet.CampaignBody(7), http.StatusBadRequest},
		"neither":                 {map[string]any{"layers": []any{map[string]any{"layer": 1, "price": 100}}}, http.StatusBadRequest},
		"both, and they differ":   {map[string]any{"base_length": 3, "layers": []any{row(1, 1, ""), row(2, 2, ""), row(3, 4, "")}}, http.StatusBadRequest},
	} {
		c.body["name"], c.body["currency"] = name, "JPY"
		if a := s.Post("/v1/campaigns", c.body); a.Status != c.status {
			t.Errorf("%s: %v %s", name, a, a.Body)
		}
	}
}

func TestSeatsSideBySideAreBoughtAndHeld(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	hall := row(1, 8, "Row A")
	hall["aisles"] = []int{3}
	path, _ := openShape(s, nil, hall, row(2, 2, ""))
	var shown struct {
		Layers []struct{ Aisles []int }
		Rules  json.RawMessage
	}
	if read(s, s.App, path, &shown); !reflect.DeepEqual(shown.Layers[0].Aisles, []int{3}) || shown.Layers[1].Aisles == nil {
		t.Errorf("the aisles are shown as %+v", shown)
	}
	if bytes.Contains(shown.Rules, []byte("aisle")) {
		t.Errorf("the rules of the draw have aisles: %s", shown.Rules)
	}
	pair := map[string]any{"quantity": 2, "adjacent": true}
	bought := buySelection(s, path, uuid.NewString(), "mina", pair) // the middle, beside an aisle
	wantSeats(t, "the first pair", bought.Body, "result.positions", seat{1, 4, 4, "Row A 4"}, seat{1, 5, 5, "Row A 5"})
	hold := map[string]any{"user_id": "otto", "layer": 1, "quantity": 3, "adjacent": true}
	held := s.Do(0, s.App, http.MethodPost, path+"/holds", map[string]string{"Idempotency-Key": uuid.NewString()}, hold)
	wantSeats(t, "a hold of three", held.Body, "positions", seat{1, 1, 1, "Row A 1"}, seat{1, 2, 2, "Row A 2"}, seat{1, 3, 3, "Row A 3"})
	for what, c := range map[string]struct {
		selection map[string]any
		code      string
		says      string
	}{
		"for now":               {map[string]any{"quantity": 4, "adjacent": true}, "none-available", "the longest free run of the campaign has 3"},
		"never":                 {map[string]any{"quantity": 6, "adjacent": true}, "invalid-request", "no more than 5 positions of the campaign"},
		"never, of a layer":     {map[string]any{"layer": 2, "quantity": 3, "adjacent": true}, "invalid-request", "/selection/quantity"},
		"with chosen positions": {map[string]any{"positions": numbered(1)["positions"], "adjacent": true}, "invalid-request", "adjacent"},
		"of a hold":             {map[string]any{"hold_id": held.ID, "adjacent": true}, "invalid-request", "adjacent"},
	} {
		if a := buySelection(s, path, uuid.NewString(), "vera", c.selection); a.Refusal() != c.code || !strings.Contains(string(a.Body), c.says) {
			t.Errorf("%s: %v %s", what, a, a.Body)
		}
	}
	for _, wrong := range [][]int{{0}, {8}, {3, 3}, {4, 2}} {
		hall["aisles"] = wrong
		if a := s.Post("/v1/campaigns", map[string]any{"name": "Wrong", "currency": "JPY", "layers": []any{hall}}); a.Refusal() != "invalid-request" || !strings.Contains(string(a.Body), "/layers/0/aisles") {
			t.Errorf("aisles %v: %v %s", wrong, a, a.Body)
		}
	}
}
