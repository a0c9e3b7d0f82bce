package httpapi_test

import (
	"encoding/json"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/platform/token"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// listed is a page of any list.
type listed struct {
	fleet.Answer
	Jobs, Purchases, Holds []element
	Wallets                []element
	NextCursor             *string `json:"next_cursor"`
}

type element struct {
	ID       uuid.UUID
	Kind     string
	State    string
	UserID   string `json:"user_id"`
	Currency string
	Problem  *struct{ Code string }
	Purchase *struct {
		ID    uuid.UUID
		Nonce string
	}
	Campaign *struct{ Name string }
}

// list reads a page, which must be there.
func list(s *fleet.System, credential, path string) (page listed) {
	s.T.Helper()
	a := s.Do(0, credential, http.MethodGet, path, nil, nil)
	if err := json.Unmarshal(a.Body, &page); err != nil || a.Status != http.StatusOK {
		s.T.Fatalf("%s: %v %s", path, a, a.Body)
	}
	page.Answer = a
	return page
}

func (p listed) all() []element { return slices.Concat(p.Jobs, p.Purchases, p.Holds, p.Wallets) }

// from lets a list that begins with the newest begin with something, however many are newer.
func from(id uuid.UUID) (query string) { return "cursor=" + beside(id, 1).String() }

// beside returns the id right after or, with a step of -1, before another.
func beside(id uuid.UUID, step int64) uuid.UUID {
	n := new(big.Int).SetBytes(id[:])
	n.Add(n, big.NewInt(step)).FillBytes(id[:])
	return id
}

// ids reads a list to its end, two at a time, and returns the ids.
func ids(s *fleet.System, credential, path string) (all []uuid.UUID) {
	s.T.Helper()
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	for cursor := ""; ; {
		page := list(s, credential, path+join+"limit=2"+cursor)
		for _, one := range page.all() {
			all = append(all, one.ID)
		}
		if page.NextCursor == nil {
			return all
		}
		if next := "&cursor=" + *page.NextCursor; next == cursor {
			s.T.Fatalf("%s: the next page is the same", path)
		} else {
			cursor = next
		}
	}
}

// want compares a list with what must be in it, the newest first.
func want(s *fleet.System, credential, path string, expected ...uuid.UUID) {
	s.T.Helper()
	if got := ids(s, credential, path); !slices.Equal(got, expected) {
		s.T.Errorf("%s: %v, want %v", path, got, expected)
	}
}

// buyAs buys one position with a key or token, and waits.
func buyAs(s *fleet.System, credential string, campaign uuid.UUID, user, method, reference string) fleet.Answer {
	payment := map[string]string{"method": method}
	if reference != "" {
		payment["reference"] = reference
	}
	return s.Do(0, credential, http.MethodPost, "/v1/campaigns/"+campaign.String()+"/purchases",
		map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": fleet.UntilFinal},
		map[string]any{"user_id": user, "selection": map[string]int{"quantity": 1}, "payment": payment})
}

func TestAClientFindsItsJobsAndNobodyElses(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Trusting)
	kiosk, mina := s.NewKey("kiosk"), fleet.TokenFor(t, s.User("mina"), "")
	one, two := s.Campaign(3), s.Campaign(3)
	wallet := fleet.WalletID(s.Wallet(s.User("mina"), 1000))                                                                              // a command of the shop: its job is the oldest
	exec(s, `UPDATE wallets SET client = $2 WHERE id = $1`, wallet, token.Claims{Issuer: fleet.Issuer, Subject: s.User("mina")}.Client()) // here a user is a client of its own
	first := buyAs(s, s.App, one, s.User("mina"), "external", s.User("a"))
	second := buyAs(s, kiosk, one, s.User("mina"), "external", s.User("b"))
	own := buyAs(s, mina, two, s.User("mina"), "wallet", "")
	broke := buyAs(s, s.App, two, s.User("otto"), "wallet", "")
	if own.State != job.Succeeded || broke.Refusal() != "insufficient-funds" {
		t.Fatal(wallet, own, broke)
	}
	opened := list(s, s.App, "/v1/jobs?kind=wallet-open")
	if len(opened.Jobs) != 1 || opened.Jobs[0].State != "succeeded" {
		t.Fatalf("%s", opened.Body)
	}
	open := opened.Jobs[0].ID
	want(s, s.App, "/v1/jobs", broke.ID, first.ID, open)
	want(s, kiosk, "/v1/jobs", second.ID)
	want(s, mina, "/v1/jobs", own.ID)
	want(s, fleet.TokenFor(t, s.User("otto"), ""), "/v1/jobs")
	want(s, s.Operator, "/v1/jobs", broke.ID, own.ID, second.ID, first.ID, open)
	want(s, s.Operator, "/v1/jobs?user_id=mina", own.ID, second.ID, first.ID)
	want(s, s.Operator, "/v1/jobs?campaign_id="+one.String(), second.ID, first.ID)
	want(s, kiosk, "/v1/jobs?campaign_id="+one.String(), second.ID)
	want(s, kiosk, "/v1/jobs?campaign_id="+two.String())
	want(s, kiosk, "/v1/jobs?user_id=mina", second.ID)
	want(s, mina, "/v1/jobs?user_id=otto")
	want(s, s.App, "/v1/jobs?state=failed", broke.ID)
	want(s, s.App, "/v1/jobs?state=succeeded&kind=purchase", first.ID)
	want(s, s.App, "/v1/jobs?code=insufficient-funds", broke.ID)
	want(s, kiosk, "/v1/jobs?code=insufficient-funds")
	want(s, s.App, "/v1/jobs?code=sold-out")
	want(s, s.App, "/v1/jobs?state=queued")
	key := func(a fleet.Answer) string { // as it was sent
		return "/v1/jobs?idempotency_key=" + servers.Value[string](t, s.DB, `SELECT substring(idempotency_key FROM '[^\n]*$') FROM jobs WHERE id = $1`, a.ID)
	}
	want(s, s.App, key(first), first.ID)
	want(s, s.App, key(broke), broke.ID)
	want(s, kiosk, key(first))
	want(s, s.Operator, key(second), second.ID)
	want(s, mina, key(own), own.ID)
	want(s, mina, key(first))
	want(s, s.Operator, key(own)+"&user_id=mina", own.ID)
	want(s, s.App, "/v1/jobs?reference="+s.User("a"), first.ID)
	want(s, kiosk, "/v1/jobs?reference="+s.User("a"))
	if got := list(s, s.Operator, "/v1/jobs?code=insufficient-funds").Jobs[0]; got.UserID != s.User("otto") || got.Problem == nil || got.Problem.Code != "insufficient-funds" {
		t.Errorf("a failed job: %+v", got)
	}
	// Of a campaign that there is not, and of one with another client's jobs, a client learns the same.
	none, others := list(s, kiosk, "/v1/jobs?campaign_id="+uuid.NewString()), list(s, kiosk, "/v1/jobs?campaign_id="+two.String())
	if string(none.Body) != string(others.Body) {
		t.Errorf("%s, and %s", none.Body, others.Body)
	}
}

func TestJobsThatWaitAreFound(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(3)
	waiting := s.Buy(fleet.Order{Campaign: id, User: "mina"})
	want(s, s.App, "/v1/jobs?state=queued", waiting.ID)
	want(s, s.App, "/v1/jobs?state=awaiting_action")
	want(s, s.App, "/v1/jobs?state=queued&user_id=otto")
	want(s, s.NewKey("kiosk"), "/v1/jobs?state=queued")
	fleet.FinalizeAll(t, s)
	want(s, s.App, "/v1/jobs?state=queued")
	want(s, s.App, "/v1/jobs?state=succeeded", waiting.ID)
}

func TestPurchasesAreFoundByWhatIsKnownOfThem(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id, elsewhere := s.Campaign(4), s.Campaign(4)
	s.Wallet(s.User("mina"), 5000)
	buy := func(campaign uuid.UUID, user, method, reference string) uuid.UUID {
		return buyAs(s, s.App, campaign, user, method, reference).Result.PurchaseID
	}
	a, b := buy(id, s.User("mina"), "external", s.User("order-1")), buy(id, s.User("otto"), "external", s.User("order-2"))
	c, d := buy(id, s.User("mina"), "wallet", ""), buy(elsewhere, s.User("mina"), "external", s.User("order-1"))
	if x := s.Cancel(s.App, b, "cancel-b", "a mistake"); x.State != job.Succeeded {
		t.Fatal(x)
	}
	path, mina := "/v1/campaigns/"+id.String()+"/purchases", fleet.TokenFor(t, s.User("mina"), "")
	want(s, s.App, path, c, b, a)
	want(s, s.Operator, path, c, b, a)
	want(s, s.App, path+"?state=completed", c, a)
	want(s, s.App, path+"?state=cancelled", b)
	want(s, s.App, path+"?state=refunding")
	want(s, s.App, path+"?user_id="+s.User("mina"), c, a)
	want(s, s.App, path+"?user_id="+s.User("mina")+"&method=wallet", c)
	want(s, s.App, path+"?reference="+s.User("order-2"), b)
	want(s, s.App, path+"?reference="+s.User("order-2")+"&user_id="+s.User("mina"))
	want(s, s.App, path+"?method=external&state=completed", a)
	want(s, s.App, "/v1/purchases?reference="+s.User("order-1"), d, a)
	want(s, s.App, "/v1/purchases?reference="+s.User("order-3"))
	want(s, mina, "/v1/purchases?reference="+s.User("order-1"), d, a)
	want(s, mina, "/v1/purchases?reference="+s.User("order-2")) // otto's
	for credential, status := range map[string]int{"": 401, mina: 403, fleet.TokenFor(t, "v", "viewer"): 403} {
		if x := s.Do(0, credential, http.MethodGet, path, nil, nil); x.Status != status {
			t.Errorf("the campaign's purchases: %v, want %d", x, status)
		}
	}
	if x := s.Do(0, s.App, http.MethodGet, "/v1/campaigns/"+uuid.NewString()+"/purchases", nil, nil); x.Status != http.StatusNotFound {
		t.Errorf("of no campaign: %v", x)
	}
}

func TestHoldsAreFoundAsTheyAreNow(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id, elsewhere := s.Campaign(4), s.Campaign(4)
	hold := func(campaign uuid.UUID, user string, layer int) uuid.UUID {
		return s.MustHold(fleet.HoldOrder{Campaign: campaign, User: user, At: []shape.Position{fixture.At(layer, 1)}}).ID
	}
	used, released := hold(id, s.User("mina"), 1), hold(id, s.User("mina"), 2)
	over, active, otto, other := hold(id, s.User("mina"), 3), hold(id, s.User("mina"), 4), s.MustHold(fleet.HoldOrder{Campaign: id, User: s.User("otto"), Quantity: 1}).ID, hold(elsewhere, s.User("mina"), 1)
	if a := s.BuyChosen(0, id, s.User("mina"), used); a.State != job.Succeeded {
		t.Fatal(a)
	}
	if a := s.Release(s.App, released); a.Status != http.StatusNoContent {
		t.Fatal(a)
	}
	servers.Exec(t, s.DB, `
		WITH now AS (SELECT clock_timestamp() - interval '1 second' AS at), p AS (UPDATE positions SET expires_at = at FROM now WHERE hold_id = $1)
		UPDATE holds SET expires_at = at FROM now WHERE id = $1`, over)
	mina, all := fleet.TokenFor(t, s.User("mina"), ""), "/v1/holds?campaign_id="+id.String()
	want(s, s.App, all, otto, active, over, released, used)
	want(s, s.App, all+"&state=active", otto, active)
	want(s, s.App, all+"&state=expired", over)
	want(s, s.App, all+"&state=released", released)
	want(s, s.App, all+"&state=used", used)
	want(s, mina, all, active, over, released, used)
	want(s, mina, all+"&state=active", active)
	want(s, s.App, "/v1/users/"+s.User("mina")+"/holds", other, active, over, released, used)
	want(s, mina, "/v1/users/"+s.User("mina")+"/holds?state=active", other, active)
	want(s, mina, "/v1/users/"+s.User("mina")+"/holds?state=expired", over)
	if a := s.Do(0, mina, http.MethodGet, "/v1/users/"+s.User("otto")+"/holds", nil, nil); a.Status != http.StatusNotFound {
		t.Errorf("another's: %v", a)
	}
	if a := s.Do(0, fleet.TokenFor(t, "v", "viewer"), http.MethodGet, all, nil, nil); a.Status != http.StatusForbidden {
		t.Errorf("a viewer: %v", a)
	}
}

func TestWhatAListDoesNotKnowIsRefusedWithWhatItKnows(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(3).String()
	for path, says := range map[string]string{
		"/v1/jobs?state=done":                                "must be one of: queued, awaiting_action, succeeded, failed",
		"/v1/jobs?kind=sale":                                 "must be one of: purchase, cancellation",
		"/v1/jobs?code=sold":                                 "must be one of: body-too-large",
		"/v1/jobs?code=sold-out&state=queued":                "requires state failed",
		"/v1/jobs?campaign_id=1":                             "must be a UUID",
		"/v1/jobs?include=campaign":                          "must be one of: purchase",
		"/v1/jobs?cursor=" + uuid.NewString():                "must be the next_cursor of an earlier page",
		"/v1/jobs?limit=0":                                   "must be at least 1",
		"/v1/jobs?user_id=":                                  "must have at least 1 character",
		"/v1/holds":                                          "?campaign_id: is required",
		"/v1/holds?campaign_id=" + id + "&state=held":        "must be one of: active, used, released, expired",
		"/v1/purchases":                                      "?reference: is required",
		"/v1/campaigns/" + id + "/purchases?method=cash":     "must be one of: external, wallet, card",
		"/v1/campaigns/" + id + "/purchases?state=sold":      "must be one of: pending",
		"/v1/campaigns/" + id + "/purchases?reference=":      "must have at least 1 character",
		"/v1/users/mina/holds?state=x":                       "must be one of: active",
		"/v1/users/mina/purchases?include=user":              "must be one of: campaign",
		"/v1/purchases/" + uuid.NewString() + "?include=job": "must be one of: campaign",
	} {
		if a := s.Do(0, s.App, http.MethodGet, path, nil, nil); a.Status != http.StatusBadRequest || a.Refusal() != "invalid-request" || !fleet.Contains(a.Body, says) {
			t.Errorf("%s: %v %s, want %q", path, a, a.Body, says)
		}
	}
}

func TestWhatIsIncludedIsWhatASecondRequestShows(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(3)
	bought, refused := buyAs(s, s.App, id, s.User("mina"), "external", s.User("order-1")), buyAs(s, s.App, id, s.User("mina"), "wallet", "")
	purchase := s.Do(0, s.App, http.MethodGet, "/v1/purchases/"+bought.Result.PurchaseID.String(), nil, nil)
	var alone, with struct {
		Purchase json.RawMessage
		Campaign json.RawMessage
	}
	read := func(path string, into any) {
		if a := s.Do(0, s.App, http.MethodGet, path, nil, nil); a.Status != http.StatusOK || json.Unmarshal(a.Body, into) != nil {
			t.Fatal(path, a)
		}
	}
	read("/v1/jobs/"+bought.ID.String(), &alone)
	read("/v1/jobs/"+bought.ID.String()+"?include=purchase", &with)
	if alone.Purchase != nil || string(with.Purchase) != strings.TrimSpace(string(purchase.Body)) {
		t.Errorf("a job has %s, %s", alone.Purchase, with.Purchase)
	}
	page := list(s, s.App, "/v1/jobs?include=purchase&kind=purchase")
	if len(page.Jobs) != 2 || page.Jobs[0].ID != refused.ID || page.Jobs[0].Purchase != nil || page.Jobs[1].Purchase == nil || page.Jobs[1].Purchase.Nonce == "" {
		t.Errorf("jobs: %s", page.Body)
	}
	var campaigns struct{ Campaigns []json.RawMessage }
	read("/v1/campaigns?limit=1&"+from(id), &campaigns)
	for _, path := range []string{"/v1/purchases/" + bought.Result.PurchaseID.String() + "?include=campaign", "/v1/users/" + s.User("mina") + "/purchases?include=campaign", "/v1/purchases?include=campaign&reference=" + s.User("order-1")} {
		var page struct {
			Campaign  json.RawMessage
			Purchases []struct{ Campaign json.RawMessage }
		}
		read(path, &page)
		if len(page.Purchases) == 1 {
			page.Campaign = page.Purchases[0].Campaign
		}
		if len(campaigns.Campaigns) != 1 || string(page.Campaign) != string(campaigns.Campaigns[0]) {
			t.Errorf("%s: %s, want %s", path, page.Campaign, campaigns.Campaigns)
		}
	}
}

func TestWhoHasWonIsForThoseWhoMayKnow(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	path, _ := drawnCampaign(s) // of mina and otto, who have three positions each
	seen := func(credential string) (users []string) {
		var draw struct {
			Winners []struct {
				UserID *string `json:"user_id"`
			}
		}
		a := s.Do(0, credential, http.MethodGet, path, nil, nil)
		if err := json.Unmarshal(a.Body, &draw); err != nil || a.Status != http.StatusOK || len(draw.Winners) != 3 {
			t.Fatalf("%v %s", a, a.Body)
		}
		if a.Header.Get("Cache-Control") != "no-store" || !strings.Contains(a.Header.Get("Vary"), "Authorization") {
			t.Errorf("a cache would keep it: %v", a.Header)
		}
		for _, w := range draw.Winners {
			if w.UserID != nil {
				users = append(users, *w.UserID)
			}
		}
		slices.Sort(users)
		return users
	}
	all := seen(s.Operator)
	if len(all) != 3 || !slices.Equal(seen(s.App), all) {
		t.Errorf("operators see %v, apps %v", all, seen(s.App))
	}
	for range 2 { // also when an app has just read it
		if got := append(seen(""), seen(fleet.TokenFor(t, "mina", "viewer"))...); len(got) > 0 {
			t.Errorf("anonymous callers and viewers see %v", got)
		}
	}
	for _, user := range []string{"mina", "otto"} {
		own := slices.DeleteFunc(slices.Clone(all), func(winner string) bool { return winner != user })
		if got := seen(fleet.TokenFor(t, user, "")); !slices.Equal(got, own) {
			t.Errorf("%s sees %v of %v", user, got, all)
		}
	}
}

func TestWalletsArePaged(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	for _, currency := range []string{"USD", "JPY", "EUR"} {
		if a := s.Execute("/v1/wallets", fleet.Fields{"owner_id": s.User("mina"), "currency": currency}); a.Status != http.StatusCreated {
			t.Fatal(a)
		}
	}
	var currencies []string
	for path := "/v1/wallets?limit=2&owner_id=" + url.QueryEscape(s.User("mina")); path != ""; {
		page := list(s, s.App, path)
		for _, w := range page.Wallets {
			currencies = append(currencies, w.Currency)
		}
		if path = ""; page.NextCursor != nil {
			path = "/v1/wallets?limit=2&owner_id=" + s.User("mina") + "&cursor=" + *page.NextCursor
		}
	}
	if !slices.Equal(currencies, []string{"USD", "JPY", "EUR"}) { // in the order of their making
		t.Error(currencies)
	}
}
