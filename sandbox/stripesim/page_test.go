package stripesim

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stripe/stripe-go/v85"
)

// browse sends a form to a page of the sandbox without following redirects.
func (s *shop) browse(method, page string, form url.Values) (status int, location, text string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, page, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := s.http.Transport.RoundTrip(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("Location"), string(body)
}

func TestABuyerAuthenticatesOnAPage(t *testing.T) {
	s := open(t, Settings{})
	for method, c := range map[string]struct{ outcome, status, redirect, code string }{
		"pm_card_authenticationRequired":                                {"succeed", "requires_capture", "succeeded", ""},
		"pm_card_threeDSecureRequired":                                  {"fail", "requires_payment_method", "failed", "payment_intent_authentication_failure"},
		"pm_card_authenticationRequiredChargeDeclinedInsufficientFunds": {"succeed", "requires_payment_method", "failed", "card_declined"},
	} {
		i := s.confirmed(s.create(held(method)).ID)
		if i.Status != "requires_action" || i.NextAction == nil || i.NextAction.Type != "redirect_to_url" || i.NextAction.RedirectToURL.ReturnURL != "https://shop.example/back?order=1" {
			t.Fatalf("%s: %s, %+v", method, i.Status, i.NextAction)
		}
		page := i.NextAction.RedirectToURL.URL
		if status, _, text := s.browse(http.MethodGet, page, nil); status != 200 || strings.Count(text, "<button") != 2 {
			t.Errorf("%s: %d %s", method, status, text)
		}
		if status, _, _ := s.browse(http.MethodPost, page, url.Values{"outcome": {"maybe"}}); status != 400 {
			t.Errorf("%s: nonsense: %d", method, status)
		}
		for range 2 { // a second click changes nothing
			status, location, _ := s.browse(http.MethodPost, page, url.Values{"outcome": {c.outcome}})
			u, err := url.Parse(location)
			if err != nil || status != 303 || u.Host != "shop.example" || u.Query().Get("order") != "1" || u.Query().Get("payment_intent") != i.ID ||
				u.Query().Get("payment_intent_client_secret") != i.ClientSecret || u.Query().Get("redirect_status") != c.redirect {
				t.Errorf("%s: %d %s", method, status, location)
			}
		}
		got := s.intent(i.ID)
		code := ""
		if got.LastPaymentError != nil {
			code = string(got.LastPaymentError.Code)
		}
		if string(got.Status) != c.status || code != c.code || got.NextAction != nil {
			t.Errorf("%s: %s, %s", method, got.Status, code)
		}
		if c.outcome == "succeed" && got.LatestCharge.PaymentMethodDetails.Card.ThreeDSecure == nil {
			t.Errorf("%s: the charge is not authenticated", method)
		}
	}
}

func TestAnAuthenticationOfACancelledPaymentOrOfAnEarlierTryIsOver(t *testing.T) {
	s := open(t, Settings{})
	i := s.confirmed(s.create(held("pm_card_authenticationRequired")).ID)
	first := i.NextAction.RedirectToURL.URL
	i = s.confirmed(i.ID) // another try
	second := i.NextAction.RedirectToURL.URL
	if first == second {
		t.Error("two tries have one page")
	}
	if status, _, _ := s.browse(http.MethodPost, first, url.Values{"outcome": {"succeed"}}); status != 404 {
		t.Errorf("the first try: %d", status)
	}
	if _, err := s.sc.V1PaymentIntents.Cancel(t.Context(), i.ID, nil); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := s.browse(http.MethodPost, second, url.Values{"outcome": {"succeed"}}); status != 404 {
		t.Errorf("after the cancellation: %d", status)
	}
	if status, _, _ := s.browse(http.MethodGet, s.url+"/authenticate/pi_1/auth_1", nil); status != 404 {
		t.Errorf("an invented page: %d", status)
	}
}

func TestWithoutAReturnURLThePageSaysThatItIsOver(t *testing.T) {
	s := open(t, Settings{})
	i, err := s.sc.V1PaymentIntents.Confirm(t.Context(), s.create(held("pm_card_authenticationRequired")).ID, &stripe.PaymentIntentConfirmParams{})
	if err != nil {
		t.Fatal(err)
	}
	status, location, text := s.browse(http.MethodPost, i.NextAction.RedirectToURL.URL, url.Values{"outcome": {"succeed"}})
	if status != 200 || location != "" || !strings.Contains(text, "It is over: succeeded.") {
		t.Errorf("%d %s %s", status, location, text)
	}
}

func TestABuyerReturnsToAPageThatSaysHowItEnded(t *testing.T) {
	s := open(t, Settings{})
	status, _, text := s.browse(http.MethodGet, s.url+"/returned?redirect_status=%3Cb%3E&payment_intent=pi_1", nil)
	if status != 200 || !strings.Contains(text, "The authentication of pi_1 has ended: &lt;b&gt;.") {
		t.Errorf("%d %s", status, text)
	}
}
