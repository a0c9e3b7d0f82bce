package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// toLoopback lets events be sent to receivers in this process.
var toLoopback = fleet.Options{Schedulers: 1, Env: []string{"TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8", "TRIPRIZE_SWEEPS_DUE_ITEMS_INTERVAL=100ms"}}

// receiver notes what is sent to it, by webhook-id.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	sent map[string]int
}

// receive starts a receiver that answers with a status.
func receive(t *testing.T, status int) *receiver {
	r := &receiver{sent: make(map[string]int)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		r.sent[request.Header.Get("webhook-id")]++
		r.mu.Unlock()
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

// times returns how often an event has come.
func (r *receiver) times(event string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent[event]
}

// endpointAt makes an endpoint of the app and returns its path.
func endpointAt(s *fleet.System, address string, events ...string) (path string) {
	s.T.Helper()
	made := asked(s, s.App, endpointsPath, uuid.NewString(), map[string]any{"url": address, "events": events})
	return endpointsPath + "/" + endpointOf(s, made, http.StatusCreated).ID.String()
}

// deliveryView is what the tests read of a delivery.
type deliveryView struct {
	ID    string `json:"event_id"`
	Type  string
	State string
	At    time.Time
}

// deliveries reads a list to its end, pages of a size after each other.
func deliveries(s *fleet.System, path, query string, size int) (all []deliveryView) {
	s.T.Helper()
	for cursor := ""; ; {
		a := s.Read(fmt.Sprintf("%s/deliveries?limit=%d%s%s", path, size, query, cursor))
		var page struct {
			Deliveries []deliveryView
			Next       *string `json:"next_cursor"`
		}
		if err := json.Unmarshal(a.Body, &page); err != nil || a.Status != http.StatusOK {
			s.T.Fatalf("%v %s", a, a.Body)
		}
		if full := page.Next != nil; len(page.Deliveries) > size || full && len(page.Deliveries) != size {
			s.T.Errorf("a page of %d has %d deliveries: %s", size, len(page.Deliveries), a.Body)
		}
		all = append(all, page.Deliveries...)
		if page.Next == nil {
			return all
		}
		if next := "&cursor=" + *page.Next; next == cursor {
			s.T.Fatalf("%s: the next page is the same", path)
		} else {
			cursor = next
		}
	}
}

// noted waits until an endpoint has so many deliveries, and so many of them are in a state.
func noted(s *fleet.System, path, state string, n int) (all []deliveryView) {
	s.T.Helper()
	servers.Eventually(s.T, fmt.Sprintf("%d deliveries that are %s", n, state), func() bool {
		all = deliveries(s, path, "&state="+state, 100)
		return len(all) == n
	})
	return all
}

func TestDeliveriesAreFoundByStateAndTypeInPages(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, toLoopback)
	good, bad := receive(t, http.StatusNoContent), receive(t, http.StatusInternalServerError)
	path := endpointAt(s, good.URL, "wallet.*")
	other := endpointAt(s, good.URL, "wallet.*") // its deliveries are in no list of the first
	wallet := s.Wallet("mina", 1000)
	for range 2 {
		s.Execute(wallet+"/debit", fleet.Fields{"amount": 1})
	}
	noted(s, path, "delivered", 3)
	noted(s, other, "delivered", 3)
	if a := s.Do(0, s.App, http.MethodPatch, path, nil, map[string]any{"url": bad.URL}); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	s.Execute(wallet+"/debit", fleet.Fields{"amount": 1})
	s.Execute(wallet+"/credit", fleet.Fields{"amount": 1})
	noted(s, path, "pending", 2) // after the first attempt there are others

	types := func(query string, size int) (all []string) {
		var before *deliveryView
		for _, d := range deliveries(s, path, query, size) {
			if before != nil && d.ID >= before.ID {
				t.Errorf("%s: %s comes after %s", query, d.ID, before.ID)
			}
			before, all = &d, append(all, strings.TrimPrefix(d.Type, "wallet."))
		}
		return all
	}
	for query, want := range map[string][]string{
		"": {"credit", "debit", "debit", "debit", "credit"}, "&state=delivered": {"debit", "debit", "credit"}, "&state=pending": {"credit", "debit"}, "&state=failed": nil,
		"&type=wallet.credit": {"credit", "credit"}, "&type=wallet.debit": {"debit", "debit", "debit"}, "&type=wallet.void": nil, "&state=delivered&type=wallet.credit": {"credit"},
	} {
		for _, size := range []int{1, 2, 100} {
			if got := types(query, size); !slices.Equal(got, want) {
				t.Errorf("%q in pages of %d: %v, want %v", query, size, got, want)
			}
		}
	}
	if a := asked(s, s.App, path+"/disable", "d", nil); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	failed := noted(s, path, "failed", 2) // disabled: given up
	if got := types("&state=failed", 1); !slices.Equal(got, []string{"credit", "debit"}) || len(types("&state=pending", 1)) != 0 {
		t.Errorf("failed: %v", got)
	}

	// Repaired: what has failed is sent again, and nothing else.
	for what, a := range map[string]fleet.Answer{
		"repaired": s.Do(0, s.App, http.MethodPatch, path, nil, map[string]any{"url": good.URL}),
		"enabled":  asked(s, s.App, path+"/enable", "e", nil),
	} {
		if a.Status != http.StatusOK {
			t.Fatalf("%s: %v %s", what, a, a.Body)
		}
	}
	begin, end := failed[1].At.Add(-time.Hour), failed[0].At.Add(time.Hour)
	again := asked(s, s.App, path+"/replay", "r", map[string]any{"from": begin, "to": end, "state": "failed"})
	if again.Status != http.StatusOK || !fleet.Contains(again.Body, `"replayed":2,`) {
		t.Fatalf("%v %s", again, again.Body)
	}
	noted(s, path, "delivered", 5)
}

func TestEndpointsArePagedInTheOrderOfTheirMaking(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	var made []string
	for range 5 {
		made = append(made, strings.TrimPrefix(endpointAt(s, "https://shop.example/triprize", "*"), endpointsPath+"/"))
	}
	for _, size := range []int{1, 2, 5} {
		var got []string
		for cursor := ""; ; {
			a := s.Read(fmt.Sprintf("%s?limit=%d%s", endpointsPath, size, cursor))
			var page struct {
				Endpoints []struct{ ID string } `json:"webhook_endpoints"`
				Next      *string               `json:"next_cursor"`
			}
			if err := json.Unmarshal(a.Body, &page); err != nil || a.Status != http.StatusOK || len(page.Endpoints) > size || len(got) > len(made) {
				t.Fatalf("a page of %d: %v %s", size, a, a.Body)
			}
			for _, e := range page.Endpoints {
				got = append(got, e.ID)
			}
			if page.Next == nil {
				break
			}
			cursor = "&cursor=" + *page.Next
		}
		if !slices.Equal(got, made) {
			t.Errorf("pages of %d: %v, want %v", size, got, made)
		}
	}
}

func TestASpanIsReplayedByTimeTypeAndWhetherItWasMissed(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, toLoopback)
	shop := receive(t, http.StatusNoContent)
	path := endpointAt(s, shop.URL, "wallet.*")
	observer := endpointAt(s, shop.URL, "wallet.*") // knows which events there are
	wallet := s.Wallet("mina", 1000)
	heard := noted(s, path, "delivered", 1)
	if a := asked(s, s.App, path+"/disable", "d", nil); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	for _, kind := range []string{"debit", "credit", "debit"} {
		s.Execute(wallet+"/"+kind, fleet.Fields{"amount": 1})
	}
	all := noted(s, observer, "delivered", 4)
	slices.Reverse(all) // credit, debit, credit, debit: the oldest first
	if a := asked(s, s.App, path+"/enable", "e", nil); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	if got := deliveries(s, path, "", 100); len(got) != 1 || got[0].ID != heard[0].ID {
		t.Fatalf("what was missed came by itself: %v", got)
	}
	text := func(at time.Time) string { return at.Format(time.RFC3339Nano) }
	begin, end := text(all[0].At.Add(-time.Hour)), text(all[3].At.Add(time.Hour))
	replay := func(what string, body map[string]any, want ...deliveryView) {
		t.Helper()
		before := make(map[string]int)
		for _, d := range all {
			before[d.ID] = shop.times(d.ID)
		}
		a := asked(s, s.App, path+"/replay", what, body)
		var done struct{ Replayed int }
		if err := json.Unmarshal(a.Body, &done); err != nil || a.Status != http.StatusOK || done.Replayed != len(want) {
			t.Fatalf("%s: %v %s, want %d", what, a, a.Body, len(want))
		}
		noted(s, path, "pending", 0)
		for _, d := range all {
			wanted := slices.ContainsFunc(want, func(w deliveryView) bool { return w.ID == d.ID })
			if came := shop.times(d.ID) > before[d.ID]; came != wanted { // once more, or more than once: a slow answer is none
				t.Errorf("%s: %s %s came again: %v, want %v", what, d.Type, d.ID, came, wanted)
			}
		}
	}
	const missed = "missed"
	replay("nothing has failed", map[string]any{"from": begin, "to": end, "state": "failed"})
	replay("before the first", map[string]any{"from": begin, "to": text(all[0].At)}) // to is not in it
	replay("after the last", map[string]any{"from": text(all[3].At.Add(time.Millisecond)), "to": end})
	replay("missed, of a type", map[string]any{"from": begin, "to": end, "types": []string{"wallet.credit"}, "state": missed}, all[2])
	replay("missed, up to the last", map[string]any{"from": begin, "to": text(all[3].At), "state": missed}, all[1])
	replay("missed", map[string]any{"from": begin, "to": end, "state": missed}, all[3])
	replay("missed no more", map[string]any{"from": begin, "to": end, "state": missed})
	replay("delivered, from the third on", map[string]any{"from": text(all[2].At), "to": end, "state": "delivered"}, all[2], all[3])
	replay("all of a type", map[string]any{"from": begin, "to": end, "types": []string{"wallet.debit"}}, all[1], all[3])
	replay("all", map[string]any{"from": begin, "to": end}, all...)
}

func TestAnOldSecretSignsAsLongAsTheRotationSays(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	for name, c := range map[string]struct {
		body    any
		seconds float64 // 0: it does not sign any more
	}{
		"a minute": {map[string]any{"overlap_seconds": 60}, 60}, "a week": {map[string]any{"overlap_seconds": 604800}, 604800},
		"not at all": {map[string]any{"overlap_seconds": 0}, 0}, "as nobody says": {map[string]any{}, 86400},
	} {
		path := endpointAt(s, "https://shop.example/triprize", "*")
		rotated := asked(s, s.App, path+"/rotate-secret", name, c.body)
		var e struct {
			Secrets []struct {
				CreatedAt time.Time  `json:"created_at"`
				ExpiresAt *time.Time `json:"expires_at"`
			}
		}
		if err := json.Unmarshal(rotated.Body, &e); err != nil || rotated.Status != http.StatusOK {
			t.Fatalf("%s: %v %s", name, rotated, rotated.Body)
		}
		switch {
		case c.seconds == 0:
			if len(e.Secrets) != 1 || e.Secrets[0].ExpiresAt != nil {
				t.Errorf("%s: %s", name, rotated.Body)
			}
		case len(e.Secrets) != 2 || e.Secrets[1].ExpiresAt == nil:
			t.Errorf("%s: %s", name, rotated.Body)
		default: // both moments are of one transaction, or near to it
			if got := e.Secrets[1].ExpiresAt.Sub(e.Secrets[0].CreatedAt).Seconds(); got < c.seconds-30 || got > c.seconds+30 {
				t.Errorf("%s: the old one signs %v s", name, got)
			}
		}
	}
}
