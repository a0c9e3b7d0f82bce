package httpapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
)

func TestBadMovementsAreRefusedWithWhatIsWrongWithThem(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina, otto := s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 0)
	held := authorize(s, mina, 500, 3600)
	long := strings.Repeat("x", 501)
	move := `{"from":"` + fleet.WalletID(mina) + `","to":"` + fleet.WalletID(otto) + `",`
	bad := []struct{ path, body, pointer string }{
		{"/v1/wallets", `{"owner_id":"","currency":"JPY"}`, "/owner_id"},
		{"/v1/wallets", `{"owner_id":"` + strings.Repeat("o", 129) + `","currency":"JPY"}`, "/owner_id"},
		{"/v1/wallets", `{"owner_id":"a\u0000b","currency":"JPY"}`, "/owner_id"},
		{"/v1/wallets", `{"currency":"JPY"}`, "/owner_id"},
		{"/v1/wallets", `{"owner_id":"a"}`, "/currency"},
		{"/v1/wallets", `{"owner_id":"a","currency":"jpy"}`, "/currency"},
		{"/v1/wallets", `{"owner_id":"a","currency":"YEN"}`, "/currency"},
		{"/v1/wallets", `{"owner_id":"a","currency":"JPY","initial_balance":-1}`, "/initial_balance"},
		{"/v1/wallets", `{"owner_id":"a","currency":"JPY","initial_balance":1000000000001}`, "/initial_balance"},
		{"/v1/wallets", `{"owner_id":"a","currency":"JPY","initial_balance":1.5}`, "/initial_balance"},
		{"/v1/wallets", `{"owner_id":"a","currency":"JPY","balance":5}`, "/balance"},
		{mina + "/authorizations", `{"amount":1,"expires_in_seconds":0}`, "/expires_in_seconds"},
		{mina + "/authorizations", `{"amount":1,"expires_in_seconds":2592001}`, "/expires_in_seconds"},
		{held + "/capture", `{"amount":0}`, "/amount"},
		{held + "/capture", `{"amount":-1}`, "/amount"},
		{held + "/capture", `{"description":"` + long + `"}`, "/description"},
		{held + "/void", `{"amount":1}`, "/amount"},
		{held + "/void", `{"reference":"` + long + `"}`, "/reference"},
		{"/v1/transfers", `{"from":"x","to":"` + fleet.WalletID(otto) + `","amount":1}`, "/from"},
		{"/v1/transfers", `{"from":"` + fleet.WalletID(mina) + `","amount":1}`, "/to"},
		{"/v1/transfers", move + `"amount":0}`, "/amount"},
		{"/v1/transfers", move + `"amount":1,"description":"` + long + `"}`, "/description"},
	}
	for _, path := range []string{mina + "/credit", mina + "/debit", mina + "/authorizations"} {
		for _, amount := range []string{`0`, `-1`, `1.5`, `0.1`, `1e30`, `1000000000001`, `99999999999999999999`, `"1"`, `null`, `true`, `[1]`} {
			bad = append(bad, struct{ path, body, pointer string }{path, `{"amount":` + amount + `}`, "/amount"})
		}
		bad = append(bad, []struct{ path, body, pointer string }{
			{path, `{}`, "/amount"}, {path, `{"amount":1,"description":"` + long + `"}`, "/description"}, {path, `{"amount":1,"description":"a\u0000b"}`, "/description"},
			{path, `{"amount":1,"description":"a\nb"}`, "/description"}, {path, `{"amount":1,"reference":"a\u0000"}`, "/reference"},
			{path, `{"amount":1,"reference":"` + long[:181] + `"}`, "/reference"}, {path, `{"amount":1,"currency":"JPY"}`, "/currency"},
		}...)
	}
	done := func() int { return count(s, `SELECT count(*) FROM jobs WHERE client LIKE '%' || $1`, s.User("")) }
	before := done()
	for _, c := range bad {
		a := raw(s, http.MethodPost, c.path, c.body, "", "")
		named := func(e struct{ Pointer, Detail string }) bool { return e.Pointer == c.pointer && e.Detail != "" }
		if p := refused(t, c.path+" "+c.body, a, 400, "invalid-request"); !slices.ContainsFunc(p.Errors, named) {
			t.Errorf("%s %.60s: %s is not named: %s", c.path, c.body, c.pointer, a.Body)
		}
	}
	refused(t, "no key", raw(s, http.MethodPost, mina+"/credit", `{"amount":1}`, "-", ""), 400, "idempotency-key-missing")
	refused(t, "more than a double", raw(s, http.MethodPost, mina+"/credit", `{"amount":1e400}`, "", ""), 400, "invalid-request")
	refused(t, "no JSON", raw(s, http.MethodPost, mina+"/credit", `{"amount":1`, "", ""), 400, "invalid-request")
	refused(t, "text", raw(s, http.MethodPost, mina+"/credit", `{"amount":1}`, "", "text/plain"), 415, "unsupported-media-type")
	var entries int
	if err := s.DB.QueryRow(t.Context(), `SELECT count(*) FROM ledger_entries WHERE credit_wallet = ANY($1) OR debit_wallet = ANY($1)`, []string{fleet.WalletID(mina), fleet.WalletID(otto)}).Scan(&entries); err != nil || entries != 2 {
		t.Errorf("bad requests made entries: %d, %v", entries, err)
	}
	if n := done(); n != before || n == 0 {
		t.Errorf("%d commands are done, and %d were before the bad ones", n, before)
	}
	s.ExpectWallet(mina, 1000, 500)
}

func TestLargeAmountsAreExact(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	const largest = int64(1_000_000_000_000)
	mina := s.Wallet(s.User("mina"), largest)
	fleet.Together(20, func(int) {
		if a := s.Execute(mina+"/credit", fleet.Fields{"amount": largest}); a.Status != http.StatusOK {
			t.Errorf("%v %s", a, a.Body)
		}
	})
	s.ExpectWallet(mina, 21*largest, 0)
	a := s.Execute(mina+"/debit", fleet.Fields{"amount": largest})
	if w := fleet.As[fleet.WalletView](t, a); a.Status != http.StatusOK || w.Balance != 20*largest {
		t.Errorf("%v %s", a, a.Body)
	}
}
