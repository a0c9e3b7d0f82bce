package httpapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// page is the path of a thing's page below /console.
func page(of string, id uuid.UUID) string { return "/" + of + "/" + id.String() }

func TestFindLeadsToThePageOfWhatIsNamed(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy).With()
	b, user := signIn(s), s.User("mina")
	wallet := uuid.MustParse(fleet.WalletID(s.Wallet(user, 100_000)))
	bought := s.Buy(fleet.Order{Campaign: s.Campaign(3), User: user, Wait: true})
	mustAnswer(t, "bought", bought, job.Succeeded)
	campaign, sold := s.Campaign(3), s.Campaign(2)
	failed := s.Buy(fleet.Order{Campaign: sold, User: s.User("otto"), Quantity: 3, ByWallet: true, Key: "of otto " + s.User(""), Wait: true}) // without a wallet
	mustAnswer(t, "not bought", failed, job.Failed)
	refund := insertRefund(s, adopted(s, fixture.Buy(t, s.DB, campaign, "noor", 0, 1)), "external", "listed")
	refunded := servers.Value[uuid.UUID](t, s.DB, `SELECT purchase_id FROM refunds WHERE id = $1`, refund)
	hold := s.MustHold(fleet.HoldOrder{Campaign: campaign, User: s.User("olga"), Quantity: 1})
	endpoint := decoded[struct{ ID uuid.UUID }](s, s.Execute(endpointsPath, endpointBody("*")))
	key := s.NewKey("kiosk")
	for text, leads := range map[string]string{
		campaign.String():          page("campaigns", campaign),
		bought.ID.String():         page("purchases", bought.Result.PurchaseID),
		"ref-" + user:              page("purchases", bought.Result.PurchaseID),
		failed.ID.String():         page("jobs", failed.ID),
		"of otto " + s.User(""):    page("jobs", failed.ID),
		refund.String():            page("purchases", refunded),
		wallet.String():            page("wallets", wallet),
		endpoint.ID.String():       page("webhooks", endpoint.ID),
		strings.Split(key, "_")[1]: "/keys#" + strings.Split(key, "_")[1],
		key:                        "/keys#" + strings.Split(key, "_")[1],
	} {
		wantAnswer(t, text, b.get("/find?q="+url.QueryEscape(text)), http.StatusSeeOther, valued{"Location", "/console" + leads})
	}
	wantAnswer(t, "a user with several things", b.get("/find?q="+user), 200, `href="/console`+page("wallets", wallet), `href="/console`+page("purchases", bought.Result.PurchaseID), "<dt>balance</dt><dd><bdi>100,000 JPY</bdi></dd>")
	wantAnswer(t, "an id with spaces", b.get("/find?q="+url.QueryEscape(" "+bought.Result.PurchaseID.String()+"\t")), 200, "Nothing is named exactly so", page("purchases", bought.Result.PurchaseID))
	wantAnswer(t, "what has no page", b.get("/find?q="+hold.ID.String()), 200, `<h2>hold <code dir="auto">`+hold.ID.String(), `href="/console`+page("campaigns", campaign))
	wantAnswer(t, "nothing yet", b.get("/find"), 200, "webhook endpoint", without("Nothing is named"))
	for _, text := range []string{uuid.NewString(), "\x00", "\xff", `"><script>alert(1)</script>`} {
		wantAnswer(t, text, b.get("/find?q="+url.QueryEscape(text)), 200, "Nothing is named", without("<script>alert"))
	}
	wantAnswer(t, "a job that failed", b.get(page("jobs", failed.ID)), 200, failed.Problem.Code, page("campaigns", sold))
	for _, of := range []string{"campaigns", "jobs", "purchases", "wallets"} {
		wantAnswer(t, "none", b.get(page(of, uuid.New())), 404, "not-found")
		wantAnswer(t, "no id", b.get("/"+of+"/me"), 404, "not-found")
		wantAnswer(t, "none, live", b.live(page(of, uuid.New())), 404, `role="alert"`)
	}
	wantAnswer(t, "the board of none", b.get(page("campaigns", uuid.New())+"/board?since=0"), 404, "not-found")
}

// A form that is sent twice returns the money once, although the second one finds another purchase.
func TestPositionsAreCancelledOnceByAFormThatIsSentTwice(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	b, user := signIn(s), s.User("mina")
	wallet := s.Wallet(user, 1000)
	path, campaign := openShape(s, nil, row(1, 4, "Row A"))
	bought := buys(s, path, user, numbered(1, 2, 3), fleet.Fields{"method": "wallet"}).Result.PurchaseID
	form := page("purchases", bought) + "/cancel-positions"
	wantAnswer(t, "the form", b.get(form), 200, `name="position/1" type="checkbox"`, "Row A 3: ", "credited to the wallet")
	wantAnswer(t, "no position", b.post(form, "once", "1", "/reason", "fell ill"), 400, "choose at least one", `value="fell ill"`)
	wantAnswer(t, "no reason", b.post(form, "once", "2", "position/2", "on"), 400, "is required", `name="position/2" type="checkbox" value="on" checked`)
	wantAnswer(t, "not its own", b.post(form, "once", "3", "position/4", "on", "/reason", "fell ill"), 400)
	s.ExpectWallet(wallet, 700, 0)
	leads := ""
	for range 2 {
		a := b.post(form, "once", "of "+user, "position/3", "on", "position/2", "on", "/reason", "fell ill")
		if mustAnswer(t, "two of three", a, 303); leads != "" {
			wantEqual(t, "the job of the second", a.Header.Get("Location"), leads)
		}
		leads = a.Header.Get("Location")
	}
	wantAnswer(t, "the cancellation", b.ended(leads), job.Succeeded)
	p := purchase(s, s.App, bought)
	if len(p.Positions) != 1 || len(p.Partial) != 1 || p.Partial[0].Reason != "fell ill" || p.Refunded != 200 {
		t.Errorf("%+v", p)
	}
	s.ExpectWallet(wallet, 900, 0)
	wantAnswer(t, "its page", b.get(page("purchases", bought)), 200, "<td>created</td>", "<td>completed</td>", "<td>partially-cancelled</td>", "fell ill", "of it refunded", "Cancel the purchase…", without("Cancel positions…"))
	a := b.post(form, "once", "4 "+user, "position/3", "on", "/reason", "again")
	if a.Status == http.StatusSeeOther { // the job has failed after the answer
		a = b.ended(a.Header.Get("Location"))
	}
	wantAnswer(t, "one that is cancelled already", a, "state-conflict")
	a = b.post(page("purchases", bought)+"/cancel", "once", "5 "+user, "/reason", "all of it")
	mustAnswer(t, "the rest", a, 303)
	wantAnswer(t, "its end", b.ended(a.Header.Get("Location")), job.Succeeded)
	s.ExpectWallet(wallet, 1000, 0)
	wantEqual(t, "jobs of cancellations", count(s, `SELECT count(*) FROM jobs WHERE campaign_id = $1 AND kind = 'cancellation' AND state = 'succeeded'`, campaign), 2)
}

func TestWhatWaitsForAPersonIsResolvedWithAReason(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: everyday}) // where nothing else waits
	b, campaign := signIn(s), s.Campaign(4)
	bought, end := waits(s, campaign, payment.Capturing, payment.WaitsForOperator)
	defer end()
	refund, refused := waitingRefund(s, campaign, "failed", false), waitingRefund(s, campaign, "canceled", false)
	alone, difference := waitingRefund(s, s.Campaign(4), "failed", false), newDifference(s)
	purchaseOf := servers.Value[uuid.UUID](t, s.DB, `SELECT purchase_id FROM refunds WHERE id = $1`, refund)
	wantAnswer(t, "what waits", b.get("/waiting"), 200, page("purchases", bought)+"/payment/resolve", page("refunds", refund)+"/retry", page("refunds", refused)+"/resolve", page("campaigns", campaign)+"/refunds/resolve", page("discrepancies", difference)+"/explain")
	wantAnswer(t, "the payment", b.get(page("purchases", bought)), 200, "Payment: capturing", "<dt>waits_for</dt><dd><bdi>operator</bdi></dd>", "Resolve the payment…")
	wantAnswer(t, "the refund", b.get(page("purchases", purchaseOf)), 200, "failed by card", "Made by hand…")
	found := "/find?q=" + difference.String()
	wantAnswer(t, "the difference", b.get(found), 303, valued{"Location", "/console/waiting#" + difference.String()})
	once := 0
	for _, c := range []struct {
		form, field, value, query string
		id                        uuid.UUID
		changes, says             string
	}{
		{page("purchases", bought) + "/payment/retry", "", "", `SELECT count(*) FROM payments WHERE purchase_id = $1 AND wakes = 1`, bought, "", ""},
		{page("purchases", bought) + "/payment/resolve", "/outcome", "unpaid", `SELECT count(*) FROM payments WHERE purchase_id = $1 AND resolve_reason = 'looked at it'`, bought,
			`UPDATE payments SET version = version + 1 WHERE purchase_id = $1`, "the payment has changed since you read it"},
		{page("refunds", refund) + "/retry", "", "", `SELECT count(*) FROM refunds WHERE id = $1 AND state = 'open'`, refund, "", ""},
		{page("refunds", alone) + "/resolve", "", "", `SELECT count(*) FROM refunds WHERE id = $1 AND state = 'resolved' AND amount = 40 AND resolve_reason = 'looked at it'`, alone,
			`INSERT INTO refunds (id, purchase_id, campaign_id, user_id, method, amount, currency, reason, state, provider_id, finished_at)
			SELECT gen_random_uuid(), purchase_id, campaign_id, user_id, 'card', amount - 40, currency, 'out-of-band', 'succeeded', 're_dashboard', clock_timestamp() FROM refunds WHERE id = $1`, "40 JPY are to be returned now"},
		{page("campaigns", campaign) + "/refunds/resolve", "typed", s.CampaignNow(campaign).Name, `SELECT count(*) FROM refunds WHERE id = $1 AND state = 'resolved' AND resolve_reason = 'looked at it'`, refused,
			`UPDATE refunds SET amount = amount - 1 WHERE id = $1`, "others may have returned a part"},
		{page("discrepancies", difference) + "/explain", "", "", `SELECT count(*) FROM payment_discrepancies WHERE id = $1 AND explanation = 'looked at it'`, difference,
			`UPDATE payment_discrepancies SET there_amount = 7, version = version + 1 WHERE id = $1`, "the discrepancy has changed since you read it"},
	} {
		once++
		key := fmt.Sprint("form ", once)
		wantAnswer(t, "without a reason: "+c.form, b.post(c.form, "once", key, c.field, c.value), 400, "is required")
		if c.field != "" {
			wantAnswer(t, "without "+c.field, b.post(c.form, "once", key, "/reason", "looked at it", c.field, ""), 400, `class="fault"`, `value="looked at it"`)
		}
		wantEqual(t, "before "+c.form, count(s, c.query, c.id), 0)
		form := formOf(b.get(c.form), "once", key, "/reason", "looked at it", c.field, c.value)
		if c.changes != "" { // since the form was opened: what it shows is another amount, or version
			exec(s, c.changes, c.id)
			wantAnswer(t, "an older form: "+c.form, submit(b, c.form, form), 409, c.says)
			wantEqual(t, "after an older form: "+c.form, count(s, c.query, c.id), 0)
			form = formOf(b.get(c.form), "once", key+" again", "/reason", "looked at it", c.field, c.value)
		}
		mustAnswer(t, c.form, submit(b, c.form, form), 303)
		wantEqual(t, "after "+c.form, count(s, c.query, c.id), 1)
	}
	wantAnswer(t, "the difference is explained", b.get(found), 200, `<h2>discrepancy <code dir="auto">`+difference.String(), ": explained")
	wantAnswer(t, "none is marked", b.post("/discrepancies/explain", "/reason", "a restore"), 400, "mark at least one", `value="a restore"`)
	marked, other := []uuid.UUID{newDifference(s), newDifference(s)}, newDifference(s)
	wantAnswer(t, "those that are open", b.get("/discrepancies/explain"), 200, "discrepancy/"+other.String()+`" type="checkbox" value="on" checked`, without(difference.String()))
	form := formOf(b.get("/discrepancies/explain"), "once", "many", "/reason", "a restore")
	maps.DeleteFunc(form, func(name, _ string) bool { // the marks of others are removed
		id, isMark := strings.CutPrefix(name, "discrepancy/")
		return isMark && !slices.Contains(marked, uuid.MustParse(id))
	})
	exec(s, `UPDATE payment_discrepancies SET version = version + 1 WHERE id = $1`, marked[1])
	wantAnswer(t, "an older form", submit(b, "/discrepancies/explain", form), 409, "the discrepancy has changed since you read it")
	form["/version/"+marked[1].String()] = "1"
	wantAnswer(t, "those that are marked", submit(b, "/discrepancies/explain", with(form, "once", "many again")), 303, valued{"Location", "/console/waiting?done=1"})
	wantEqual(t, "explained", count(s, `SELECT count(*) FROM payment_discrepancies WHERE explanation = 'a restore' AND id = ANY($1)`, marked), 2)
	wantEqual(t, "not marked", count(s, `SELECT count(*) FROM payment_discrepancies WHERE explained_at IS NULL AND id = $1`, other), 1)
	wantAnswer(t, "one that waits no more", b.post(page("purchases", bought)+"/payment/resolve", "/outcome", "paid", "/reason", "again"), 409, "state-conflict")
}

func TestAWalletShowsItsHistoryAndIsCreditedByAForm(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	b := signIn(s)
	path := s.Wallet(s.User("mina"), 7)
	wallet := "/wallets/" + fleet.WalletID(path)
	wantAnswer(t, "the form", b.get(wallet+"/credit"), 200, "1234 are 1,234 JPY")
	for amount, says := range map[string]string{"ten": "must be a whole number", "1.5": "must be a whole number", "-5": `<strong class="fault">`, "0": `<strong class="fault">`, "": "is required", "99999999999999999999": "must be a whole number"} {
		wantAnswer(t, "amount "+amount, b.post(wallet+"/credit", "/amount", amount, "/reference", "r", "/description", "a gift", "/reason", "why"), 400, says, `type="number" dir="auto" value="`+amount+`" required aria-invalid="true"`, `value="a gift"`)
	}
	form := formOf(b.get(wallet+"/credit"), "once", "of "+path, "/amount", "1000", "/reference", "gift "+path, "/description", "a gift", "/reason", "why")
	for range 2 {
		mustAnswer(t, "credited", submit(b, wallet+"/credit", form), 303)
	}
	form["once"], form["/reference"] = "2 of "+path, "another gift "+path
	wantAnswer(t, "an older form", submit(b, wallet+"/credit", form), 412)
	s.ExpectWallet(path, 1007, 0)
	wantAnswer(t, "its reference again", fill(b, wallet+"/credit", "/amount", "1000", "/reference", "gift "+path, "/reason", "why"), 409)
	for i := range 49 {
		fleet.Want(t, 200, s.Execute(path+"/credit", fleet.Fields{"amount": 1, "reference": fmt.Sprint(path, i)}))
	}
	newest := b.get(wallet)
	mustAnswer(t, "its page", newest, 200, "1,056 JPY", "credit: <bdi>a gift</bdi>", without(">7 JPY</td>"), "Older")
	_, cursor, _ := strings.Cut(string(newest.Body), "?cursor=")
	cursor, _, _ = strings.Cut(cursor, `"`)
	wantAnswer(t, "the older page", b.get(wallet+"?cursor="+cursor), 200, ">7 JPY</td>", without("a gift"), without("Older</a>"))
	wantAnswer(t, "a wrong cursor", b.get(wallet+"?cursor=x"), 400, "cursor")
}
