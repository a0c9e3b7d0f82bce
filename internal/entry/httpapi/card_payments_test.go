package httpapi_test

import (
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
	PurchaseID uuid.UUID `json:"purchase_id"`
	Phase      string
	WaitingFor *string `json:"waiting_for"`
	Resolution *struct{ Outcome, By, Reason string }
}

type cardPaymentPage struct {
	Payments   []cardPaymentView
	NextCursor *uuid.UUID `json:"next_cursor"`
}

// waits reserves a position by card, leads its payment to a phase and lets it wait. end
// concludes the payment, for the audit.
func waits(s *fleet.System, campaign uuid.UUID, phase payment.Phase, reason payment.BlockedReason) (purchase uuid.UUID, end func()) {
	s.T.Helper()
	bought, ref := fixture.Reserve(s.T, s.DB, campaign, "mina", 1, time.Hour)
	fixture.Advance(s.T, s.DB, adopted(s, bought), phase)
	exec(s, `UPDATE payments SET waiting_for = nullif($2, ''), waiting_since = CASE WHEN $2 <> '' THEN clock_timestamp() END WHERE purchase_id = $1`, bought, reason)
	return bought, func() {
		if fixture.Payment(s.T, s.DB, bought).Phase != payment.Ended {
			fixture.EndAs(s.T, s.DB, bought, payment.Expired)
		}
		fixture.Conclude(s.T, s.DB, ref)
	}
}

func TestThePaymentsThatWaitAreListedByWhatFor(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	id := s.Campaign(4)
	var operator, all []uuid.UUID
	for _, reason := range []payment.BlockedReason{payment.WaitsForOperator, payment.WaitsForTurn, payment.WaitsForOperator, "", payment.WaitsForKey, payment.WaitsForOperator} {
		bought, end := waits(s, id, payment.Capturing, reason)
		defer end()
		if reason == payment.WaitsForOperator {
			operator = append(operator, bought)
		}
		if reason != "" {
			all = append(all, bought)
		}
	}
	read := func(query string) (ids []uuid.UUID, pages int) {
		for cursor := ""; ; pages++ {
			a := s.Do(0, s.Operator, http.MethodGet, "/v1/payments?limit=2"+query+cursor, nil, nil)
			if a.Status != http.StatusOK {
				t.Fatalf("%v %s", a, a.Body)
			}
			page := decoded[cardPaymentPage](s, a)
			for _, p := range page.Payments {
				ids = append(ids, p.PurchaseID)
			}
			if page.NextCursor == nil {
				return ids, pages + 1
			}
			cursor = "&cursor=" + page.NextCursor.String()
		}
	}
	if ids, pages := read(""); !slices.Equal(ids, all) || pages != 3 {
		t.Errorf("%v on %d pages, want %v", ids, pages, all)
	}
	if ids, _ := read("&waiting_for=operator"); !slices.Equal(ids, operator) {
		t.Errorf("for an operator: %v, want %v", ids, operator)
	}
	for _, waiter := range []string{"key", "provider"} {
		if ids, _ := read("&waiting_for=" + waiter); len(ids) != 1 {
			t.Errorf("for %s: %v", waiter, ids)
		}
	}
	if a := s.Do(0, s.Operator, http.MethodGet, "/v1/payments?waiting_for=godot", nil, nil); a.Status != http.StatusBadRequest {
		t.Errorf("for nobody: %v", a)
	}
}

func TestAnOperatorLooksAgainAndSettlesAPaymentWithAReason(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, quiet))
	id := s.Campaign(4)
	waiting, endFirst := waits(s, id, payment.Capturing, payment.WaitsForOperator)
	second, endSecond := waits(s, id, payment.Capturing, "")
	defer endSecond()
	stuck, fine := waiting.String(), second.String()
	send := func(credential, path, key, body string) fleet.Answer {
		var content any
		if body != "" {
			content = fleet.RawJSON(body)
		}
		return s.Do(0, credential, http.MethodPost, "/v1/payments/"+path, map[string]string{"Idempotency-Key": key}, content)
	}
	unpaid := `{"outcome":"unpaid","reason":"the intent is gone"}`
	for name, c := range map[string]struct {
		credential, path, body string
		status                 int
		code                   string
	}{
		"an app resolves":               {s.App, stuck + "/resolve", unpaid, 403, "forbidden"},
		"an app looks again":            {s.App, stuck + "/retry", "", 403, "forbidden"},
		"none":                          {s.Operator, uuid.NewString() + "/resolve", unpaid, 404, "not-found"},
		"one that does not wait":        {s.Operator, fine + "/resolve", unpaid, 409, "state-conflict"},
		"one that does not wait, again": {s.Operator, fine + "/retry", "", 409, "state-conflict"},
		"without a reason":              {s.Operator, stuck + "/resolve", `{"outcome":"paid"}`, 400, "invalid-request"},
		"with a blank reason":           {s.Operator, stuck + "/resolve", `{"outcome":"paid","reason":" "}`, 400, "invalid-request"},
		"with a very long reason":       {s.Operator, stuck + "/resolve", `{"outcome":"paid","reason":"` + strings.Repeat("a", 501) + `"}`, 400, "invalid-request"},
		"with an unknown outcome":       {s.Operator, stuck + "/resolve", `{"outcome":"half","reason":"r"}`, 400, "invalid-request"},
		"without an outcome":            {s.Operator, stuck + "/resolve", `{"reason":"r"}`, 400, "invalid-request"},
		"with something unknown":        {s.Operator, stuck + "/resolve", `{"outcome":"paid","reason":"r","amount":1}`, 400, "invalid-request"},
	} {
		if a := send(c.credential, c.path, uuid.NewString(), c.body); a.Status != c.status || a.Refusal() != c.code {
			t.Errorf("%s: %v %s", name, a, a.Body)
		}
	}
	if a := send(s.Operator, stuck+"/retry", "k1", ""); a.Status != http.StatusOK || *decoded[cardPaymentView](s, a).WaitingFor != "operator" {
		t.Errorf("looked at again: %v %s", a, a.Body)
	}
	if n := count(s, `SELECT count(*) FROM payments WHERE purchase_id = $1 AND due_at <= clock_timestamp() AND wakes = 1`, stuck); n != 1 {
		t.Error("it is not due")
	}
	first := send(s.Operator, stuck+"/resolve", "k2", unpaid)
	again := send(s.Operator, stuck+"/resolve", "k2", unpaid)
	p := decoded[cardPaymentView](s, first)
	if first.Status != http.StatusOK || p.Phase != "ended" || p.WaitingFor != nil || p.Resolution == nil || p.Resolution.By != "operator:"+s.Client("ops") ||
		p.Resolution.Outcome != "unpaid" || p.Resolution.Reason != "the intent is gone" {
		t.Errorf("settled: %v %s", first, first.Body)
	}
	if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("with the same key: %v %s", again, again.Body)
	}
	if a := send(s.Operator, stuck+"/resolve", "k3", unpaid); a.Refusal() != "state-conflict" {
		t.Errorf("settled twice: %v", a)
	}
	timeline := func(credential string) string {
		return string(s.Do(0, credential, http.MethodGet, "/v1/purchases/"+stuck, nil, nil).Body)
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

func TestTheRefundsThatWaitForAnOperatorAreListedTogether(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	var want []uuid.UUID
	for _, c := range []struct {
		state string
		stuck bool
	}{{"failed", false}, {"pending", false}, {"canceled", false}, {"pending", true}, {"requires_action", false}, {"requires_action", true}, {"open", false}} {
		bought, _ := fixture.BuyByCard(t, s.DB, s.Campaign(3), "mina", 0, 1)
		made := insertRefund(s, bought, "card", c.state)
		exec(s, `UPDATE refunds SET stuck = $2 WHERE id = $1`, made, c.stuck)
		exec(s, `UPDATE purchases SET state = 'refunding' WHERE id = $1`, bought)
		t.Cleanup(func() { exec(s, `UPDATE purchases SET state = 'completed' WHERE id = $1`, bought) }) // before the audit
		if c.stuck || c.state == "failed" || c.state == "canceled" {
			want = append(want, made)
		}
	}
	var got []uuid.UUID
	pages := 0
	for cursor := ""; ; {
		a := s.Do(0, s.Operator, http.MethodGet, "/v1/refunds?waiting_for=operator&limit=3"+cursor, nil, nil)
		page := decoded[refundPage](s, a)
		pages++
		for _, r := range page.Refunds {
			got = append(got, r.ID)
			if r.WaitingFor == nil || *r.WaitingFor != "operator" {
				t.Errorf("%s is listed, and waits for %v", r.ID, r.WaitingFor)
			}
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + page.NextCursor.String()
	}
	if !slices.Equal(got, want) || pages != 2 {
		t.Errorf("%v on %d pages, want %v", got, pages, want)
	}
	for _, query := range []string{"", "?waiting_for=provider"} {
		if a := s.Do(0, s.Operator, http.MethodGet, "/v1/refunds"+query, nil, nil); a.Status != http.StatusBadRequest {
			t.Errorf("%q: %v", query, a)
		}
	}
}
