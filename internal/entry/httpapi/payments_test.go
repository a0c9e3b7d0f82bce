package httpapi_test

import (
	"context"
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

type cardPaymentView struct {
	Phase      string
	WaitingFor *string `json:"waiting_for"`
	Resolution *struct{ Outcome, By, Reason string }
}

// waits reserves a position by card, leads its payment to a phase and lets it wait. end
// concludes the payment, for the audit.
func waits(s *fleet.System, campaign uuid.UUID, phase payment.Phase, reason payment.BlockedReason) (purchase uuid.UUID, end func()) {
	s.T.Helper()
	bought, ref := fixture.Reserve(s.T, s.DB, campaign, "mina", 1, time.Hour)
	fixture.Advance(s.T, s.DB, adopted(s, bought), phase)
	exec(s, `UPDATE payments SET waiting_for = nullif($2, ''), waiting_since = CASE WHEN $2 <> '' THEN clock_timestamp() END WHERE purchase_id = $1`, bought, reason)
	return bought, func() {
		if fixture.Payment(after{s.T}, s.DB, bought).Phase != payment.Ended {
			fixture.EndAs(after{s.T}, s.DB, bought, payment.Expired)
		}
		fixture.Conclude(after{s.T}, s.DB, ref)
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
		asked++
		c := newCommand(s, o.OperationID, s.App)
		for _, reason := range []any{nil, "", " ", "\t", strings.Repeat("a", 501), "a\u0000", 1} {
			body := maps.Clone(c.body.(fleet.Fields))
			body["reason"] = reason
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
	unpaid := `{"outcome":"unpaid","reason":"the intent is gone"}`
	for what, c := range map[string]struct {
		path, body string
		status     int
		code       string
	}{
		"none":                          {"/v1/payments/" + uuid.NewString() + "/resolve", unpaid, 404, "not-found"},
		"one that does not wait":        {fine + "/resolve", unpaid, 409, "state-conflict"},
		"one that does not wait, again": {fine + "/retry", "", 409, "state-conflict"},
		"with an unknown outcome":       {stuck + "/resolve", `{"outcome":"half","reason":"r"}`, 400, "invalid-request"},
	} {
		refused(t, what, commandAs(s, s.Operator, c.path, c.body), c.status, c.code)
	}
	if a := commandAs(s, s.Operator, stuck+"/retry", ""); a.Status != http.StatusOK || *decoded[cardPaymentView](s, a).WaitingFor != "operator" {
		t.Errorf("looked at again: %v %s", a, a.Body)
	}
	if n := count(s, `SELECT count(*) FROM payments WHERE purchase_id = $1 AND due_at <= clock_timestamp() AND wakes = 1`, waiting); n != 1 {
		t.Error("it is not due")
	}
	settled := commandAs(s, s.Operator, stuck+"/resolve", unpaid)
	if p := decoded[cardPaymentView](s, settled); settled.Status != http.StatusOK || p.Phase != "ended" || p.WaitingFor != nil || p.Resolution == nil || p.Resolution.By != "operator:"+s.Client("ops") ||
		p.Resolution.Outcome != "unpaid" || p.Resolution.Reason != "the intent is gone" {
		t.Errorf("settled: %v %s", settled, settled.Body)
	}
	refused(t, "settled twice", commandAs(s, s.Operator, stuck+"/resolve", unpaid), 409, "state-conflict")
	timeline := func(credential string) string {
		return string(s.Do(0, credential, http.MethodGet, "/v1/purchases/"+waiting.String(), nil, nil).Body)
	}
	if body := timeline(s.App); !strings.Contains(body, `"event":"payment-resolved","detail":"unpaid, says operator:`+s.Client("ops")+`: the intent is gone"`) {
		t.Errorf("an app sees %s", body)
	}
	if body := timeline(fleet.TokenFor(t, "mina", "")); !strings.Contains(body, `"event":"payment-resolved"`) || strings.Contains(body, "operator:ops") {
		t.Errorf("its buyer sees %s", body)
	}
	endFirst()
	if body := timeline(s.App); !strings.Contains(body, `"failure":"payment-not-received"`) {
		t.Errorf("what became of it: %s", body)
	}
}

type refundView struct {
	State      string
	Resolution *struct{ By, Reason string }
}

func TestARefundIsReadTriedAgainAndSettledByThoseWhoMay(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, quiet))
	id := s.Campaign(4)
	path := "/v1/refunds/"
	listed := path + insertRefund(s, adopted(s, fixture.Buy(t, s.DB, id, "mina", 0, 1)), "external", "listed").String()
	failedID := waitingRefund(s, id, "failed", false)
	failed, mina := path+failedID.String(), fleet.TokenFor(t, "mina", "")
	reason := `{"reason":"paid back in cash"}`
	for what, c := range map[string]struct {
		credential, path, body string
		status                 int
		code                   string
	}{
		"one that is listed, again":       {s.Operator, listed + "/retry", "", 409, "state-conflict"},
		"none, again":                     {s.Operator, path + uuid.NewString() + "/retry", "", 404, "not-found"},
		"an app resolves a card":          {s.App, failed + "/resolve", reason, 403, "forbidden"},
		"an operator resolves for an app": {s.Operator, listed + "/resolve", reason, 403, "forbidden"},
		"none is resolved":                {s.App, path + uuid.NewString() + "/resolve", reason, 404, "not-found"},
	} {
		refused(t, what, commandAs(s, c.credential, c.path, c.body), c.status, c.code)
	}
	is := func(what string, a fleet.Answer, want refundView, by, because string) {
		t.Helper()
		r := decoded[refundView](s, a)
		if a.Status != http.StatusOK || r.State != want.State || (r.Resolution != nil) != (by != "") || r.Resolution != nil && (r.Resolution.By != by || r.Resolution.Reason != because) {
			t.Errorf("%s: %v %s", what, a, a.Body)
		}
	}
	is("resolved", commandAs(s, s.App, listed+"/resolve", reason), refundView{State: "resolved"}, "app:"+s.Client("shop"), "paid back in cash")
	is("as its user sees it", s.Do(0, mina, http.MethodGet, listed, nil, nil), refundView{State: "resolved"}, "app", "paid back in cash")
	refused(t, "resolved twice", commandAs(s, s.App, listed+"/resolve", reason), 409, "state-conflict")
	is("tried again", commandAs(s, s.Operator, failed+"/retry", ""), refundView{State: "open"}, "", "")
	refused(t, "resolved while it is tried", commandAs(s, s.Operator, failed+"/resolve", reason), 409, "state-conflict")
	exec(s, `UPDATE refunds SET state = 'failed' WHERE id = $1`, failedID)
	is("resolved by an operator", commandAs(s, s.Operator, failed+"/resolve", reason), refundView{State: "resolved"}, "operator:"+s.Client("ops"), "paid back in cash")

	// Those of a campaign together: of cards by operators, the others by their apps.
	elsewhere := s.Campaign(4)
	owed := path + insertRefund(s, adopted(s, fixture.Buy(t, s.DB, elsewhere, "mina", 0, 1)), "external", "listed").String()
	card := path + waitingRefund(s, elsewhere, "failed", false).String()
	all := "/v1/campaigns/" + elsewhere.String() + "/refunds/resolve"
	refused(t, "no campaign", commandAs(s, s.Operator, "/v1/campaigns/"+uuid.NewString()+"/refunds/resolve", reason), 404, "not-found")
	if a, want := commandAs(s, s.Operator, all, reason), `{"campaign_id":"`+elsewhere.String()+`","resolved":1,"more":false}`; a.Status != http.StatusOK || string(a.Body) != want {
		t.Errorf("an operator: %v %s, want %s", a, a.Body, want)
	}
	is("of a card", s.Read(card), refundView{State: "resolved"}, "operator:"+s.Client("ops"), "paid back in cash")
	is("the other", s.Read(owed), refundView{State: "listed"}, "", "")
	if a := commandAs(s, s.App, all, reason); !strings.Contains(string(a.Body), `"resolved":1`) {
		t.Errorf("an app: %v %s", a, a.Body)
	}
	is("the other", s.Read(owed), refundView{State: "resolved"}, "app:"+s.Client("shop"), "paid back in cash")
	if jobs := s.Do(0, s.Operator, http.MethodGet, "/v1/jobs?kind=refunds-resolve&campaign_id="+elsewhere.String(), nil, nil); !strings.Contains(string(jobs.Body), `"resolved":1`) {
		t.Errorf("its job: %v %s", jobs, jobs.Body)
	}
}

func TestDifferencesAreListedAndExplainedByOperators(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	one, closed := newDifference(s), newDifference(s)
	exec(s, `UPDATE payment_differences SET closed_at = now() WHERE id = $1`, closed)
	explain := func(id uuid.UUID) fleet.Answer {
		return commandAs(s, s.Operator, "/v1/payment-differences/"+id.String()+"/explain", `{"reason":"sold before the restore"}`)
	}
	refused(t, "none", explain(uuid.New()), 404, "not-found")
	refused(t, "closed", explain(closed), 409, "state-conflict")
	type side struct{ Amount *int64 }
	a := explain(one)
	d := decoded[struct {
		State       string
		Here, There side
		Explanation *struct{ By, Reason string }
	}](s, a)
	if a.Status != http.StatusOK || d.State != "explained" || d.Explanation == nil || d.Explanation.Reason != "sold before the restore" || d.Explanation.By != "operator:ops" || d.There.Amount == nil || d.Here.Amount != nil {
		t.Errorf("%v %s", a, a.Body)
	}
	refused(t, "twice", explain(one), 409, "state-conflict")
	want(s, s.Operator, "/v1/payment-differences?state=explained", one)
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
	j := s.Post("/v1/campaigns/"+id.String()+"/cancel", map[string]string{"reason": "a fire"})
	s.Post("/v1/campaigns/"+id.String()+"/cancel", map[string]string{"reason": "again"}) // it will fail, and tells nothing
	l := s.Listen(0, s.App, fleet.CampaignEvents(id), "")
	if f := l.WantEvent(); !strings.Contains(f.Data, `"state":"active"`) || !strings.Contains(f.Data, `"refunds":null`) {
		t.Errorf("%+v", f)
	}
	cancelled(s, id)
	if f := l.WantEvent(); !strings.Contains(f.Data, `"state":"cancelled"`) || !strings.Contains(f.Data, `"refunds":{"total":0,"done":0,"waiting":0}`) {
		t.Errorf("%+v", f)
	}
	announced(s, j.ID, "queued", `{"refunds":{"total":3,"done":1,"waiting":0}}`)
	seen := l.WantEvent()
	if !strings.Contains(seen.Data, `"refunds":{"total":3,"done":1,"waiting":0}`) {
		t.Errorf("%+v", seen)
	}
	l.WantSilence(2)
	l.HangUp()
	back := s.Listen(0, s.App, fleet.CampaignEvents(id), seen.ID)
	back.WantSilence(2)
	boards := s.Listen(0, s.App, fleet.CampaignEvents(id)+"?positions=true", "")
	if f := boards.WantEvent(); !strings.Contains(f.Data, `"refunds":{"total":3,"done":1,"waiting":0}`) {
		t.Errorf("with the board: %+v", f)
	}
	result := `{"campaign_id":"` + id.String() + `","state":"cancelled","refunded":{"wallet":1,"card":1,"external":0},"waiting":1}`
	exec(s, `UPDATE jobs SET state = 'succeeded', finished_at = clock_timestamp(), result = $2, progress = '{"refunds":{"total":3,"done":3,"waiting":1}}' WHERE id = $1`, j.ID, result)
	for _, l := range []*fleet.Listener{back, boards} {
		last := l.WantEvent()
		if !strings.Contains(last.Data, `"refunds":{"total":3,"done":3,"waiting":1}`) {
			t.Errorf("%+v", last)
		}
		l.WantEnd()
		if l.Reason() != "over" {
			t.Errorf("it ends because of %s", l.Reason())
		}
		if a := s.Listen(0, s.App, fleet.CampaignEvents(id), last.ID); l == back && a.Status != http.StatusNoContent {
			t.Errorf("after the last event: %d", a.Status)
		}
	}
	if r := decoded[jobView](s, s.Do(0, s.Operator, http.MethodGet, "/v1/jobs/"+j.ID.String(), nil, nil)).Refunds; r == nil || r.Done != 3 || r.Waiting != 1 {
		t.Errorf("the job says %+v", r)
	}
	exec(s, `DELETE FROM jobs WHERE id = $1`, j.ID) // as the sweep old-records does long after
	exec(s, `UPDATE jobs SET state = 'failed', problem = '{"code":"state-conflict"}', finished_at = clock_timestamp() WHERE kind = 'campaign-cancellation' AND campaign_id = $1`, id)
	gone := s.Listen(0, s.App, fleet.CampaignEvents(id), "")
	if f := gone.WantEvent(); !strings.Contains(f.Data, `"refunds":null`) {
		t.Errorf("long after: %+v", f)
	}
	gone.WantEnd()
}

func TestOnlyOperatorsSeeWhoCancelledACampaign(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	id := s.Campaign(3)
	cancelled(s, id)
	for _, path := range []string{"/v1/campaigns/" + id.String(), "/v1/campaigns?state=cancelled&limit=1&" + from(id)} {
		for who, credential := range map[string]string{"operator": s.Operator, "app": s.App} {
			a := s.Do(0, credential, http.MethodGet, path, nil, nil)
			if body := string(a.Body); !strings.Contains(body, `"cancel_reason":"a fire"`) || !strings.Contains(body, `"cancelled_at":"2`) ||
				strings.Contains(body, `"cancelled_by":"operator:ops"`) != (who == "operator") {
				t.Errorf("%s, %s: %s", path, who, body)
			}
		}
	}
}
