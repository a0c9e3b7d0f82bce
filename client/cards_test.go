//go:build go1.25

package client_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"triprize.example/client"
)

var byCard = client.PurchaseRequest{UserID: "user-1", Selection: client.Selection{Quantity: 1},
	Payment: client.PaymentDraft{Method: client.PaymentDraftMethodCard, PaymentMethod: "pm_card_visa", ReturnURL: "https://shop.example/back"}}

func TestBuyReturnsWhenTheBuyerHasToActAndWaitGoesOnToTheEnd(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		action := job(jobID, client.JobStateAwaitingAction)
		action.NextAction = &client.NextAction{Type: client.NextActionTypeRedirect, URL: "https://bank.example/3ds"}
		s.answer = func(n int, w http.ResponseWriter, r *http.Request) bool {
			switch n {
			case 1: // the time is over before the provider has answered
				hold(r, 30*time.Second)
				say(w, http.StatusAccepted, job(jobID, client.JobStateQueued))
			case 2:
				say(w, http.StatusAccepted, action)
			case 3: // the buyer takes its time
				hold(r, 30*time.Second)
				say(w, http.StatusAccepted, action)
			default:
				say(w, http.StatusOK, job(jobID, client.JobStateSucceeded))
			}
			return true
		}
		c := s.client()
		j, err := c.Buy(t.Context(), campaign, byCard)
		if err != nil || !j.AwaitsAction() || j.NextAction.URL != action.NextAction.URL {
			t.Fatalf("%+v, %v", j, err)
		}
		if body := s.seen()[0].body; !strings.Contains(body, `"payment":{"method":"card","payment_method":"pm_card_visa","return_url":"https://shop.example/back"}`) {
			t.Error(body)
		}
		if j, err = c.Wait(t.Context(), j.ID); err != nil || j.State != client.JobStateSucceeded {
			t.Errorf("%+v, %v", j, err)
		}
		var prefer []string
		for _, r := range s.seen() {
			prefer = append(prefer, r.header.Get("Prefer"))
		}
		if !slices.Equal(prefer, []string{"wait=30", "wait=30", "wait=30; until=final", "wait=30; until=final"}) {
			t.Errorf("preferred %q", prefer)
		}
	})
}

func TestAfterADeclineAnotherCardPaysThePurchase(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		declined := job(jobID, client.JobStateAwaitingAction)
		declined.PurchaseID = jobID
		declined.NextAction = &client.NextAction{Type: client.NextActionTypePaymentMethod, Decline: &client.Decline{Code: "card_declined", Message: "Your card was declined."}}
		s.answer = func(n int, w http.ResponseWriter, r *http.Request) bool {
			switch n {
			case 2: // the time is over before the provider has answered
				hold(r, 30*time.Second)
				say(w, http.StatusAccepted, job(jobID, client.JobStateQueued))
			case 4:
				say(w, http.StatusOK, job(jobID, client.JobStateSucceeded))
			default:
				say(w, http.StatusAccepted, declined)
			}
			return true
		}
		c := s.client()
		j, err := c.Buy(t.Context(), campaign, byCard)
		for range 2 { // the first one is declined, too
			if err != nil || j.NextAction == nil || j.NextAction.Decline.Message != "Your card was declined." {
				t.Fatalf("%+v, %v", j, err)
			}
			j, err = c.Pay(t.Context(), j.PurchaseID, client.PaymentTry{PaymentMethod: "pm_card_mastercard"})
		}
		if err != nil || j.State != client.JobStateSucceeded {
			t.Errorf("%+v, %v", j, err)
		}
		seen := s.seen()
		if len(seen) != 4 || seen[2].path != "/v1/jobs/"+jobID.String() {
			t.Fatalf("%+v", seen)
		}
		for _, r := range []request{seen[1], seen[3]} {
			if r.path != "/v1/purchases/"+jobID.String()+"/payment" || r.body != `{"payment_method":"pm_card_mastercard"}` ||
				r.header.Get("Prefer") != "wait=30" || r.header.Get("Idempotency-Key") == "" {
				t.Errorf("%+v", r)
			}
		}
	})
}

func TestADeclineSaysWhyAndWhatTheBuyerCanDo(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		s.answer = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"id":"` + jobID.String() + `","kind":"purchase","state":"failed","problem":{"code":"payment-declined","status":409,
				"detail":"Your card has insufficient funds.","decline_code":"insufficient_funds","advice":"try_again_later"}}`))
			return true
		}
		j, err := s.client().Buy(t.Context(), campaign, byCard)
		if err != nil {
			t.Fatal(err)
		}
		_, err = j.Purchased()
		declined, ok := asError(err)
		if !ok || declined.Code != client.CodePaymentDeclined || declined.DeclineCode != "insufficient_funds" || declined.Advice != "try_again_later" {
			t.Errorf("%+v", err)
		}
	})
}

func TestRefundsArePagedSettledAndTriedAgain(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulator) {
		s.answer = func(n int, w http.ResponseWriter, _ *http.Request) bool {
			switch n {
			case 1:
				say(w, http.StatusOK, client.RefundPage{Refunds: []client.Refund{{ID: jobID, State: client.RefundStateListed}}, NextCursor: jobID})
			case 2:
				say(w, http.StatusOK, client.RefundPage{Refunds: []client.Refund{{ID: campaign, State: client.RefundStateListed}}})
			default:
				say(w, http.StatusOK, client.Refund{ID: jobID, State: client.RefundStateResolved})
			}
			return true
		}
		c := s.client()
		var ids []client.ID
		for r, err := range c.Refunds(t.Context(), campaign, client.ListRefundsParams{State: client.RefundStateListed, Limit: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, r.ID)
		}
		if !slices.Equal(ids, []client.ID{jobID, campaign}) {
			t.Errorf("%v", ids)
		}
		if r, err := c.ResolveRefund(t.Context(), jobID, client.RefundResolutionRequest{Reason: "paid back in cash"}); err != nil || r.State != client.RefundStateResolved {
			t.Errorf("%+v, %v", r, err)
		}
		if _, err := c.RetryRefund(t.Context(), jobID); err != nil {
			t.Error(err)
		}
		requests := s.seen()
		for i, want := range []string{"/v1/campaigns/" + campaign.String() + "/refunds?limit=1&state=listed", "/v1/campaigns/" + campaign.String() + "/refunds?cursor=" + jobID.String() + "&limit=1&state=listed",
			"/v1/refunds/" + jobID.String() + "/resolve", "/v1/refunds/" + jobID.String() + "/retry"} {
			if requests[i].path != want {
				t.Errorf("request %d: %s, want %s", i, requests[i].path, want)
			}
		}
		if requests[2].body != `{"reason":"paid back in cash"}` || requests[3].header.Get("Idempotency-Key") == "" {
			t.Errorf("%+v", requests[2:])
		}
	})
}

func TestTheEndOfACampaignTellsWhatWasGivenBack(t *testing.T) {
	t.Parallel()
	over := client.Job{ID: jobID, Kind: "campaign-cancellation", State: client.JobStateSucceeded,
		Result: json.RawMessage(`{"campaign_id":"` + campaign.String() + `","state":"cancelled","refunded":{"wallet":10,"card":4,"external":2},"waiting":1}`)}
	c, err := over.CampaignCancelled()
	if err != nil || c.CampaignID != campaign || c.State != client.CampaignStateCancelled || c.Refunded.Wallet != 10 || c.Refunded.Card != 4 || c.Refunded.External != 2 || c.Waiting != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := over.Cancelled(); err == nil {
		t.Error("the cancellation of a campaign is taken for that of a purchase")
	}
}
