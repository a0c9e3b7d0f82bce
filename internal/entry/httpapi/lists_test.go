package httpapi_test

import (
	"encoding/json"
	"math/big"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/token"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// from lets a list that begins with the newest begin with something, however many are newer.
func from(id uuid.UUID) (query string) { return "cursor=" + beside(id, 1).String() }

// beside returns the id right after or, with a step of -1, before another.
func beside(id uuid.UUID, step int64) uuid.UUID {
	n := new(big.Int).SetBytes(id[:])
	n.Add(n, big.NewInt(step)).FillBytes(id[:])
	return id
}

// want compares a list with what must be in it, in its order.
func want(s *fleet.System, credential, path string, expected ...uuid.UUID) {
	s.T.Helper()
	var ids []string
	for _, id := range expected {
		ids = append(ids, id.String())
	}
	if got := readPages(s, credential, path, 2, func() {}); !slices.Equal(got, ids) {
		s.T.Errorf("%s: %v, want %v", path, got, ids)
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
	kiosk, mina := s.NewKey("kiosk"), fleet.TokenFor(t, "mina", "")
	one, two := s.Campaign(3), s.Campaign(3)
	wallet := fleet.WalletID(s.Wallet("mina", 1000))                                                                              // a command of the shop: its job is the oldest
	exec(s, `UPDATE wallets SET client = $2 WHERE id = $1`, wallet, token.Claims{Issuer: fleet.Issuer, Subject: "mina"}.Client()) // here a user is a client of its own
	open := servers.Value[uuid.UUID](t, s.DB, `SELECT id FROM jobs WHERE kind = 'wallet-open'`)
	first := buyAs(s, s.App, one, "mina", "external", "a")
	second := buyAs(s, kiosk, one, "mina", "external", "b")
	own := buyAs(s, mina, two, "mina", "wallet", "")
	broke := buyAs(s, s.App, two, "otto", "wallet", "")
	if own.State != job.Succeeded || broke.Refusal() != "insufficient-funds" {
		t.Fatal(own, broke)
	}
	key := func(a fleet.Answer) string { // as it was sent
		return "?idempotency_key=" + servers.Value[string](t, s.DB, `SELECT substring(idempotency_key FROM '[^\n]*$') FROM jobs WHERE id = $1`, a.ID)
	}
	for _, c := range []struct {
		credential, query string
		want              []uuid.UUID // the newest first
	}{
		{s.App, "", []uuid.UUID{broke.ID, first.ID, open}}, {kiosk, "", []uuid.UUID{second.ID}}, {mina, "", []uuid.UUID{own.ID}}, {fleet.TokenFor(t, "otto", ""), "", nil},
		{s.Operator, "", []uuid.UUID{broke.ID, own.ID, second.ID, first.ID, open}}, {s.App, "?kind=wallet-open", []uuid.UUID{open}},
		{s.Operator, "?user_id=mina", []uuid.UUID{own.ID, second.ID, first.ID, open}}, {kiosk, "?user_id=mina", []uuid.UUID{second.ID}}, {mina, "?user_id=otto", nil},
		{s.Operator, "?campaign_id=" + one.String(), []uuid.UUID{second.ID, first.ID}}, {kiosk, "?campaign_id=" + one.String(), []uuid.UUID{second.ID}}, {kiosk, "?campaign_id=" + two.String(), nil},
		{s.App, "?state=failed", []uuid.UUID{broke.ID}}, {s.App, "?state=succeeded&kind=purchase", []uuid.UUID{first.ID}}, {s.App, "?state=queued", nil},
		{s.App, "?code=insufficient-funds", []uuid.UUID{broke.ID}}, {kiosk, "?code=insufficient-funds", nil}, {s.App, "?reference=a", []uuid.UUID{first.ID}}, {kiosk, "?reference=a", nil},
		{s.App, key(first), []uuid.UUID{first.ID}}, {kiosk, key(first), nil}, {mina, key(own), []uuid.UUID{own.ID}}, {mina, key(first), nil}, {s.Operator, key(own) + "&user_id=mina", []uuid.UUID{own.ID}},
	} {
		want(s, c.credential, "/v1/jobs"+c.query, c.want...)
	}
	// Of a campaign that there is not, and of one with another client's jobs, a client learns the same.
	none, others := s.Do(0, kiosk, http.MethodGet, "/v1/jobs?campaign_id="+uuid.NewString(), nil, nil), s.Do(0, kiosk, http.MethodGet, "/v1/jobs?campaign_id="+two.String(), nil, nil)
	if string(none.Body) != string(others.Body) {
		t.Errorf("%s, and %s", none.Body, others.Body)
	}
}

func TestPurchasesAreFoundByWhatIsKnownOfThem(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id, elsewhere := s.Campaign(4), s.Campaign(4)
	s.Wallet(s.User("mina"), 5000)
	buy := func(campaign uuid.UUID, user, method, reference string) uuid.UUID {
		return buyAs(s, s.App, campaign, s.User(user), method, reference).Result.PurchaseID
	}
	a, b := buy(id, "mina", "external", s.User("order-1")), buy(id, "otto", "external", s.User("order-2"))
	c, d := buy(id, "mina", "wallet", ""), buy(elsewhere, "mina", "external", s.User("order-1"))
	mustAnswer(t, "", s.Cancel(s.App, b, "cancel-b", "a mistake"), job.Succeeded)
	path, mina := "/v1/campaigns/"+id.String()+"/purchases", fleet.TokenFor(t, s.User("mina"), "")
	for query, expected := range map[string][]uuid.UUID{
		"": {c, b, a}, "?state=completed": {c, a}, "?state=cancelled": {b}, "?state=refunding": nil, "?user_id=" + s.User("mina"): {c, a}, "?method=wallet": {c},
		"?reference=" + s.User("order-2"): {b}, "?reference=" + s.User("order-2") + "&user_id=" + s.User("mina"): nil, "?method=external&state=completed": {a},
	} {
		want(s, s.App, path+query, expected...)
	}
	for _, credential := range []string{s.App, mina} {
		want(s, credential, "/v1/purchases?reference="+s.User("order-1"), d, a)
		want(s, credential, "/v1/users/"+s.User("mina")+"/purchases?campaign_id="+id.String(), c, a)
	}
	want(s, mina, "/v1/purchases?reference="+s.User("order-2")) // otto's
	wantAnswer(t, "of no campaign", s.Do(0, s.App, http.MethodGet, "/v1/campaigns/"+uuid.NewString()+"/purchases", nil, nil), 404)
}

func TestHoldsAreFoundAsTheyAreNow(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id, elsewhere := s.Campaign(4), s.Campaign(4)
	hold := func(campaign uuid.UUID, user string, layer int) uuid.UUID {
		return s.MustHold(fleet.HoldOrder{Campaign: campaign, User: s.User(user), At: []shape.Position{fixture.At(layer, 1)}}).ID
	}
	used, released, over, active := hold(id, "mina", 1), hold(id, "mina", 2), hold(id, "mina", 3), hold(id, "mina", 4)
	otto, other := s.MustHold(fleet.HoldOrder{Campaign: id, User: s.User("otto"), Quantity: 1}).ID, hold(elsewhere, "mina", 1)
	if a, b := s.BuyChosen(0, id, s.User("mina"), used), s.Release(s.App, released); a.State != job.Succeeded || b.Status != http.StatusNoContent {
		t.Fatal(a, b)
	}
	fixture.EndHold(t, s.DB, fixture.HoldNow(t, s.DB, over))
	mina, all, hers := fleet.TokenFor(t, s.User("mina"), ""), "/v1/holds?campaign_id="+id.String(), "/v1/users/"+s.User("mina")+"/holds"
	for query, expected := range map[string][]uuid.UUID{"": {otto, active, over, released, used}, "&state=active": {otto, active}, "&state=expired": {over}, "&state=released": {released}, "&state=used": {used}} {
		want(s, s.App, all+query, expected...)
	}
	want(s, mina, all, active, over, released, used)
	want(s, mina, all+"&state=active", active)
	want(s, s.App, hers, other, active, over, released, used)
	want(s, mina, hers+"?state=active", other, active)
}

func TestWhatWaitsForMoneyIsFoundByWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	id := s.Campaign(6)
	var operator, all []uuid.UUID
	for _, reason := range []payment.BlockedReason{payment.WaitsForOperator, payment.WaitsForTurn, "", payment.WaitsForKey, payment.WaitsForOperator} {
		bought, end := waits(s, id, payment.Capturing, reason)
		t.Cleanup(end)
		if reason == payment.WaitsForOperator {
			operator = append(operator, bought)
		}
		if reason != "" {
			all = append(all, bought)
		}
	}
	want(s, s.Operator, "/v1/payments", all...)
	want(s, s.Operator, "/v1/payments?waiting_for=operator", operator...)
	want(s, s.Operator, "/v1/payments?waiting_for=key", all[2])
	want(s, s.Operator, "/v1/payments?waiting_for=provider", all[1])

	elsewhere := s.Campaign(6)
	var waiting, failed []uuid.UUID
	for _, c := range []struct {
		state string
		stuck bool
	}{{"failed", false}, {"pending", false}, {"canceled", false}, {"pending", true}, {"requires_action", false}, {"requires_action", true}, {"open", false}} {
		made := waitingRefund(s, elsewhere, c.state, c.stuck)
		if c.stuck || c.state == "failed" || c.state == "canceled" {
			waiting = append(waiting, made)
		}
		if c.state == "failed" {
			failed = append(failed, made)
		}
	}
	want(s, s.Operator, "/v1/refunds?waiting_for=operator", waiting...)
	want(s, s.App, "/v1/campaigns/"+elsewhere.String()+"/refunds?state=failed", failed...)
	want(s, s.App, "/v1/campaigns/"+id.String()+"/refunds")
	refused(t, "of no campaign", s.Read("/v1/campaigns/"+uuid.NewString()+"/refunds"), 404, "not-found")

	queued := s.Buy(fleet.Order{Campaign: id, User: "otto"}).ID
	want(s, s.App, "/v1/jobs?state=queued&user_id=otto", queued)
	want(s, s.App, "/v1/jobs?state=awaiting_action&user_id=otto")

	pending := view(s, s.Post("/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated).ID
	want(s, s.Operator, "/v1/campaigns", pending, elsewhere, id)
	want(s, s.Operator, "/v1/campaigns?state=pending", pending)
	want(s, s.Operator, "/v1/campaigns?state=active", elsewhere, id)

	closed, difference := newDifference(s), newDifference(s)
	exec(s, `UPDATE payment_discrepancies SET closed_at = now() WHERE id = $1`, closed)
	want(s, s.Operator, "/v1/payment-discrepancies?state=open", difference)
	want(s, s.Operator, "/v1/payment-discrepancies?state=closed", closed)
}

func TestWhatIsIncludedIsWhatASecondRequestShows(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(3)
	bought, broke := buyAs(s, s.App, id, s.User("mina"), "external", s.User("order-1")), buyAs(s, s.App, id, s.User("mina"), "wallet", "")
	type document struct {
		Purchase, Campaign         json.RawMessage
		Purchases, Jobs, Campaigns []json.RawMessage
	}
	shown := func(path string) document { return fleet.As[document](t, s.Read(path)) }
	purchase := "/v1/purchases/" + bought.Result.PurchaseID.String()
	alone, with := shown("/v1/jobs/"+bought.ID.String()), shown("/v1/jobs/"+bought.ID.String()+"?include=purchase")
	if alone.Purchase != nil || string(with.Purchase) != strings.TrimSpace(string(s.Read(purchase).Body)) {
		t.Errorf("a job has %s, %s", alone.Purchase, with.Purchase)
	}
	if page := shown("/v1/jobs?include=purchase&kind=purchase").Jobs; len(page) != 2 || !fleet.Contains(page[0], broke.ID.String()) || fleet.Contains(page[0], `"nonce"`) || !fleet.Contains(page[1], `"nonce"`) {
		t.Errorf("jobs: %s", page)
	}
	campaign := shown("/v1/campaigns?limit=1&" + from(id)).Campaigns[0]
	for _, path := range []string{purchase + "?include=campaign", "/v1/users/" + s.User("mina") + "/purchases?include=campaign", "/v1/purchases?include=campaign&reference=" + s.User("order-1")} {
		one := shown(path)
		if len(one.Purchases) == 1 {
			_ = json.Unmarshal(one.Purchases[0], &one)
		}
		if string(one.Campaign) != string(campaign) {
			t.Errorf("%s: %s, want %s", path, one.Campaign, campaign)
		}
	}
}

func TestWhoHasWonIsForThoseWhoMayKnow(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	path, _ := drawnCampaign(s) // of mina and otto, who have three positions each
	seen := func(credential string) []string {
		a := s.Do(0, credential, http.MethodGet, path, nil, nil)
		if mustAnswer(t, "the draw", a, 200, valued{"Cache-Control", "no-store"}); strings.Count(string(a.Body), `"prize":`) != 3 || !strings.Contains(a.Header.Get("Vary"), "Authorization") {
			t.Fatalf("%v %s", a.Header, a.Body)
		}
		users := regexp.MustCompile(`"user_id":"\w+"`).FindAllString(string(a.Body), -1)
		slices.Sort(users)
		return users
	}
	all := seen(s.Operator)
	if len(all) != 3 || !slices.Equal(seen(s.App), all) {
		t.Errorf("operators see %v, apps %v", all, seen(s.App))
	}
	for range 2 { // also when an app has just read it
		if got := append(seen(""), seen(fleet.TokenFor(t, "mina", "public"))...); len(got) > 0 {
			t.Errorf("anonymous callers and viewers see %v", got)
		}
	}
	for _, user := range []string{"mina", "otto"} {
		own := slices.DeleteFunc(slices.Clone(all), func(winner string) bool { return winner != `"user_id":"`+user+`"` })
		if got := seen(fleet.TokenFor(t, user, "")); !slices.Equal(got, own) {
			t.Errorf("%s sees %v of %v", user, got, all)
		}
	}
}
