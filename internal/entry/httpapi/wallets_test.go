package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"

	"github.com/google/uuid"
)

// trouble is what the tests read of a problem.
type trouble struct {
	Code, Detail string
	About        struct{ Kind, ID string }
	Errors       []struct{ Pointer, Detail string }
}

// refused wants a problem with this status and code.
func refused(t *testing.T, what string, a fleet.Answer, status int, code string) trouble {
	t.Helper()
	if a.Status != status || a.Code != code {
		t.Errorf("%s: want %d %s, got %v %s", what, status, code, a, a.Body)
	}
	fleet.CheckProblem(t, a)
	return fleet.As[trouble](t, a)
}

func TestAnOwnerHasOneWalletPerCurrency(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	funded := s.Execute("/v1/wallets", fleet.Fields{"owner_id": s.User("mina"), "currency": "JPY", "initial_balance": 5000, "description": "welcome"}, "Idempotency-Key", "open")
	w := fleet.As[fleet.WalletView](t, funded)
	if funded.Status != http.StatusCreated || funded.Header.Get("Location") != "/v1/wallets/"+w.ID.String() ||
		w != (fleet.WalletView{ID: w.ID, OwnerID: s.User("mina"), Currency: "JPY", Balance: 5000, Available: 5000, Version: 1}) {
		t.Errorf("with a first credit: %v %s", funded, funded.Body)
	}
	empty := s.Execute("/v1/wallets", fleet.Fields{"owner_id": s.User("mina"), "currency": "EUR"})
	if e := fleet.As[fleet.WalletView](t, empty); empty.Status != http.StatusCreated || e != (fleet.WalletView{ID: e.ID, OwnerID: s.User("mina"), Currency: "EUR"}) || e.ID == w.ID {
		t.Errorf("without: %v %s", empty, empty.Body)
	}
	if again := s.Execute("/v1/wallets", fleet.Fields{"owner_id": s.User("mina"), "currency": "JPY", "initial_balance": 5000, "description": "welcome"}, "Idempotency-Key", "open"); again.Status != http.StatusCreated ||
		string(again.Body) != string(funded.Body) || again.Header.Get("Idempotent-Replayed") != "true" || again.Header.Get("Location") != funded.Header.Get("Location") {
		t.Errorf("the same key: %v %s", again, again.Body)
	}
	for i, replayed := range []string{"", "true"} {
		second := s.Execute("/v1/wallets", fleet.Fields{"owner_id": s.User("mina"), "currency": "JPY"}, "Idempotency-Key", "second")
		if p := refused(t, fmt.Sprint("second, ", i), second, 409, "wallet-exists"); p.About.ID != w.ID.String() || p.About.Kind != "wallet" || second.Header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("about %+v, replayed %q", p.About, second.Header.Get("Idempotent-Replayed"))
		}
	}
	type list struct{ Wallets []fleet.WalletView }
	for query, want := range map[string]int{"owner_id=" + s.User("mina"): 2, "owner_id=" + s.User("mina") + "&currency=JPY": 1, "owner_id=" + s.User("mina") + "&currency=USD": 0, "owner_id=nobody": 0} {
		a := s.Read("/v1/wallets?" + query)
		if found := fleet.As[list](t, a).Wallets; a.Status != http.StatusOK || len(found) != want || found == nil {
			t.Errorf("%s: %v %s", query, a, a.Body)
		}
	}
	if found := fleet.As[list](t, s.Read("/v1/wallets?owner_id="+s.User("mina"))).Wallets; found[1].Currency != "EUR" || found[0] != w {
		t.Errorf("found %+v", found)
	}
	refused(t, "whose?", s.Read("/v1/wallets"), 400, "invalid-request")
}

// The name of an owner is one for each client: an operator says which, and finds all.
func TestAnOperatorOpensWalletsForClients(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	shop, kiosk := s.Client("shop"), s.Client("kiosk")
	open := func(credential, client string) fleet.Answer {
		return s.Do(0, credential, http.MethodPost, "/v1/wallets", map[string]string{"Idempotency-Key": uuid.NewString()},
			fleet.Fields{"owner_id": s.User("mina"), "currency": "JPY", "client": client})
	}
	if a := open(s.App, shop); a.Status != http.StatusForbidden {
		t.Errorf("an app names a client: %v %s", a, a.Body)
	}
	for _, client := range []string{shop, kiosk} {
		if a := open(s.Operator, client); a.Status != http.StatusCreated || !fleet.Contains(a.Body, `"client":"`+client+`"`) {
			t.Fatalf("for %s: %v %s", client, a, a.Body)
		}
	}
	refused(t, "again", open(s.Operator, kiosk), 409, "wallet-exists")
	type list struct{ Wallets []struct{ Client string } }
	for credential, want := range map[string]int{s.Operator: 2, s.App: 1, s.NewKey("third"): 0} {
		if found := fleet.As[list](t, s.Do(0, credential, http.MethodGet, "/v1/wallets?owner_id="+s.User("mina"), nil, nil)).Wallets; len(found) != want || want == 1 && found[0].Client != shop {
			t.Errorf("found %+v, want %d", found, want)
		}
	}
}

func TestOfManyThatOpenTheSameWalletOneDoes(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	answers := make([]fleet.Answer, 30)
	fleet.Together(len(answers), func(i int) {
		answers[i] = s.ExecuteAt(i, "/v1/wallets", fleet.Fields{"owner_id": s.User("otto"), "currency": "JPY", "initial_balance": 10})
	})
	opened, abouts := "", make(map[string]int)
	for i, a := range answers {
		if a.Status == http.StatusCreated && opened == "" {
			opened = a.ID.String()
			continue
		}
		abouts[refused(t, fmt.Sprint(i), a, 409, "wallet-exists").About.ID]++
	}
	if abouts[opened] != len(answers)-1 {
		t.Errorf("%s was opened, and named: %v", opened, abouts)
	}
	s.ExpectWallet("/v1/wallets/"+opened, 10, 0)
}

func TestAWalletNeverGoesBelowZero(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina := s.Wallet(s.User("mina"), 1000)
	credited := s.Execute(mina+"/credit", fleet.Fields{"amount": 500, "description": "top-up", "reference": "till-1"})
	if w := fleet.As[fleet.WalletView](t, credited); credited.Status != http.StatusOK || w.Balance != 1500 || w.Version != 2 || credited.Header.Get("ETag") != `"2"` {
		t.Errorf("credit: %v %s", credited, credited.Body)
	}
	if p := refused(t, "too much", s.Execute(mina+"/debit", fleet.Fields{"amount": 1501}), 409, "insufficient-funds"); !strings.Contains(p.Detail, "1500 JPY") || !strings.Contains(p.Detail, "1501 JPY") {
		t.Errorf("it says %s", p.Detail)
	}
	if w := s.ExpectWallet(mina, 1500, 0); w.Version != 2 {
		t.Errorf("a refused debit was an event: %+v", w)
	}
	debited := s.Execute(mina+"/debit", fleet.Fields{"amount": 1500})
	if w := fleet.As[fleet.WalletView](t, debited); debited.Status != http.StatusOK || w.Balance != 0 || w.Version != 3 || debited.Header.Get("ETag") != `"3"` {
		t.Errorf("debit: %v %s", debited, debited.Body)
	}
	refused(t, "from nothing", s.Execute(mina+"/debit", fleet.Fields{"amount": 1}), 409, "insufficient-funds")
	nobody := "/v1/wallets/" + uuid.NewString()
	refused(t, "credit of none", s.Execute(nobody+"/credit", fleet.Fields{"amount": 1}), 404, "not-found")
	refused(t, "debit of none", s.Execute(nobody+"/debit", fleet.Fields{"amount": 1}), 404, "not-found")
	refused(t, "none", s.Read(nobody), 404, "not-found")
	refused(t, "no id", s.Read("/v1/wallets/mine"), 404, "not-found")
	refused(t, "history of none", s.Read(nobody+"/events"), 404, "not-found")
}

func TestATransferIsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina, otto := s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 100)
	euros := fleet.As[fleet.WalletView](t, s.Execute("/v1/wallets", fleet.Fields{"owner_id": s.User("otto"), "currency": "EUR"}))
	move := func(from, to string, amount int, header ...string) fleet.Answer {
		return s.Execute("/v1/transfers", fleet.Fields{"from": from, "to": to, "amount": amount, "description": "a gift"}, header...)
	}
	a := move(fleet.WalletID(mina), fleet.WalletID(otto), 300)
	moved := fleet.As[struct {
		ID, From, To           uuid.UUID
		Amount                 int64
		Currency, Reference    string
		Description, CreatedAt string
	}](t, a)
	if a.Status != http.StatusCreated || moved.From.String() != fleet.WalletID(mina) || moved.To.String() != fleet.WalletID(otto) || moved.Amount != 300 ||
		moved.Currency != "JPY" || moved.Description != "a gift" || moved.Reference != moved.ID.String() {
		t.Errorf("%v %s", a, a.Body)
	}
	if p := refused(t, "to itself", move(fleet.WalletID(mina), fleet.WalletID(mina), 1), 400, "invalid-request"); len(p.Errors) != 1 || p.Errors[0].Pointer != "/to" {
		t.Errorf("%+v", p)
	}
	if p := refused(t, "to another currency", move(fleet.WalletID(mina), euros.ID.String(), 1), 400, "invalid-request"); len(p.Errors) != 1 || p.Errors[0].Pointer != "/to" {
		t.Errorf("%+v", p)
	}
	refused(t, "to nobody", move(fleet.WalletID(mina), uuid.NewString(), 1), 404, "not-found")
	refused(t, "from nobody", move(uuid.NewString(), fleet.WalletID(mina), 1), 404, "not-found")
	refused(t, "too much", move(fleet.WalletID(mina), fleet.WalletID(otto), 701), 409, "insufficient-funds")
	refused(t, "at an old version", move(fleet.WalletID(mina), fleet.WalletID(otto), 1, "If-Match", `"1"`), 412, "version-mismatch")
	s.ExpectWallet(mina, 700, 0)
	s.ExpectWallet(otto, 400, 0)
	s.ExpectWallet("/v1/wallets/"+euros.ID.String(), 0, 0)
}
