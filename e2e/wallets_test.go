package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
)

// fields are a JSON object.
type fields map[string]any

// walletView is what the tests read of a wallet.
type walletView struct {
	ID                       uuid.UUID
	OwnerID                  string `json:"owner_id"`
	Currency                 string
	Balance, Held, Available int64
	Version                  int64
}

// trouble is what the tests read of a problem.
type trouble struct {
	Code, Detail, About string
	Errors              []struct{ Pointer, Detail string }
}

// as reads the body of an answer.
func as[T any](t *testing.T, a answer) (v T) {
	t.Helper()
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Errorf("%v: %s: %v", a, a.body, err)
	}
	return v
}

// tell sends a command as the app, with headers in pairs and a fresh key unless one is among them.
func (s *system) tell(path string, body any, header ...string) answer {
	return s.tellAt(0, path, body, header...)
}

func (s *system) tellAt(api int, path string, body any, header ...string) answer {
	named := map[string]string{"Idempotency-Key": uuid.NewString()}
	for pair := range slices.Chunk(header, 2) {
		named[pair[0]] = pair[1]
	}
	return s.do(api, s.app, http.MethodPost, path, named, body)
}

// see reads as the app.
func (s *system) see(path string) answer { return s.do(0, s.app, http.MethodGet, path, nil, nil) }

// wallet opens a wallet in JPY over HTTP and returns its path.
func (s *system) wallet(owner string, balance int64) string {
	s.t.Helper()
	a := s.tell("/v1/wallets", fields{"owner_id": owner, "currency": "JPY", "initial_balance": balance})
	if a.status != http.StatusCreated {
		s.t.Fatalf("open: %v %s", a, a.body)
	}
	return "/v1/wallets/" + a.ID.String()
}

// expectWallet wants a wallet to have so much, of which so much is held.
func (s *system) expectWallet(path string, balance, held int64) (w walletView) {
	s.t.Helper()
	a := s.see(path)
	w = as[walletView](s.t, a)
	if w.Balance != balance || w.Held != held || w.Available != balance-held || a.header.Get("ETag") != fmt.Sprintf(`"%d"`, w.Version) {
		s.t.Errorf("%+v, ETag %s; want %d, held %d", w, a.header.Get("ETag"), balance, held)
	}
	return w
}

// refused wants a problem with this status and code.
func refused(t *testing.T, what string, a answer, status int, code string) trouble {
	t.Helper()
	if a.status != status || a.Code != code {
		t.Errorf("%s: want %d %s, got %v %s", what, status, code, a, a.body)
	}
	checkProblem(t, a)
	return as[trouble](t, a)
}

// together does n things at the same moment.
func together(n int, do func(i int)) {
	var wg sync.WaitGroup
	gun := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-gun
			do(i)
		})
	}
	close(gun)
	wg.Wait()
}

func walletID(path string) string { return strings.TrimPrefix(path, "/v1/wallets/") }

func TestAnOwnerHasOneWalletPerCurrency(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, schedulers: -1})
	funded := s.tell("/v1/wallets", fields{"owner_id": "mina", "currency": "JPY", "initial_balance": 5000, "description": "welcome"}, "Idempotency-Key", "open")
	w := as[walletView](t, funded)
	if funded.status != http.StatusCreated || funded.header.Get("Location") != "/v1/wallets/"+w.ID.String() ||
		w != (walletView{w.ID, "mina", "JPY", 5000, 0, 5000, 1}) {
		t.Errorf("with a first credit: %v %s", funded, funded.body)
	}
	empty := s.tell("/v1/wallets", fields{"owner_id": "mina", "currency": "EUR"})
	if e := as[walletView](t, empty); empty.status != http.StatusCreated || e != (walletView{e.ID, "mina", "EUR", 0, 0, 0, 0}) || e.ID == w.ID {
		t.Errorf("without: %v %s", empty, empty.body)
	}
	if again := s.tell("/v1/wallets", fields{"owner_id": "mina", "currency": "JPY", "initial_balance": 5000, "description": "welcome"}, "Idempotency-Key", "open"); again.status != http.StatusCreated ||
		string(again.body) != string(funded.body) || again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("Location") != funded.header.Get("Location") {
		t.Errorf("the same key: %v %s", again, again.body)
	}
	for i, replayed := range []string{"", "true"} {
		second := s.tell("/v1/wallets", fields{"owner_id": "mina", "currency": "JPY"}, "Idempotency-Key", "second")
		if p := refused(t, fmt.Sprint("second, ", i), second, 409, "state-conflict"); p.About != w.ID.String() || second.header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("about %q, replayed %q", p.About, second.header.Get("Idempotent-Replayed"))
		}
	}
	type list struct{ Wallets []walletView }
	for query, want := range map[string]int{"owner_id=mina": 2, "owner_id=mina&currency=JPY": 1, "owner_id=mina&currency=USD": 0, "owner_id=nobody": 0} {
		a := s.see("/v1/wallets?" + query)
		if found := as[list](t, a).Wallets; a.status != http.StatusOK || len(found) != want || found == nil {
			t.Errorf("%s: %v %s", query, a, a.body)
		}
	}
	if found := as[list](t, s.see("/v1/wallets?owner_id=mina")).Wallets; found[0].Currency != "EUR" || found[1] != w {
		t.Errorf("found %+v", found)
	}
	refused(t, "whose?", s.see("/v1/wallets"), 400, "invalid-request")
}

func TestOfManyThatOpenTheSameWalletOneDoes(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1, schedulers: -1})
	answers := make([]answer, 30)
	together(len(answers), func(i int) {
		answers[i] = s.tellAt(i, "/v1/wallets", fields{"owner_id": "otto", "currency": "JPY", "initial_balance": 10})
	})
	opened, abouts := "", make(map[string]int)
	for i, a := range answers {
		if a.status == http.StatusCreated && opened == "" {
			opened = a.ID.String()
			continue
		}
		abouts[refused(t, fmt.Sprint(i), a, 409, "state-conflict").About]++
	}
	if abouts[opened] != len(answers)-1 {
		t.Errorf("%s was opened, and named: %v", opened, abouts)
	}
	s.expectWallet("/v1/wallets/"+opened, 10, 0)
}

func TestAWalletNeverGoesBelowZero(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, schedulers: -1})
	mina := s.wallet("mina", 1000)
	credited := s.tell(mina+"/credit", fields{"amount": 500, "description": "top-up", "reference": "till-1"})
	if w := as[walletView](t, credited); credited.status != http.StatusOK || w.Balance != 1500 || w.Version != 2 || credited.header.Get("ETag") != `"2"` {
		t.Errorf("credit: %v %s", credited, credited.body)
	}
	if p := refused(t, "too much", s.tell(mina+"/debit", fields{"amount": 1501}), 409, "insufficient-funds"); !strings.Contains(p.Detail, "1500 JPY") || !strings.Contains(p.Detail, "1501 JPY") {
		t.Errorf("it says %s", p.Detail)
	}
	if w := s.expectWallet(mina, 1500, 0); w.Version != 2 {
		t.Errorf("a refused debit was an event: %+v", w)
	}
	debited := s.tell(mina+"/debit", fields{"amount": 1500})
	if w := as[walletView](t, debited); debited.status != http.StatusOK || w.Balance != 0 || w.Version != 3 || debited.header.Get("ETag") != `"3"` {
		t.Errorf("debit: %v %s", debited, debited.body)
	}
	refused(t, "from nothing", s.tell(mina+"/debit", fields{"amount": 1}), 409, "insufficient-funds")
	nobody := "/v1/wallets/" + uuid.NewString()
	refused(t, "credit of none", s.tell(nobody+"/credit", fields{"amount": 1}), 404, "not-found")
	refused(t, "debit of none", s.tell(nobody+"/debit", fields{"amount": 1}), 404, "not-found")
	refused(t, "none", s.see(nobody), 404, "not-found")
	refused(t, "no id", s.see("/v1/wallets/mine"), 404, "not-found")
	refused(t, "history of none", s.see(nobody+"/events"), 404, "not-found")
}

func TestATransferIsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, schedulers: -1})
	mina, otto := s.wallet("mina", 1000), s.wallet("otto", 100)
	euros := as[walletView](t, s.tell("/v1/wallets", fields{"owner_id": "otto", "currency": "EUR"}))
	move := func(from, to string, amount int, header ...string) answer {
		return s.tell("/v1/transfers", fields{"from": from, "to": to, "amount": amount, "description": "a gift"}, header...)
	}
	a := move(walletID(mina), walletID(otto), 300)
	moved := as[struct {
		ID, From, To           uuid.UUID
		Amount                 int64
		Currency, Reference    string
		Description, CreatedAt string
	}](t, a)
	if a.status != http.StatusCreated || moved.From.String() != walletID(mina) || moved.To.String() != walletID(otto) || moved.Amount != 300 ||
		moved.Currency != "JPY" || moved.Description != "a gift" || moved.Reference != moved.ID.String() {
		t.Errorf("%v %s", a, a.body)
	}
	if p := refused(t, "to itself", move(walletID(mina), walletID(mina), 1), 400, "invalid-request"); len(p.Errors) != 1 || p.Errors[0].Pointer != "/to" {
		t.Errorf("%+v", p)
	}
	if p := refused(t, "to another currency", move(walletID(mina), euros.ID.String(), 1), 400, "invalid-request"); len(p.Errors) != 1 || p.Errors[0].Pointer != "/to" {
		t.Errorf("%+v", p)
	}
	refused(t, "to nobody", move(walletID(mina), uuid.NewString(), 1), 404, "not-found")
	refused(t, "from nobody", move(uuid.NewString(), walletID(mina), 1), 404, "not-found")
	refused(t, "too much", move(walletID(mina), walletID(otto), 701), 409, "insufficient-funds")
	refused(t, "at an old version", move(walletID(mina), walletID(otto), 1, "If-Match", `"1"`), 412, "version-mismatch")
	s.expectWallet(mina, 700, 0)
	s.expectWallet(otto, 400, 0)
	s.expectWallet("/v1/wallets/"+euros.ID.String(), 0, 0)
}
