package httpapi_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/payment"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

type (
	resolution      struct{ Outcome, By, Reason string }
	cardPaymentView struct{ Resolution resolution }
	refundView      struct {
		State      string
		Resolution resolution
	}
)

// waits reserves a position by card, leads its payment to a phase and lets it wait. end
// settles the payment, for the audit.
func waits(s *fleet.System, campaign uuid.UUID, phase payment.Phase, reason payment.BlockedReason) (purchase uuid.UUID, end func()) {
	s.T.Helper()
	bought, ref := fixture.Reserve(s.T, s.DB, campaign, "mina", 1, time.Hour)
	fixture.Advance(s.T, s.DB, adopted(s, bought), phase)
	exec(s, `UPDATE payments SET waiting_for = nullif($2, ''), waiting_since = CASE WHEN $2 <> '' THEN clock_timestamp() END WHERE purchase_id = $1`, bought, reason)
	return bought, func() {
		if fixture.Payment(after{s.T}, s.DB, bought).Phase != payment.Ended {
			fixture.EndAs(after{s.T}, s.DB, bought, payment.Expired)
		}
		fixture.SettlePayments(after{s.T}, s.DB, ref)
	}
}

// after is a test that is over, for what cleans up after it.
type after struct{ testing.TB }

func (after) Context() context.Context { return context.Background() }

// waitingRefund inserts a refund by card in a state, and its purchase waits for it until the audit.
func waitingRefund(s *fleet.System, campaign uuid.UUID, state string, stuck bool) (refund uuid.UUID) {
	s.T.Helper()
	bought, _ := fixture.BuyByCard(s.T, s.DB, campaign, "mina", 0, 1)
	refund = insertRefund(s, adopted(s, bought), "card", state)
	exec(s, `UPDATE refunds SET stuck = $2 WHERE id = $1`, refund, stuck)
	exec(s, `UPDATE purchases SET state = 'refunding' WHERE id = $1`, bought)
	s.T.Cleanup(func() { exec(s, `UPDATE purchases SET state = 'completed' WHERE id = $1`, bought) })
	return refund
}

// commandAs sends a command without a body, or with one that is JSON.
func commandAs(s *fleet.System, credential, path, body string) fleet.Answer {
	var content any
	if body != "" {
		content = fleet.RawJSON(body)
	}
	return s.Do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": uuid.NewString()}, content)
}

// Whatever is done by hand states its reason, for the records.
func TestWhatIsDoneByHandStatesItsReason(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	asked := 0
	for _, o := range newMaker(t, nil).operations {
		if o.RequestBody == nil || !slices.Contains(o.RequestBody.Value.Content["application/json"].Schema.Value.Required, "reason") {
			continue
		}
		if strings.HasPrefix(o.path, "/v1/approvals/") && !strings.HasSuffix(o.path, "/withdraw") { // no key may approve or reject
			continue
		}
		asked++
		c := newCommand(s, o.OperationID, s.App)
		for _, reason := range []any{nil, "", " ", "\t", strings.Repeat("a", 501), "a\u0000", 1} {
			body := maps.Clone(c.body.(fleet.Fields))
			body["reason"] = reason
			if o.OperationID == "eraseUser" {
				body["client"] = "all" // an operator has to name it
			}
			if p := refused(t, o.OperationID, s.Do(0, s.Operator, http.MethodPost, c.path, map[string]string{"Idempotency-Key": uuid.NewString()}, body), 400, "invalid-request"); len(p.Errors) != 1 || p.Errors[0].Pointer != "/reason" {
				t.Errorf("%s, because of %v: %+v", o.OperationID, reason, p.Errors)
			}
		}
	}
	if asked < 6 {
		t.Errorf("only %d operations", asked)
	}
}

func TestAnOperatorLooksAgainAndSettlesAPaymentWithAReason(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, quiet))
	id := s.Campaign(4)
	waiting, endFirst := waits(s, id, payment.Capturing, payment.WaitsForOperator)
	second, endSecond := waits(s, id, payment.Capturing, "")
	defer endSecond()
	stuck, fine := "/v1/payments/"+waiting.String(), "/v1/payments/"+second.String()
	unpaid := fmt.Sprintf(`{"outcome":"unpaid","version":%d,"reason":"the intent is gone"}`, fixture.Payment(t, s.DB, waiting).Version)
	refused(t, "none", commandAs(s, s.Operator, "/v1/payments/"+uuid.NewString()+"/resolve", unpaid), 404, "not-found")
	refused(t, "one that does not wait", commandAs(s, s.Operator, fine+"/resolve", unpaid), 409, "state-conflict")
	refused(t, "one that does not wait, again", commandAs(s, s.Operator, fine+"/retry", ""), 409, "state-conflict")
	refused(t, "with an unknown outcome", commandAs(s, s.Operator, stuck+"/resolve", `{"outcome":"half","version":0,"reason":"r"}`), 400, "invalid-request")
	refused(t, "out of band without a reference", commandAs(s, s.Operator, stuck+"/resolve", `{"outcome":"paid-out-of-band","version":0,"reason":"r"}`), 400, "invalid-request")
	refused(t, "an older version", commandAs(s, s.Operator, stuck+"/resolve", strings.Replace(unpaid, `"version":`, `"version":9`, 1)), 409, "state-conflict")
	wantAnswer(t, "looked at again", commandAs(s, s.Operator, stuck+"/retry", ""), 200, `"waiting_for":"operator"`)
	if n := count(s, `SELECT count(*) FROM payments WHERE purchase_id = $1 AND due_at <= clock_timestamp() AND wakes = 1`, waiting); n != 1 {
		t.Error("it is not due")
	}
	settled := commandAs(s, s.Operator, stuck+"/resolve", unpaid)
	wantAnswer(t, "settled", settled, 200, `"phase":"ended"`, `"waiting_for":null`)
	if got, want := decoded[cardPaymentView](s, settled).Resolution, (resolution{Outcome: "unpaid", By: "operator:" + s.Client("ops"), Reason: "the intent is gone"}); got != want {
		t.Errorf("settled %+v, want %+v", got, want)
	}
	refused(t, "settled twice", commandAs(s, s.Operator, stuck+"/resolve", unpaid), 409, "state-conflict")
	shown := "/v1/purchases/" + waiting.String()
	wantAnswer(t, "an app sees", s.Read(shown), `"event":"payment-resolved","detail":"unpaid, says operator:`+s.Client("ops")+`: the intent is gone"`)
	wantAnswer(t, "its buyer sees", s.Do(0, fleet.TokenFor(t, "mina", ""), http.MethodGet, shown, nil, nil), `"event":"payment-resolved"`, without("operator:ops"))
	endFirst()
	wantAnswer(t, "what became of it", s.Read(shown), `"failure":"payment-not-received"`)
}

func TestARefundIsReadTriedAgainAndSettledByThoseWhoMay(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, quiet))
	id, elsewhere, path, mina := s.Campaign(4), s.Campaign(4), "/v1/refunds/", fleet.TokenFor(t, "mina", "")
	listedIn := func(campaign uuid.UUID) string {
		return path + insertRefund(s, adopted(s, fixture.Buy(t, s.DB, campaign, "mina", 0, 1)), "external", "listed").String()
	}
	failedID := waitingRefund(s, id, "failed", false)
	listed, failed := listedIn(id), path+failedID.String()
	resolveBy := func(credential, refund string) fleet.Answer {
		return s.Do(0, credential, http.MethodPost, refund+"/resolve", map[string]string{"Idempotency-Key": uuid.NewString()}, byHand(s, refund))
	}
	for what, c := range map[string]struct {
		credential, path, body string
		status                 int
		code                   string
	}{
		"one that is listed, again": {s.Operator, listed + "/retry", "", 409, "state-conflict"},
		"none, again":               {s.Operator, path + uuid.NewString() + "/retry", "", 404, "not-found"},
	} {
		refused(t, what, commandAs(s, c.credential, c.path, c.body), c.status, c.code)
	}
	refused(t, "an app resolves a card", resolveBy(s.App, failed), 403, "forbidden")
	refused(t, "an operator resolves for an app", resolveBy(s.Operator, listed), 403, "forbidden")
	refused(t, "none is resolved", resolveBy(s.App, path+uuid.NewString()), 404, "not-found")
	refused(t, "over another amount", commandAs(s, s.App, listed+"/resolve", `{"amount":9,"reason":"paid back in cash"}`), 409, "state-conflict")
	is := func(what string, a fleet.Answer, state, by string) {
		t.Helper()
		want := refundView{State: state}
		if by != "" {
			want.Resolution = resolution{By: by, Reason: "paid back in cash"}
		}
		if got := decoded[refundView](s, a); a.Status != http.StatusOK || got != want {
			t.Errorf("%s: %v %s", what, a, a.Body)
		}
	}
	app, operator := "app:"+s.Client("shop"), "operator:"+s.Client("ops")
	is("resolved", resolveBy(s.App, listed), "resolved", app)
	is("as its user sees it", s.Do(0, mina, http.MethodGet, listed, nil, nil), "resolved", "app")
	refused(t, "resolved twice", resolveBy(s.App, listed), 409, "state-conflict")
	is("tried again", commandAs(s, s.Operator, failed+"/retry", ""), "open", "")
	refused(t, "resolved while it is tried", resolveBy(s.Operator, failed), 409, "state-conflict")
	exec(s, `UPDATE refunds SET state = 'failed' WHERE id = $1`, failedID)
	is("resolved by an operator", resolveBy(s.Operator, failed), "resolved", operator)

	// Those of a campaign together: of cards by operators, the others by their apps.
	owed, card := listedIn(elsewhere), path+waitingRefund(s, elsewhere, "failed", false).String()
	together := func(campaign uuid.UUID, credential, method string) fleet.Answer {
		return s.Do(0, credential, http.MethodPost, "/v1/campaigns/"+campaign.String()+"/refunds/resolve", map[string]string{"Idempotency-Key": uuid.NewString()}, allByHand(s, elsewhere, method))
	}
	refused(t, "no campaign", together(uuid.New(), s.Operator, "card"), 404, "not-found")
	wantAnswer(t, "an operator", together(elsewhere, s.Operator, "card"), 200, `{"campaign_id":"`+elsewhere.String()+`","resolved":1,"amount":`)
	is("of a card", s.Read(card), "resolved", operator)
	is("the other", s.Read(owed), "listed", "")
	wantAnswer(t, "an app", together(elsewhere, s.App, "external"), `"resolved":1`)
	is("the other", s.Read(owed), "resolved", app)
	wantAnswer(t, "its job", s.Do(0, s.Operator, http.MethodGet, "/v1/jobs?kind=refunds-resolve&campaign_id="+elsewhere.String(), nil, nil), `"resolved":1`)
}

func TestDifferencesAreListedAndExplainedByOperators(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	one, closed := newDifference(s), newDifference(s)
	exec(s, `UPDATE payment_discrepancies SET closed_at = now() WHERE id = $1`, closed)
	explain := func(id uuid.UUID) fleet.Answer {
		return commandAs(s, s.Operator, "/v1/payment-discrepancies/"+id.String()+"/explain", `{"version":0,"reason":"sold before the restore"}`)
	}
	refused(t, "none", explain(uuid.New()), 404, "not-found")
	refused(t, "closed", explain(closed), 409, "state-conflict")
	type side struct{ Amount *int64 }
	a := explain(one)
	d := decoded[struct {
		Here, There side
		Explanation resolution
	}](s, a)
	wantAnswer(t, "explained", a, 200, `"state":"explained"`)
	if d.Explanation != (resolution{Reason: "sold before the restore", By: "operator:ops"}) || d.There.Amount == nil || d.Here.Amount != nil {
		t.Errorf("explained: %s", a.Body)
	}
	refused(t, "twice", explain(one), 409, "state-conflict")
	want(s, s.Operator, "/v1/payment-discrepancies?state=explained", one)
}

// cancelled cancels a campaign behind the back of the system. Its jobs are taken away before
// the audit.
func cancelled(s *fleet.System, id uuid.UUID) {
	s.T.Helper()
	exec(s, `UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:ops', cancel_reason = 'a fire' WHERE id = $1`, id)
	s.T.Cleanup(func() {
		exec(s, `DELETE FROM outbox_messages WHERE jobs && ARRAY(SELECT id FROM jobs WHERE campaign_id = $1 AND kind = 'campaign-cancellation')`, id)
		exec(s, `DELETE FROM jobs WHERE campaign_id = $1 AND kind = 'campaign-cancellation'`, id)
	})
}

func TestTheStreamOfACancelledCampaignStaysOpenUntilAllIsGivenBack(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(3)
	follow := func(more, lastID string) *fleet.Listener {
		return s.Listen(0, s.App, fleet.CampaignEvents(id)+more, lastID)
	}
	wants := func(l *fleet.Listener, state, refunds string) (lastID string) {
		t.Helper()
		f := l.WantEvent()
		if !strings.Contains(f.Data, `"state":"`+state+`"`) || !strings.Contains(f.Data, `"refunds":`+refunds) {
			t.Errorf("%+v, want %s, %s", f, state, refunds)
		}
		return f.ID
	}
	j := s.Post("/v1/campaigns/"+id.String()+"/cancel", map[string]string{"reason": "a fire"})
	s.Post("/v1/campaigns/"+id.String()+"/cancel", map[string]string{"reason": "again"}) // it will fail, and tells nothing
	l := follow("", "")
	wants(l, "active", "null")
	cancelled(s, id)
	wants(l, "cancelled", `{"total":0,"done":0,"waiting":0}`)
	const some, all = `{"total":3,"done":1,"waiting":0}`, `{"total":3,"done":3,"waiting":1}`
	announced(s, j.ID, "queued", `{"refunds":`+some+`}`)
	seen := wants(l, "cancelled", some)
	l.WantSilence(2)
	l.HangUp()
	back, boards := follow("", seen), follow("?positions=true", "")
	back.WantSilence(2)
	wants(boards, "cancelled", some)
	result := `{"campaign_id":"` + id.String() + `","state":"cancelled","refunded":{"wallet":1,"card":1,"external":0},"waiting":1}`
	exec(s, `UPDATE jobs SET state = 'succeeded', finished_at = clock_timestamp(), result = $2, progress = $3 WHERE id = $1`, j.ID, result, `{"refunds":`+all+`}`)
	for _, l := range []*fleet.Listener{back, boards} {
		last := wants(l, "cancelled", all)
		l.WantEnd()
		if l.Reason() != "over" {
			t.Errorf("it ends because of %s", l.Reason())
		}
		if a := follow("", last); l == back && a.Status != http.StatusNoContent {
			t.Errorf("after the last event: %d", a.Status)
		}
	}
	wantAnswer(t, "the job", s.Do(0, s.Operator, http.MethodGet, "/v1/jobs/"+j.ID.String(), nil, nil), `"refunds":`+all)
	exec(s, `DELETE FROM jobs WHERE id = $1`, j.ID) // as the sweep old-records does long after
	exec(s, `UPDATE jobs SET state = 'failed', problem = '{"code":"state-conflict"}', finished_at = clock_timestamp() WHERE kind = 'campaign-cancellation' AND campaign_id = $1`, id)
	gone := follow("", "")
	wants(gone, "cancelled", "null")
	gone.WantEnd()
}
