package httpapi_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// What is accepted has an effect: the tests here send each field of a request, and look for
// what it does and not only for where it is shown. e2e/testdata/properties.txt lists them.

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

func TestACampaignSellsAndDrawsWhatItsDraftSays(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, id := sells(s, fleet.Fields{"name": "Spring raffle", "base_length": 4, "currency": "EUR", "purchase_limit": 9, "layers": []fleet.Fields{
		{"layer": 1, "price": 100}, {"layer": 2, "price": 250, "prizes": []fleet.Fields{{"name": "A lamp", "count": 2}}},
		{"layer": 3, "price": 300}, {"layer": 4, "price": 400},
	}})
	if c := view(s, s.Read(path), http.StatusOK); c.Name != "Spring raffle" || c.Positions.Total != 10 || len(c.Layers) != 4 {
		t.Errorf("%+v", c)
	}
	in := func(currency string) string {
		a := s.Execute("/v1/wallets", fleet.Fields{"owner_id": s.User("mina"), "currency": currency, "initial_balance": 1000})
		return "/v1/wallets/" + a.ID.String()
	}
	yen := in("JPY")
	pair := fleet.Fields{"layer": 2, "quantity": 2}
	if a := buys(s, path, s.User("mina"), pair, fleet.Fields{"method": "wallet"}); a.Refusal() != "insufficient-funds" {
		t.Errorf("with a wallet in another currency: %v", a)
	}
	euros := in("EUR")
	if a := buys(s, path, s.User("mina"), pair, fleet.Fields{"method": "wallet"}); a.Result.Amount != 500 || len(a.Result.Positions) != 2 || a.Result.Positions[0].Layer != 2 {
		t.Errorf("two at 250: %v", a)
	}
	s.ExpectWallet(yen, 1000, 0)
	s.ExpectWallet(euros, 500, 0)
	if a := buys(s, path, s.User("mina"), fleet.Fields{"quantity": 8}, external); a.Refusal() != "purchase-limit-exceeded" {
		t.Errorf("a tenth position: %v", a)
	}
	if a := buys(s, path, s.User("otto"), fleet.Fields{"quantity": 8}, external); a.Refusal() != "" {
		t.Fatal(a)
	}
	s.AwaitDrawn(id)
	winners := fleet.As[struct{ Winners []struct{ Name string } }](t, s.Read(path+"/draw")).Winners
	if len(winners) != 2 || winners[0].Name != "A lamp" || winners[1].Name != "A lamp" {
		t.Errorf("two lamps were to be won, and these were: %+v", winners)
	}
}

func TestEverythingInADraftCanBeChangedBeforeItIsPublished(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	later := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	path := "/v1/campaigns/" + view(s, s.Post("/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated).ID.String()
	patch := func(what string, change fleet.Fields) {
		t.Helper()
		if a := s.Do(0, s.Operator, http.MethodPatch, path, nil, change); a.Status != http.StatusOK {
			t.Errorf("%s: %v %s", what, a, a.Body)
		}
	}
	patch("name", fleet.Fields{"name": "Autumn raffle"})
	patch("base_length and layers", fleet.Fields{"base_length": 4, "layers": []fleet.Fields{
		{"layer": 1, "price": 100}, {"layer": 2, "price": 777}, {"layer": 3, "price": 300}, {"layer": 4, "price": 400}}})
	patch("currency", fleet.Fields{"currency": "USD"})
	patch("purchase_limit", fleet.Fields{"purchase_limit": 1})
	patch("sale_starts_at and sale_ends_at", fleet.Fields{"sale_starts_at": later.Add(-72 * time.Hour), "sale_ends_at": later})
	patch("policies", fleet.Fields{"policies": fleet.Fields{"unsold": "draw"}})
	s.Post(path+"/publish", nil)
	type changed struct {
		Name, Currency, State string
		BaseLength            int       `json:"base_length"`
		DrawsAt               time.Time `json:"draws_at"`
	}
	if c := fleet.As[changed](t, s.Read(path)); c.Name != "Autumn raffle" || c.Currency != "USD" || c.BaseLength != 4 || c.State != "active" || !c.DrawsAt.Equal(later) {
		t.Errorf("%+v", c)
	}
	if a := buys(s, path, "mina", fleet.Fields{"layer": 2, "quantity": 1}, external); a.Result.Amount != 777 {
		t.Errorf("a position of layer 2: %v", a)
	}
	if a := buys(s, path, "mina", fleet.Fields{"quantity": 1}, external); a.Refusal() != "purchase-limit-exceeded" {
		t.Errorf("a second position: %v", a)
	}
	early := "/v1/campaigns/" + view(s, s.Post("/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated).ID.String()
	if a := s.Do(0, s.Operator, http.MethodPatch, early, nil, fleet.Fields{"sale_starts_at": later}); a.Status != http.StatusOK {
		t.Error(a)
	}
	s.Post(early+"/publish", nil)
	if a := buys(s, early, "mina", fleet.Fields{"quantity": 1}, external); a.Refusal() != "sale-not-open" {
		t.Errorf("before its start: %v", a)
	}
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
	if now := state(staying); now != "active" {
		t.Errorf("the other is %s", now)
	}
}

func TestACancelledCampaignTellsEverybodyWhy(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, _ := sells(s, nil)
	a := s.Do(0, s.Operator, http.MethodPost, path+"/cancel", map[string]string{"Idempotency-Key": "off", "Prefer": fleet.UntilFinal}, fleet.Fields{"reason": "a fire"})
	reason := fleet.As[struct {
		CancelReason string `json:"cancel_reason"`
	}](t, s.Do(0, s.Operator, http.MethodGet, path, nil, nil)).CancelReason
	if a.Refusal() != "" || reason != "a fire" {
		t.Errorf("%v, and it says %q", a, reason)
	}
}

func TestAHoldKeepsWhatItsRequestSaysForWhomAndAsLong(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, _ := sells(s, nil)
	type held struct {
		ID                   uuid.UUID
		Positions            []struct{ Layer, Column int }
		CreatedAt, ExpiresAt time.Time
	}
	type times struct {
		CreatedAt time.Time `json:"created_at"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	hold := func(body fleet.Fields) (h held) {
		t.Helper()
		a := s.Execute(path+"/holds", body)
		if a.Status != http.StatusCreated {
			t.Fatalf("%v: %v %s", body, a, a.Body)
		}
		h, at := fleet.As[held](t, a), fleet.As[times](t, a)
		h.CreatedAt, h.ExpiresAt = at.CreatedAt, at.ExpiresAt
		return h
	}
	drawn := hold(fleet.Fields{"user_id": "mina", "layer": 3, "quantity": 2, "ttl_seconds": 77})
	if len(drawn.Positions) != 2 || drawn.Positions[0].Layer != 3 || drawn.Positions[1].Layer != 3 {
		t.Errorf("two of layer 3: %+v", drawn.Positions)
	}
	if lasts := drawn.ExpiresAt.Sub(drawn.CreatedAt); lasts != 77*time.Second {
		t.Errorf("it lasts %s", lasts)
	}
	chosen := hold(fleet.Fields{"user_id": "otto", "positions": []fleet.Fields{{"layer": 2, "column": 2}}})
	if len(chosen.Positions) != 1 || chosen.Positions[0].Layer != 2 || chosen.Positions[0].Column != 2 {
		t.Errorf("the second of layer 2: %+v", chosen.Positions)
	}
	extended := fleet.As[times](t, s.Execute("/v1/holds/"+drawn.ID.String()+"/extend", fleet.Fields{"ttl_seconds": 500}))
	if lasts := extended.ExpiresAt.Sub(drawn.CreatedAt); lasts < 500*time.Second {
		t.Errorf("extended by 500 s it lasts %s", lasts)
	}
	if a := buys(s, path, "otto", fleet.Fields{"hold_id": drawn.ID}, external); a.Refusal() != "not-found" {
		t.Errorf("another user buys it: %v", a)
	}
	if a := buys(s, path, "mina", fleet.Fields{"hold_id": drawn.ID}, external); len(a.Result.Positions) != 2 || a.Result.Positions[0].Layer != 3 {
		t.Errorf("its user buys it: %v", a)
	}
}

func TestAPurchaseIsOfWhatAndForWhomItsRequestSays(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, _ := sells(s, nil)
	chosen := buys(s, path, s.User("mina"), fleet.Fields{"positions": []fleet.Fields{{"layer": 3, "column": 2}}}, fleet.Fields{"method": "external", "reference": "till-1"})
	if len(chosen.Result.Positions) != 1 || chosen.Result.Positions[0].Layer != 3 || chosen.Result.Positions[0].Column != 2 {
		t.Fatalf("the second of layer 3: %v", chosen)
	}
	if a := buys(s, path, s.User("otto"), fleet.Fields{"layer": 2, "quantity": 2}, external); len(a.Result.Positions) != 2 || a.Result.Positions[0].Layer != 2 {
		t.Errorf("two of layer 2: %v", a)
	}
	type list struct {
		Purchases []struct {
			ID      uuid.UUID
			Payment struct{ Method, Reference string }
		}
		NextCursor *string `json:"next_cursor"`
	}
	hers := fleet.As[list](t, s.Read("/v1/users/"+s.User("mina")+"/purchases")).Purchases
	if len(hers) != 1 || hers[0].ID != chosen.Result.PurchaseID || hers[0].Payment.Method != "external" || hers[0].Payment.Reference != "till-1" {
		t.Errorf("hers are %+v", hers)
	}
	second := buys(s, path, s.User("mina"), fleet.Fields{"layer": 3, "quantity": 1}, external).Result.PurchaseID
	first := fleet.As[list](t, s.Read("/v1/users/"+s.User("mina")+"/purchases?limit=1"))
	if len(first.Purchases) != 1 || first.Purchases[0].ID != second || first.NextCursor == nil {
		t.Fatalf("a page of one: %+v", first)
	}
	if next := fleet.As[list](t, s.Read("/v1/users/"+s.User("mina")+"/purchases?limit=1&cursor="+*first.NextCursor)).Purchases; len(next) != 1 || next[0].ID != chosen.Result.PurchaseID {
		t.Errorf("the next: %+v", next)
	}
}

func TestEveryMovementKeepsItsReferenceAndItsDescription(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	opened := s.Execute("/v1/wallets", fleet.Fields{"owner_id": s.User("mina"), "currency": "JPY", "initial_balance": 1000, "description": "welcome"})
	mina, otto := "/v1/wallets/"+opened.ID.String(), s.Wallet(s.User("otto"), 0)
	held := s.Execute(mina+"/authorizations", fleet.Fields{"amount": 100, "description": "to hold", "reference": "r-hold"})
	authorization := mina + "/authorizations/" + held.ID.String()
	for _, c := range []struct {
		path string
		body fleet.Fields
	}{
		{mina + "/credit", fleet.Fields{"amount": 5, "description": "to credit", "reference": "r-credit"}},
		{mina + "/debit", fleet.Fields{"amount": 6, "description": "to debit", "reference": "r-debit"}},
		{"/v1/transfers", fleet.Fields{"from": fleet.WalletID(mina), "to": fleet.WalletID(otto), "amount": 7, "description": "to move", "reference": "r-move"}},
		{authorization + "/capture", fleet.Fields{"amount": 8, "description": "to take", "reference": "r-take"}},
		{authorization + "/void", fleet.Fields{"description": "to void", "reference": "r-void"}},
	} {
		if a := s.Execute(c.path, c.body); a.Status >= 300 {
			t.Errorf("%s: %v %s", c.path, a, a.Body)
		}
		if again := s.Execute(c.path, c.body); again.Refusal() != "state-conflict" {
			t.Errorf("%s with a fresh key and the same reference: %v", c.path, again)
		}
	}
	want := []eventView{
		{Kind: "credit", Amount: 1000, Description: "welcome"}, {Kind: "authorize", Amount: 100, Description: "to hold", Reference: "r-hold"},
		{Kind: "credit", Amount: 5, Description: "to credit", Reference: "r-credit"}, {Kind: "debit", Amount: 6, Description: "to debit", Reference: "r-debit"},
		{Kind: "transfer", Amount: 7, Description: "to move", Reference: "r-move"}, {Kind: "capture", Amount: 8, Description: "to take", Reference: "r-take"},
		{Kind: "void", Amount: 92, Description: "to void", Reference: "r-void"},
	}
	got := history(s, mina, "from_version=1", func() {})
	for i, e := range got {
		got[i] = eventView{Kind: e.Kind, Amount: e.Amount, Description: e.Description, Reference: e.Reference}
	}
	if got[0].Reference = ""; !slices.Equal(got, want) { // the first credit has a reference of its own
		t.Errorf("%+v, want\n%+v", got, want)
	}
}

// A stream whose end was seen is not sent again.
func TestALastEventIDSaysWhatWasSeen(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	path, _ := sells(s, nil)
	events := "/v1/jobs/" + buys(s, path, "mina", fleet.Fields{"quantity": 1}, external).ID.String() + "/events"
	l := s.Listen(0, s.App, events, "")
	last := l.WantEvent()
	l.WantEnd()
	if a := s.Do(0, s.App, http.MethodGet, events, map[string]string{"Last-Event-ID": last.ID}, nil); a.Status != http.StatusNoContent {
		t.Errorf("after the last event: %v", a)
	}
}

func TestAnOldStreamEndsAndSaysThatItIsItsAge(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With("TRIPRIZE_STREAMS_HEARTBEAT=100ms", "TRIPRIZE_STREAMS_MAX_AGE=200ms")
	path, _ := sells(s, nil)
	l := s.Listen(0, s.App, path+"/events", "")
	l.WantEvent()
	l.WantEnd()
	if l.Reason() != "age" {
		t.Errorf("it ends because of %s", l.Reason())
	}
}
