package httpapi_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

func TestAnOperatorBlocksSeatsAndOnlyOperatorsSeeWhy(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, id := sells(s, fleet.Fields{"sale_ends_at": time.Now().Add(time.Hour), "policies": fleet.Fields{"unsold": "draw"}})
	type counts struct{ Total, Available, Reserved, Sold, Blocked int }
	type campaign struct {
		Positions counts
		Layers    []struct{ Positions counts }
	}
	send := func(what, key string, body fleet.Fields) fleet.Answer {
		return s.Do(0, s.Operator, http.MethodPost, path+"/positions/"+what, map[string]string{"Idempotency-Key": key}, body)
	}
	seats := []fleet.Fields{{"layer": 3, "column": 2}, {"number": 6}} // 3/3
	a := send("block", "b", fleet.Fields{"positions": seats, "reason": "wheelchair"})
	now := fleet.As[campaign](t, a)
	if a.Status != http.StatusOK || now.Positions != (counts{6, 4, 0, 0, 2}) || now.Layers[2].Positions != (counts{3, 1, 0, 0, 2}) {
		t.Errorf("blocked: %v %+v", a, now)
	}
	if again := send("block", "b", fleet.Fields{"positions": seats, "reason": "wheelchair"}); string(again.Body) != string(a.Body) || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("again: %v %s", again, again.Body)
	}
	refused(t, "another reason with the key", send("block", "b", fleet.Fields{"positions": seats, "reason": "house"}), 422, "idempotency-key-reused")
	version := s.CampaignNow(id).BoardVersion
	for key, sees := range map[string]bool{s.Operator: true, s.App: false, fleet.TokenFor(t, "v", "viewer"): false, fleet.TokenFor(t, "u", ""): false} {
		var board boardSeen
		board.apply(readBoard(s, 0, key, id, "?min_version="+strconv.FormatInt(version, 10)))
		if board.states[fixture.At(3, 2)] != "blocked" || board.states[fixture.At(3, 3)] != "blocked" || board.states[fixture.At(3, 1)] != "available" {
			t.Errorf("the board is %v", board.states)
		}
		for _, place := range []string{"/positions/3/2", "/positions?min_version=" + strconv.FormatInt(version, 10)} {
			if a := readAs(s, 0, key, path+place, ""); fleet.Contains(a.Body, `"block_reason":"wheelchair"`) != sees || fleet.Contains(a.Body, "wheelchair") != sees {
				t.Errorf("%s: %s", place, a.Body)
			}
		}
	}
	bought := buys(s, path, "a", fleet.Fields{"positions": []fleet.Fields{{"layer": 3, "column": 1}, {"layer": 3, "column": 2}}}, external)
	if bought.Refusal() != "position-taken" {
		t.Errorf("a blocked one was bought: %v", bought)
	}
	a = send("unblock", "u", fleet.Fields{"positions": seats[1:]})
	if now := fleet.As[campaign](t, a).Positions; a.Status != http.StatusOK || now != (counts{6, 5, 0, 0, 1}) {
		t.Errorf("unblocked: %v %+v", a, now)
	}
	if bought := buys(s, path, "a", fleet.Fields{"positions": seats[1:]}, external); bought.Refusal() != "" {
		t.Errorf("one that is on sale again: %v", bought)
	}
}

func TestBlockingNamesWhatIsWrongWithARequest(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, _ := sells(s, fleet.Fields{"sale_ends_at": time.Now().Add(time.Hour), "policies": fleet.Fields{"unsold": "draw"}, "purchase_limit": 1})
	many := make([]fleet.Fields, 1001)
	for i := range many {
		many[i] = fleet.Fields{"number": i + 1}
	}
	for pointer, body := range map[string]fleet.Fields{
		"/positions":          {"positions": many},
		"/positions/1":        {"positions": []fleet.Fields{{"number": 6}, {"layer": 3, "column": 3}}},
		"/positions/0":        {"positions": []fleet.Fields{{"layer": 3, "column": 4}}},
		"/positions/0/number": {"positions": []fleet.Fields{{"number": 7}}},
		"/reason":             {"positions": []fleet.Fields{{"number": 1}}, "reason": ""},
		"/quantity":           {"positions": []fleet.Fields{{"number": 1}}, "quantity": 1},
	} {
		a := refused(t, pointer, s.Post(path+"/positions/block", body), 400, "invalid-request")
		if len(a.Errors) != 1 || a.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v", pointer, a.Errors)
		}
	}
	if a := s.Post(path+"/positions/block", fleet.Fields{"positions": []fleet.Fields{{"number": 5}, {"number": 6}}}); a.Status != http.StatusOK {
		t.Errorf("more than a user may buy: %v %s", a, a.Body)
	}
	plain, _ := sells(s, nil)
	refused(t, "one that is drawn sold out", s.Post(plain+"/positions/block", fleet.Fields{"positions": []fleet.Fields{{"number": 1}}}), 409, "state-conflict")
}
