package stripe_test

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/payprovider"
	"triprize/internal/testkit/servers"
)

// startMock starts stripe-mock, which knows the whole contract of Stripe and nothing of
// states. It refuses requests that the contract does not allow.
func startMock(t *testing.T) (url string) {
	t.Helper()
	path := exec.CommandContext(t.Context(), "go", "tool", "-n", "-modfile=../../../tools/go.mod", "stripe-mock") // builds it, if need be
	var stderr bytes.Buffer
	path.Stderr = &stderr
	binary, err := path.Output()
	if err != nil {
		t.Fatal(err, stderr.String())
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	mock := exec.CommandContext(t.Context(), strings.TrimSpace(string(binary)), "-http-addr", address)
	if err := mock.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = mock.Process.Kill()
		_ = mock.Wait()
	})
	servers.Eventually(t, "stripe-mock listens", func() bool {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	return "http://" + address
}

func TestEveryCallIsOfStripesContract(t *testing.T) {
	t.Parallel()
	with := settings(startMock(t))
	with.Key = "sk_test_123"
	client := connect(t, with)
	plain := wanted
	plain.Metadata = nil
	created, err := client.CreateIntent(t.Context(), plain)
	if err != nil || !strings.HasPrefix(created.ID, "pi_") || created.Amount != 1000 || created.Currency != "JPY" {
		t.Fatalf("got %+v, %v", created, err)
	}
	if i, err := client.CreateIntent(t.Context(), wanted); i.ID == "" || fault(t, err).Kind != payprovider.KindMismatch { // it takes metadata, and does not show it
		t.Errorf("got %+v, %v", i, err)
	}
	described := plain
	described.Description = "Two positions"
	for name, call := range map[string]func() error{
		"create": func() error { _, err := client.CreateIntent(t.Context(), described); return err },
		"confirm": func() error {
			_, err := client.ConfirmIntent(t.Context(), created.ID, "confirm:1", "pm_card_visa", "https://app.example/")
			return err
		},
		"capture": func() error { _, err := client.CaptureIntent(t.Context(), created.ID, "capture:1", 1000); return err },
		"cancel":  func() error { _, err := client.CancelIntent(t.Context(), created.ID, "cancel:1"); return err },
		"fetch":   func() error { _, err := client.Intent(t.Context(), created.ID); return err },
		"balance transactions": func() error {
			return client.ListBalanceTransactions(t.Context(), time.Unix(0, 0), time.Now(), func(payprovider.BalanceTransaction) error { return errEnough })
		},
		"events": func() error {
			return client.ListEvents(t.Context(), time.Unix(0, 0), time.Now(), []string{"refund.created"}, func(payprovider.Event) error { return errEnough })
		},
		"accounts": func() error { return client.CheckAccount(t.Context()) },
	} {
		if err := call(); err != nil && !errors.Is(err, errEnough) {
			t.Errorf("%s: %v", name, err)
		}
	}
	refund, err := client.CreateRefund(t.Context(), payprovider.NewRefund{Key: "refund:1", IntentID: created.ID, Amount: 1000, Metadata: map[string]string{"purchase_id": "p1"}})
	if refund.ID == "" || err != nil && fault(t, err).Kind != payprovider.KindMismatch { // it keeps no state: the intent is another one
		t.Errorf("refund: got %+v, %v", refund, err)
	}
	if r, err := client.Refund(t.Context(), "re_1"); r.ID == "" || err != nil && fault(t, err).Kind != payprovider.KindMismatch {
		t.Errorf("fetch a refund: got %+v, %v", r, err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, with.URL+"/v1/payment_intents", strings.NewReader("amount=1000&currency=jpy&colour=red"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+with.Key)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); response.StatusCode != http.StatusBadRequest {
		t.Errorf("it would take anything: status %d", response.StatusCode)
	}
}

var errEnough = errors.New("enough")
