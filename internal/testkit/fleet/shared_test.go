package fleet

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"triprize/internal/testkit/servers"
)

var alone = Options{Workers: -1, Schedulers: -1}

// Two tests share a system. What one of them breaks is found at the end, under its name.
func TestTheAuditAtTheEndNamesTheTest(t *testing.T) {
	var said bytes.Buffer
	tests := newSharing(&said)
	t.Run("one that is well", func(t *testing.T) {
		s := tests.view(t, alone)
		s.MustHold(HoldOrder{Campaign: s.Campaign(3), User: "mina", Quantity: 1})
	})
	t.Run("one that breaks", func(t *testing.T) {
		s := tests.view(t, alone)
		made := s.Post("/v1/campaigns", CampaignBody(3)).ID
		if a := s.Post("/v1/campaigns/"+made.String()+"/publish", nil); a.Status != http.StatusOK {
			t.Fatal(a)
		}
		held := s.MustHold(HoldOrder{Campaign: made, User: "mina", Quantity: 1})
		servers.Exec(t, s.DB, `DELETE FROM holds WHERE id = $1`, held.ID)
		servers.Exec(t, s.DB, `UPDATE campaigns SET positions_sold = 1 WHERE id = $1`, s.Campaign(3))
	})
	if len(tests.systems) != 1 {
		t.Errorf("%d systems were started for two tests with the same options", len(tests.systems))
	}
	if tests.end() {
		t.Error("all is well, the audit says")
	}
	broken := 0
	for line := range strings.Lines(said.String()) {
		broken++
		if !strings.Contains(line, t.Name()+"/one_that_breaks") {
			t.Errorf("said %q", line)
		}
	}
	if broken < 2 {
		t.Errorf("%d lines", broken)
	}
}

// Views of a system keep apart: clients, the requests in the log, and breaches of the contract.
func TestViewsOfASystemKeepApart(t *testing.T) {
	one, another := Shared(t, alone), Shared(t, alone)
	if one.shared != another.shared || one.App == another.App || one.Client("shop") == another.Client("shop") {
		t.Errorf("%+v, %+v", one, another)
	}
	id := one.Campaign(3)
	order := Order{Campaign: id, User: "mina", Key: "k"}
	first, second := one.Buy(order), another.Buy(order)
	if first.Status != http.StatusAccepted || second.Status != http.StatusAccepted || first.ID == second.ID {
		t.Errorf("one key of two clients: %v, %v", first, second)
	}
	if request := first.Header.Get("X-Request-ID"); !one.isOf([]byte("request_id="+request)) || another.isOf([]byte("request_id="+request)) || !one.isOf([]byte("campaign="+id.String())) {
		t.Errorf("the request %s is not known as that of its test", request)
	}
	one.RunAPI("TRIPRIZE_API_CORS_ORIGINS=https://shop.example")
	allowed := func(api int) string {
		return one.Do(api, one.App, http.MethodGet, "/v1/campaigns", map[string]string{"Origin": "https://shop.example"}, nil).Header.Get("Access-Control-Allow-Origin")
	}
	if len(one.URLs) != 2 || len(another.URLs) != 1 || allowed(0) != "" || allowed(1) == "" {
		t.Error("a further api is not the view's own")
	}
}
