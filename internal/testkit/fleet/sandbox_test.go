package fleet

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

// TestMain stops the servers of the tests.
func TestMain(m *testing.M) { Main(m) }

// sell creates a payment and confirms it.
func sell(t *testing.T, s *Sandbox, method, purchase string) error {
	t.Helper()
	form := "amount=500&currency=jpy&payment_method_types[]=card&confirm=true&payment_method=" + method + "&metadata[purchase_id]=" + purchase
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/payment_intents", strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	request.SetBasicAuth(SandboxKey, "")
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

func TestASandboxBesideTheFleetIsStoppedAndGoesOnWhereItWas(t *testing.T) {
	s := NewSandbox(t, stripesim.Settings{Dir: t.TempDir()})
	came := make(chan struct{}, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came <- struct{}{} }))
	t.Cleanup(receiver.Close)
	s.SendTo(receiver.URL)
	if err := sell(t, s, "pm_card_visa", "p-1"); err != nil {
		t.Fatal(err)
	}
	<-came
	if all := s.PaymentsOf("p-1"); len(all) != 1 || all[0].Status != "succeeded" || all[0].Captured != 500 || s.Kept("jpy") != 500 {
		t.Errorf("%+v", all)
	}
	s.Stop()
	if err := sell(t, s, "pm_card_visa", "p-2"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
	s.Start()
	s.Restart()
	if err := sell(t, s, "pm_card_visa", "p-3"); err != nil || s.Kept("jpy") != 1000 || len(s.PaymentsOf("p-2")) != 0 {
		t.Errorf("%v, %d", err, s.Kept("jpy"))
	}
	servers.Eventually(t, "the webhooks of the third payment come", func() bool { return s.Totals().Unsent == 0 })
}

func TestAFleetPaysAtItsSandbox(t *testing.T) {
	s := Start(t, Options{Sandbox: &stripesim.Settings{}, Workers: -1, Schedulers: -1})
	if s.Settings.Payments.Stripe.URL != s.Sandbox.URL || s.Settings.Payments.Stripe.Key != SandboxKey || s.Settings.Payments.Stripe.WebhookSecret != WebhookSecret {
		t.Errorf("%+v", s.Settings.Payments.Stripe)
	}
}
