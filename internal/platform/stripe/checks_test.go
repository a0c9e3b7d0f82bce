package stripe_test

import (
	"bytes"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/stripe"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

func TestAnIntentIsCreatedUnconfirmedAndWaitsForItsCaptureWhereItCan(t *testing.T) {
	t.Parallel()
	server := serve(t, answer{200, intent(), nil})
	client := connect(t, settings(server.url))
	i, err := client.CreateIntent(t.Context(), wanted)
	if err != nil || i.ID != "pi_1" || i.Status != payprovider.RequiresConfirmation || i.Amount != 1000 || i.Currency != "JPY" || i.PaymentMethod != "pm_card_visa" ||
		i.Metadata["purchase_id"] != "p1" || i.Decline != nil {
		t.Fatalf("got %+v, %v", i, err)
	}
	r := server.requests()[0]
	if got := r.sent(); got != "POST /v1/payment_intents amount=1000&currency=jpy&metadata[campaign_id]=c1&metadata[purchase_id]=p1&payment_method=pm_card_visa"+
		"&payment_method_options[card][capture_method]=manual&payment_method_types[0]=card" {
		t.Errorf("sent %s", got)
	}
	for name, want := range map[string]string{
		"Idempotency-Key": "pi:p1:1", "Stripe-Version": "2026-03-25.dahlia", "Authorization": "Bearer " + testKey,
		"X-Stripe-Client-User-Agent": "", "X-Stripe-Client-Telemetry": "", "Stripe-Account": "",
	} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	others := settings(server.url)
	others.MethodTypes = "ideal, klarna" // money of such methods cannot be held
	described := wanted
	described.Description = "Two positions"
	if _, err := connect(t, others).CreateIntent(t.Context(), described); err != nil {
		t.Fatal(err)
	}
	if got := server.requests()[1].sent(); got != "POST /v1/payment_intents amount=1000&currency=jpy&description=Two positions&metadata[campaign_id]=c1&metadata[purchase_id]=p1"+
		"&payment_method=pm_card_visa&payment_method_types[0]=ideal&payment_method_types[1]=klarna" {
		t.Errorf("sent %s", got)
	}
}

// sent is what a request asks for.
func (r request) sent() string {
	form, _ := url.QueryUnescape(r.form.Encode())
	return r.method + " " + r.path + " " + form
}

func TestWhatAConfirmationACaptureACancellationAndARefundSend(t *testing.T) {
	t.Parallel()
	server := serve(t,
		answer{200, intent("status", `"requires_action"`, "next_action", `{"type":"redirect_to_url","redirect_to_url":{"url":"https://bank.example/3ds","return_url":"https://app.example/"}}`), nil},
		answer{200, intent("status", `"succeeded"`, "amount_received", "1000"), nil},
		answer{200, intent("status", `"canceled"`), nil},
		answer{200, refund("status", `"failed"`, "failure_reason", `"expired_or_canceled_card"`), nil})
	client := connect(t, settings(server.url))
	confirmed, err := client.ConfirmIntent(t.Context(), "pi_1", "confirm:1", "pm_card_visa", "https://app.example/")
	if err != nil || confirmed.Status != payprovider.RequiresAction || confirmed.ActionURL != "https://bank.example/3ds" {
		t.Errorf("got %+v, %v", confirmed, err)
	}
	captured, err := client.CaptureIntent(t.Context(), "pi_1", "capture:1", 1000)
	if err != nil || captured.Status != payprovider.Succeeded || captured.Received != 1000 {
		t.Errorf("got %+v, %v", captured, err)
	}
	if cancelled, err := client.CancelIntent(t.Context(), "pi_1", "cancel:1"); err != nil || cancelled.Status != payprovider.Canceled {
		t.Errorf("got %+v, %v", cancelled, err)
	}
	back, err := client.CreateRefund(t.Context(), payprovider.NewRefund{Key: "refund:1", IntentID: "pi_1", Amount: 1000})
	if err != nil || back.Status != payprovider.RefundFailed || back.IntentID != "pi_1" || back.Currency != "JPY" || back.Failure != "expired_or_canceled_card" {
		t.Errorf("got %+v, %v", back, err)
	}
	for i, want := range []struct{ path, key, form string }{
		{"/v1/payment_intents/pi_1/confirm", "confirm:1", "payment_method=pm_card_visa&return_url=https%3A%2F%2Fapp.example%2F"},
		{"/v1/payment_intents/pi_1/capture", "capture:1", "amount_to_capture=1000"},
		{"/v1/payment_intents/pi_1/cancel", "cancel:1", ""},
		{"/v1/refunds", "refund:1", "amount=1000&payment_intent=pi_1"},
	} {
		if r := server.requests()[i]; r.path != want.path || r.header.Get("Idempotency-Key") != want.key || r.form.Encode() != want.form {
			t.Errorf("sent %s with %s: %s", r.path, r.header.Get("Idempotency-Key"), r.form.Encode())
		}
	}
}

// Every mismatch ends after one request, is in the log, and gives back what came.
func TestWhatComesBackMustBeWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	live := settings("")
	live.Key = "rk_live_hunter2hunter2"
	create := func(c client) (string, error) { i, err := c.CreateIntent(t.Context(), wanted); return i.ID, err }
	fetch := func(c client) (string, error) { i, err := c.Intent(t.Context(), "pi_1"); return i.ID, err }
	confirm := func(c client) (string, error) {
		i, err := c.ConfirmIntent(t.Context(), "pi_1", "k", "pm_card_visa", "")
		return i.ID, err
	}
	capture := func(c client) (string, error) {
		i, err := c.CaptureIntent(t.Context(), "pi_1", "k", 1000)
		return i.ID, err
	}
	giveBack := func(c client) (string, error) {
		r, err := c.CreateRefund(t.Context(), payprovider.NewRefund{Key: "k", IntentID: "pi_1", Amount: 1000, Metadata: map[string]string{"purchase_id": "p1"}})
		return r.ID, err
	}
	fetchRefund := func(c client) (string, error) { r, err := c.Refund(t.Context(), "re_1"); return r.ID, err }
	for name, c := range map[string]struct {
		body string
		call func(client) (string, error)
		live bool
		id   string
	}{
		"live of a test key":         {body: intent("livemode", "true"), call: fetch, id: "pi_1"},
		"a test of a live key":       {body: intent(), call: fetch, live: true, id: "pi_1"},
		"live, confirmed":            {body: intent("livemode", "true"), call: confirm, id: "pi_1"},
		"another intent":             {body: intent("id", `"pi_2"`), call: fetch, id: "pi_2"},
		"another, confirmed":         {body: intent("id", `"pi_2"`), call: confirm, id: "pi_2"},
		"another amount":             {body: intent("amount", "1001"), call: create, id: "pi_1"},
		"another currency":           {body: intent("currency", `"usd"`), call: create, id: "pi_1"},
		"another purchase":           {body: intent("metadata", `{"purchase_id":"p2","campaign_id":"c1"}`), call: create, id: "pi_1"},
		"no metadata":                {body: intent("metadata", `{}`), call: create, id: "pi_1"},
		"captured less":              {body: intent("status", `"succeeded"`, "amount_received", "999"), call: capture, id: "pi_1"},
		"another amount given back":  {body: refund("amount", "999"), call: giveBack, id: "re_1"},
		"a refund of another intent": {body: refund("payment_intent", `"pi_2"`), call: giveBack, id: "re_1"},
		"a refund of another one":    {body: refund("metadata", `{"purchase_id":"p2"}`), call: giveBack, id: "re_1"},
		"another refund":             {body: refund("id", `"re_2"`), call: fetchRefund, id: "re_2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, answer{200, c.body, nil})
			with := settings(server.url)
			if c.live {
				with.Key = live.Key
			}
			client := connect(t, with)
			id, err := c.call(client)
			e := fault(t, err)
			if e.Kind != payprovider.KindMismatch || len(server.requests()) != 1 || id != c.id || e.RequestID != "req_1" {
				t.Errorf("got %q, %v after %d requests", id, err, len(server.requests()))
			}
			if log := client.log.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "not what was asked for") {
				t.Errorf("logged %q", log)
			}
			if client.counted(t, "triprize_stripe_calls_total", "mismatch") != 1 {
				t.Error("not counted")
			}
		})
	}
}

func TestTheKeyMustBeOfTheAccountOfTheSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		account string
		answer  answer
		kind    payprovider.ErrorKind
	}{
		"the account":     {"acct_1", answer{200, `{"id":"acct_1","object":"account"}`, nil}, ""},
		"anybody's":       {"", answer{200, `{"id":"acct_1","object":"account"}`, nil}, ""},
		"another account": {"acct_2", answer{200, `{"id":"acct_1","object":"account"}`, nil}, payprovider.KindMismatch},
		"a bad key":       {"acct_1", answer{401, problem("invalid_request_error", "", ""), nil}, payprovider.KindForbidden},
	} {
		server := serve(t, c.answer)
		with := settings(server.url)
		with.Account = c.account
		client := connect(t, with)
		err := client.CheckAccount(t.Context())
		if c.kind == "" && err != nil || c.kind != "" && fault(t, err).Kind != c.kind {
			t.Errorf("%s: got %v", name, err)
		}
		if c.kind != "" && !strings.Contains(client.log.String(), "level=ERROR") {
			t.Errorf("%s: logged %q", name, client.log.String())
		}
	}
}

// The probes are answered as Stripe answers, and leave nothing behind.
func TestTheProbesTellWhatTheKeyMayDoAndLeaveNoTrace(t *testing.T) {
	t.Parallel()
	sandbox, err := stripesim.New(stripesim.Settings{Key: testKey, Rate: -1, EndpointRate: -1})
	servers.NoError(t, err)
	server := httptest.NewServer(sandbox)
	t.Cleanup(func() { server.Close(); _ = sandbox.Close() })
	client := connect(t, settings(server.URL))
	all := func(value bool, other ...string) map[string]bool {
		has := map[string]bool{"payment_intent_write": value, "charge_write": value, "event_read": value, "balance_transaction_source_read": value, "dispute_read": value}
		for _, permission := range other {
			has[permission] = !value
		}
		return has
	}
	for name, c := range map[string]struct {
		key  stripesim.Key
		want map[string]bool
	}{
		"a whole key":           {stripesim.Key{}, all(true)},
		"one without refunds":   {stripesim.Key{Lacks: []string{"charge_write"}}, all(true, "charge_write")},
		"one that may not read": {stripesim.Key{Lacks: []string{"charge_read", "payment_intent_read", "event_read", "balance_transaction_source_read", "dispute_read"}}, all(false)},
		"an expired one":        {stripesim.Key{Expired: true}, all(false)},
	} {
		servers.NoError(t, sandbox.SetKey(c.key))
		has, err := client.CheckPermissions(t.Context())
		if err != nil || !maps.Equal(has, c.want) {
			t.Errorf("%s: %v, %v", name, has, err)
		}
		for permission, allowed := range c.want {
			if missing := client.counted(t, "triprize_stripe_permission_missing", permission); (missing == 0) != allowed {
				t.Errorf("%s: the gauge of %s is %g", name, permission, missing)
			}
		}
	}
	if n := strings.Count(client.log.String(), "Stripe refuses our key"); n != 1 { // of 13 calls, and of all that wait for the key
		t.Errorf("that the key is refused is logged %d times", n)
	}
	if totals := sandbox.Totals(); totals.Requests != 9 || len(totals.Intents) != 0 || totals.Events != 0 || len(totals.Refunded) != 0 {
		t.Errorf("they have made or left %+v", totals) // the sandbox counts those that it permits
	}
	servers.NoError(t, sandbox.SetAway(stripesim.Unavailable))
	if has, err := client.CheckPermissions(t.Context()); err == nil || len(has) != 0 {
		t.Errorf("Stripe is away, and tells %v", has)
	}
}

func TestCardsPayOnlyWhereStripeCountsAmountsAsWeDo(t *testing.T) {
	t.Parallel()
	for currency, want := range map[money.Currency]bool{
		"JPY": true, "USD": true, "EUR": true, "KRW": true, "XPF": true, "TWD": true,
		"ISK": false, "UGX": false, "MGA": false, "BHD": false, "KWD": false, "TND": false,
		"COP": true, "IDR": true, "LAK": true, "MRU": true, "HUF": true, "CLF": false, "UYI": false, "IQD": false,
	} {
		if minimum, got := stripe.Takes(currency); got != want || (minimum == 50) != strings.Contains("JPY USD EUR", string(currency)) {
			t.Errorf("%s: %t from %d on, want %t", currency, got, minimum, want)
		}
	}
}

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
	address, err := devstack.FreeAddress()
	servers.NoError(t, err)
	mock := exec.CommandContext(t.Context(), strings.TrimSpace(string(binary)), "-http-addr", address)
	servers.NoError(t, mock.Start())
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
	servers.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+with.Key)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(r)
	servers.NoError(t, err)
	if _ = response.Body.Close(); response.StatusCode != http.StatusBadRequest {
		t.Errorf("it would take anything: status %d", response.StatusCode)
	}
}

var errEnough = errors.New("enough")
