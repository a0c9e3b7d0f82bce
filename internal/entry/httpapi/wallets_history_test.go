package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"triprize/internal/testkit/fleet"

	"github.com/google/uuid"
)

type eventView struct {
	Version                int64
	Kind                   string
	EntryID                uuid.UUID `json:"entry_id"`
	DeltaBalance           int64     `json:"delta_balance"`
	DeltaHeld              int64     `json:"delta_held"`
	Balance, Held, Amount  int64
	From, To               string
	Reference, Description string
	AuthorizationID        *uuid.UUID `json:"authorization_id"`
	PurchaseID             *uuid.UUID `json:"purchase_id"`
	Actor                  string
	At                     time.Time
}

type eventPage struct {
	Events     []eventView
	NextCursor *string `json:"next_cursor"`
}

// history reads all pages of a wallet's history; between is done after each.
func history(s *fleet.System, path, query string, between func()) (all []eventView) {
	s.T.Helper()
	for next := ""; ; {
		a := s.Read(path + "/events?" + query + next)
		page := fleet.As[eventPage](s.T, a)
		if a.Status != http.StatusOK || page.Events == nil {
			s.T.Fatalf("%s: %v %s", query+next, a, a.Body)
		}
		all = append(all, page.Events...)
		if page.NextCursor == nil {
			return all
		}
		if len(page.Events) == 0 {
			s.T.Fatalf("%s: an empty page that is not the last", query+next)
		}
		next = "&cursor=" + *page.NextCursor
		between()
	}
}

func TestAHistorySaysWhatEachMovementDid(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina, otto := s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 0)
	s.Execute(mina+"/debit", fleet.Fields{"amount": 100, "description": "cash", "reference": "till-7"})
	s.Execute("/v1/transfers", fleet.Fields{"from": fleet.WalletID(mina), "to": fleet.WalletID(otto), "amount": 200})
	held := authorize(s, mina, 300, 3600)
	s.Execute(held+"/capture", fleet.Fields{"amount": 120})
	s.Execute(held+"/void", nil)
	m, o := fleet.WalletID(mina), fleet.WalletID(otto)
	want := []eventView{
		{Version: 1, Kind: "credit", DeltaBalance: 1000, Balance: 1000, From: "funding", To: m, Amount: 1000},
		{Version: 2, Kind: "debit", DeltaBalance: -100, Balance: 900, From: m, To: "funding", Amount: 100, Reference: "till-7", Description: "cash"},
		{Version: 3, Kind: "transfer", DeltaBalance: -200, Balance: 700, From: m, To: o, Amount: 200},
		{Version: 4, Kind: "authorize", DeltaHeld: 300, Balance: 700, Held: 300, From: m, To: "funding", Amount: 300, Description: "deposit"},
		{Version: 5, Kind: "capture", DeltaBalance: -120, DeltaHeld: -120, Balance: 580, Held: 180, From: m, To: "funding", Amount: 120},
		{Version: 6, Kind: "void", DeltaHeld: -180, Balance: 580, From: m, To: "funding", Amount: 180},
	}
	got := history(s, mina, "from_version=1", func() {})
	if len(got) != len(want) {
		t.Fatalf("%d events: %+v", len(got), got)
	}
	for i, e := range got {
		if e.EntryID == uuid.Nil || e.At.IsZero() || (e.AuthorizationID != nil) != (i >= 3) || e.PurchaseID != nil || !strings.Contains(e.Actor, ":") {
			t.Errorf("%+v", e)
		}
		if want[i].Reference == "" {
			want[i].Reference = e.EntryID.String()
		}
		want[i].EntryID, want[i].At, want[i].AuthorizationID, want[i].Actor = e.EntryID, e.At, e.AuthorizationID, e.Actor
		if e != want[i] {
			t.Errorf("event %d:\n%+v, want\n%+v", i, e, want[i])
		}
	}
	if theirs := history(s, otto, "limit=1", func() {}); len(theirs) != 1 || theirs[0].EntryID != got[2].EntryID || theirs[0].DeltaBalance != 200 || theirs[0].Balance != 200 {
		t.Errorf("the other side: %+v", theirs)
	}
}

// 70 events are two snapshots and a rest.
func TestPagesOfAHistoryStayTheSameWhileItGrows(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina := s.Wallet(s.User("mina"), 1)
	fleet.Together(69, func(int) { s.Execute(mina+"/credit", fleet.Fields{"amount": 1}) })
	grow := func() { s.Execute(mina+"/credit", fleet.Fields{"amount": 1}) }
	for _, c := range []struct {
		query           string
		first, last, by int64
	}{
		{"limit=7", 70, 1, -1}, {"limit=70", 79, 1, -1}, {"limit=33", 80, 1, -1},
		{"from_version=1&limit=200", 1, 82, 1}, {"from_version=60&limit=11", 60, 83, 1},
	} {
		between := grow
		if c.by > 0 {
			between = func() {}
		}
		if c.query == "from_version=60&limit=11" {
			grow()
		}
		version := c.first
		for _, e := range history(s, mina, c.query, between) {
			if e.Version != version || e.Balance != e.Version || e.DeltaBalance != 1 {
				t.Fatalf("%s: %+v, want version %d", c.query, e, version)
			}
			version += c.by
		}
		if version-c.by != c.last {
			t.Errorf("%s ended at %d, want %d", c.query, version-c.by, c.last)
		}
	}
	exactly := fleet.As[eventPage](t, s.Read(mina+"/events?from_version=73&limit=11"))
	if len(exactly.Events) != 11 || exactly.NextCursor != nil {
		t.Errorf("a page that ends with the history: %d events, next %v", len(exactly.Events), exactly.NextCursor)
	}
	if beyond := fleet.As[eventPage](t, s.Read(mina+"/events?from_version=1000")); beyond.Events == nil || len(beyond.Events) != 0 || beyond.NextCursor != nil {
		t.Errorf("beyond the last: %+v", beyond)
	}
	for _, query := range []string{"limit=0", "limit=201", "cursor=0", "cursor=x", "from_version=0", "from_version=1.5", "from_version=99999999999999999999"} {
		refused(t, query, s.Read(mina+"/events?"+query), 400, "invalid-request")
	}
}

func TestAUserSeesOnlyItsOwnWallet(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, quiet))
	mina, otto := s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 1000)
	hers, his := authorize(s, mina, 10, 3600), authorize(s, otto, 10, 3600)
	token, viewer := fleet.TokenFor(t, s.User("mina"), ""), fleet.TokenFor(t, s.User("mina"), "viewer")
	for path, status := range map[string]int{
		mina: 200, mina + "/events": 200, hers: 200, "/v1/wallets?owner_id=" + s.User("mina"): 200,
		otto: 404, otto + "/events": 404, his: 404, "/v1/wallets?owner_id=" + s.User("otto"): 404, mina + his[len(otto):]: 404, "/v1/wallets/" + uuid.NewString(): 404,
	} {
		a := s.Do(0, token, http.MethodGet, path, nil, nil)
		if a.Status != status || fleet.Contains(a.Body, s.User("otto")) && status == http.StatusOK {
			t.Errorf("%s: want %d, got %v %s", path, status, a, a.Body)
		}
		if a := s.Do(0, viewer, http.MethodGet, path, nil, nil); a.Status != http.StatusForbidden {
			t.Errorf("%s: a viewer got %v", path, a)
		}
		if a := s.Do(0, s.Operator, http.MethodGet, path, nil, nil); a.Status != status && (path == mina || path == hers) {
			t.Errorf("%s: an operator got %v", path, a)
		}
	}
	for path, body := range map[string]fleet.Fields{
		"/v1/wallets": {"owner_id": s.User("mina"), "currency": "EUR"}, mina + "/credit": {"amount": 1}, mina + "/debit": {"amount": 1},
		mina + "/authorizations": {"amount": 1}, hers + "/capture": {}, hers + "/void": {}, "/v1/transfers": {"from": fleet.WalletID(mina), "to": fleet.WalletID(otto), "amount": 1},
	} {
		for who, credential := range map[string]string{"a user": token, "a viewer": viewer} {
			if a := s.Do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": uuid.NewString()}, body); a.Status != http.StatusForbidden {
				t.Errorf("%s: %s got %v", path, who, a)
			}
		}
	}
	s.ExpectWallet(mina, 1000, 10)
}
