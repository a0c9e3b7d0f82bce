package httpapi_test

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/metadata"
	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
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
	mina := s.User("mina")
	open := func(body fleet.Fields) (fleet.Answer, fleet.WalletView) {
		body["owner_id"] = mina
		a := s.Execute("/v1/wallets", body)
		return a, fleet.As[fleet.WalletView](t, a)
	}
	funded, w := open(fleet.Fields{"currency": "JPY", "initial_balance": 5000, "description": "welcome"})
	wantAnswer(t, "with a first credit", funded, 201, valued{"Location", "/v1/wallets/" + w.ID.String()})
	empty, e := open(fleet.Fields{"currency": "EUR"})
	wantAnswer(t, "without", empty, 201)
	if w != (fleet.WalletView{ID: w.ID, OwnerID: mina, Currency: "JPY", Balance: 5000, Available: 5000, Version: 1}) || e != (fleet.WalletView{ID: e.ID, OwnerID: mina, Currency: "EUR"}) || e.ID == w.ID {
		t.Errorf("with a first credit %+v, without %+v", w, e)
	}
	second, _ := open(fleet.Fields{"currency": "JPY"})
	if p := refused(t, "a second one", second, 409, "wallet-exists"); p.About.ID != w.ID.String() || p.About.Kind != "wallet" {
		t.Errorf("about %+v", p.About)
	}
	for query, want := range map[string]int{"owner_id=" + mina: 2, "owner_id=" + mina + "&currency=JPY": 1, "owner_id=" + mina + "&currency=USD": 0, "owner_id=nobody": 0} {
		a := s.Read("/v1/wallets?" + query)
		if found := fleet.As[struct{ Wallets []fleet.WalletView }](t, a).Wallets; a.Status != http.StatusOK || len(found) != want || found == nil || want > 0 && found[0] != w {
			t.Errorf("%s: %v %s", query, a, a.Body)
		}
	}
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
	refused(t, "an app names a client", open(s.App, shop), 403, "forbidden")
	for _, client := range []string{shop, kiosk} {
		mustAnswer(t, fmt.Sprintf("for %s", client), open(s.Operator, client), 201, `"client":"`+client+`"`)
	}
	refused(t, "again", open(s.Operator, kiosk), 409, "wallet-exists")
	type list struct {
		Wallets    []struct{ Client string }
		NextCursor *string `json:"next_cursor"`
	}
	for credential, want := range map[string]int{s.Operator: 2, s.App: 1, s.NewKey("third"): 0} {
		page := fleet.As[list](t, s.Do(0, credential, http.MethodGet, "/v1/wallets?limit=2&owner_id="+s.User("mina"), nil, nil)) // full for operators, and the last
		if found := page.Wallets; len(found) != want || want == 1 && found[0].Client != shop || page.NextCursor != nil {
			t.Errorf("found %+v, want %d", page, want)
		}
	}
}

func TestAWalletNeverGoesBelowZero(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina, nobody := s.Wallet(s.User("mina"), 1000), "/v1/wallets/"+uuid.NewString()
	wantAnswer(t, "credit", s.Execute(mina+"/credit", fleet.Fields{"amount": 500}), 200, `"balance":1500`, `"version":2`, valued{"ETag", `"2"`})
	if p := refused(t, "too much", s.Execute(mina+"/debit", fleet.Fields{"amount": 1501}), 409, "insufficient-funds"); !strings.Contains(p.Detail, "1500 JPY") || !strings.Contains(p.Detail, "1501 JPY") {
		t.Errorf("it says %s", p.Detail)
	}
	wantAnswer(t, "as it was", s.Read(mina), 200, `"balance":1500`, valued{"ETag", `"2"`})
	wantAnswer(t, "debit", s.Execute(mina+"/debit", fleet.Fields{"amount": 1500}), 200, `"balance":0`, `"version":3`, valued{"ETag", `"3"`})
	refused(t, "from nothing", s.Execute(mina+"/debit", fleet.Fields{"amount": 1}), 409, "insufficient-funds")
	refused(t, "credit of none", s.Execute(nobody+"/credit", fleet.Fields{"amount": 1}), 404, "not-found")
	refused(t, "none", s.Read(nobody), 404, "not-found")
	refused(t, "history of none", s.Read(nobody+"/events"), 404, "not-found")
}

func TestATransferIsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina, otto := s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 100)
	euros := s.Execute("/v1/wallets", fleet.Fields{"owner_id": s.User("otto"), "currency": "EUR"}).ID.String()
	m, o := fleet.WalletID(mina), fleet.WalletID(otto)
	move := func(from, to string, amount int) fleet.Answer {
		return s.Execute("/v1/transfers", fleet.Fields{"from": from, "to": to, "amount": amount, "description": "a gift"})
	}
	a := move(m, o, 300)
	wantAnswer(t, "moved", a, 201, `"from":"`+m+`"`, `"to":"`+o+`"`, `"amount":300`, `"currency":"JPY"`, `"description":"a gift"`, `"reference":"`+a.ID.String()+`"`)
	for _, to := range []string{m, euros} {
		if p := refused(t, "to itself, or another currency", move(m, to, 1), 400, "invalid-request"); len(p.Errors) != 1 || p.Errors[0].Pointer != "/to" {
			t.Errorf("%+v", p)
		}
	}
	refused(t, "to nobody", move(m, uuid.NewString(), 1), 404, "not-found")
	refused(t, "from nobody", move(uuid.NewString(), m, 1), 404, "not-found")
	refused(t, "too much", move(m, o, 701), 409, "insufficient-funds")
	s.ExpectWallet(mina, 700, 0)
	s.ExpectWallet(otto, 400, 0)
	s.ExpectWallet("/v1/wallets/"+euros, 0, 0)
}

// authorize holds money and returns the path of the authorization.
func authorize(s *fleet.System, wallet string, amount int64, seconds int) string {
	s.T.Helper()
	a := s.Execute(wallet+"/authorizations", fleet.Fields{"amount": amount, "expires_in_seconds": seconds, "description": "deposit"})
	mustAnswer(s.T, "authorize", a, 201, valued{"Location", wallet + "/authorizations/" + a.ID.String()})
	return a.Header.Get("Location")
}

type authorizationView struct {
	WalletID         uuid.UUID `json:"wallet_id"`
	Amount, Captured int64
	State            string
	Description      string
	ExpiresAt        time.Time `json:"expires_at"`
	CreatedAt        time.Time `json:"created_at"`
}

func TestHeldMoneyIsCapturedInPartsAndTheRestIsGivenBack(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina, otto := s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 1000)
	is := func(what string, a fleet.Answer, state string, captured int64) (v authorizationView) {
		t.Helper()
		if v = fleet.As[authorizationView](t, a); a.Status != http.StatusOK || v.State != state || v.Captured != captured {
			t.Errorf("%s: %v %s; want %s, %d captured", what, a, a.Body, state, captured)
		}
		return v
	}
	first := authorize(s, mina, 800, 3600)
	if v := is("as made", s.Read(first), "active", 0); v.Amount != 800 || v.WalletID.String() != fleet.WalletID(mina) || v.Description != "deposit" || v.ExpiresAt.Sub(v.CreatedAt) != time.Hour {
		t.Errorf("%+v", v)
	}
	s.ExpectWallet(mina, 1000, 800)
	refused(t, "a debit of what is held", s.Execute(mina+"/debit", fleet.Fields{"amount": 201}), 409, "insufficient-funds")
	is("a part", s.Execute(first+"/capture", fleet.Fields{"amount": 300}), "active", 300)
	s.ExpectWallet(mina, 700, 500)
	refused(t, "more than is left", s.Execute(first+"/capture", fleet.Fields{"amount": 501}), 409, "state-conflict")
	is("the rest", s.Execute(first+"/capture", nil), "captured", 800)
	second := authorize(s, mina, 200, 3600)
	is("a part", s.Execute(second+"/capture", fleet.Fields{"amount": 50}), "active", 50)
	is("void", s.Execute(second+"/void", fleet.Fields{"description": "order cancelled"}), "voided", 50)
	s.ExpectWallet(mina, 150, 0)
	for _, end := range []string{first + "/capture", first + "/void", second + "/capture", second + "/void"} {
		refused(t, end+" of what is over", s.Execute(end, fleet.Fields{}), 409, "state-conflict")
	}
	third := authorize(s, mina, 150, 3600)
	exec(s, `UPDATE authorizations SET expires_at = clock_timestamp() WHERE id = $1`, third[strings.LastIndex(third, "/")+1:])
	wantAnswer(t, "what is no longer held", s.Execute(mina+"/debit", fleet.Fields{"amount": 150}), 200)
	is("its time is over", s.Read(third), "expired", 0)
	if told := history(s, mina); told[len(told)-2].Kind != "expire" || told[len(told)-2].DeltaHeld != -150 {
		t.Errorf("its wallet was told of %+v", told)
	}
	refused(t, "another wallet's", s.Read(otto+second[len(mina):]), 404, "not-found")
	refused(t, "capture of another wallet's", s.Execute(otto+second[len(mina):]+"/capture", nil), 404, "not-found")
	if v := fleet.As[authorizationView](t, s.Execute(otto+"/authorizations", fleet.Fields{"amount": 1})); v.ExpiresAt.Sub(v.CreatedAt) != 7*24*time.Hour {
		t.Errorf("by default it holds for %s", v.ExpiresAt.Sub(v.CreatedAt))
	}
}

func TestOfManyWhoCaptureTheSameMoneyOneIsPaid(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina := s.Wallet(s.User("mina"), 1000)
	held := authorize(s, mina, 1000, 3600)
	done := ""
	for i, a := range fleet.AtOnce(20, func(i int) fleet.Answer { return s.ExecuteAt(i/2, held+[]string{"/capture", "/void"}[i%2], nil) }) {
		if a.Status == http.StatusOK && done == "" {
			done = fleet.As[authorizationView](t, a).State
			continue
		}
		refused(t, fmt.Sprint(i), a, 409, "state-conflict")
	}
	s.ExpectWallet(mina, map[string]int64{"captured": 0, "voided": 1000}[done], 0)
}

func TestAnAmountIsMovedOnTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina, otto := s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 0)
	read := s.Read(mina).Header.Get("ETag")
	if a := s.Execute(mina+"/debit", fleet.Fields{"amount": 100}, "If-Match", read); read != `"1"` || a.Status != http.StatusOK || a.Header.Get("ETag") != `"2"` {
		t.Errorf("the version that was read, %s: %v, ETag %s", read, a, a.Header.Get("ETag"))
	}
	held := authorize(s, mina, 100, 3600)
	for path, body := range map[string]fleet.Fields{
		mina + "/credit": {"amount": 1}, mina + "/debit": {"amount": 1}, mina + "/authorizations": {"amount": 1},
		held + "/capture": {}, held + "/void": {}, "/v1/transfers": {"from": fleet.WalletID(mina), "to": fleet.WalletID(otto), "amount": 1},
	} {
		if p := refused(t, path, s.Execute(path, body, "If-Match", read), 412, "version-mismatch"); !strings.Contains(p.Detail, "version 3") {
			t.Errorf("%s: the present version is not named: %s", path, p.Detail)
		}
		for _, form := range []string{"3", `W/3`, `w/"3"`, `"W/3"`, `"x"`, `"-1"`, `"03"`, `"9999999999999999999"`, "*"} {
			refused(t, path+" "+form, s.Execute(path, body, "If-Match", form), 400, "invalid-request")
		}
	}
	s.ExpectWallet(mina, 900, 100)
	for _, tag := range []string{`W/"0"`, `"0"`} { // the same request
		wantAnswer(t, fmt.Sprintf("If-Match %s", tag), s.Execute(otto+"/credit", fleet.Fields{"amount": 1}, "If-Match", tag, "Idempotency-Key", "weak"+otto), 200, valued{"ETag", `"1"`})
	}
	got := fleet.Count(fleet.AtOnce(10, func(int) fleet.Answer { return s.Execute(mina+"/debit", fleet.Fields{"amount": 10}, "If-Match", `"3"`) }))
	if got["version-mismatch"] != 9 {
		t.Errorf("of ten on the same version %v", got)
	}
	s.ExpectWallet(mina, 890, 100)
}

type eventView struct {
	Version                int64
	Kind                   string
	EntryID                uuid.UUID `json:"entry_id"`
	DeltaBalance           int64     `json:"delta_balance"`
	DeltaHeld              int64     `json:"delta_held"`
	Balance, Held, Amount  int64
	From, To               string
	Reference, Description string
	AuthorizationID        *uuid.UUID `json:"authorization_id"`
	PurchaseID             *uuid.UUID `json:"purchase_id"`
	Actor                  string
	At                     time.Time
	Metadata               map[string]string
}

type eventPage struct{ Events []eventView }

// history is what has happened to a wallet, oldest first.
func history(s *fleet.System, path string) []eventView {
	s.T.Helper()
	return fleet.As[eventPage](s.T, s.Read(path+"/events?from_version=1")).Events
}

// Each kind of movement keeps its reference, its description and its metadata, and its event says what it did. Where
// the answer shows what was made, it has the metadata.
func TestEveryMovementKeepsItsReferenceAndItsDescription(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, quiet))
	with := func(of string, body fleet.Fields) fleet.Fields {
		body["description"], body["metadata"] = "to "+of, map[string]string{"of": of}
		return body
	}
	opened := s.Execute("/v1/wallets", with("open", fleet.Fields{"owner_id": s.User("mina"), "currency": "JPY", "initial_balance": 1000}))
	mina, otto := "/v1/wallets/"+opened.ID.String(), s.Wallet(s.User("otto"), 0)
	held := s.Execute(mina+"/authorizations", with("authorize", fleet.Fields{"amount": 100, "reference": "r-authorize"}))
	authorization := mina + "/authorizations/" + held.ID.String()
	m, o := fleet.WalletID(mina), fleet.WalletID(otto)
	for _, c := range []struct {
		path, of string
		body     fleet.Fields
		says     string
	}{
		{mina + "/credit", "credit", fleet.Fields{"amount": 5}, `"balance":1005`}, {mina + "/debit", "debit", fleet.Fields{"amount": 6}, `"balance":999`},
		{"/v1/transfers", "transfer", fleet.Fields{"from": m, "to": o, "amount": 7}, `"metadata":{"of":"transfer"}`},
		{authorization + "/capture", "capture", fleet.Fields{"amount": 8}, `"metadata":{"of":"authorize"}`}, {authorization + "/void", "void", fleet.Fields{}, `"state":"voided"`},
	} {
		with(c.of, c.body)["reference"] = "r-" + c.of
		if a := s.Execute(c.path, c.body); a.Status >= 300 || !fleet.Contains(a.Body, c.says) {
			t.Errorf("%s: %v %s", c.path, a, a.Body)
		}
		refused(t, c.of+" with a fresh key and the same reference", s.Execute(c.path, c.body), 409, "state-conflict")
	}
	want := []eventView{
		{Version: 1, Kind: "credit", DeltaBalance: 1000, Balance: 1000, From: "funding", To: m, Amount: 1000},
		{Version: 2, Kind: "authorize", DeltaHeld: 100, Balance: 1000, Held: 100, From: m, To: "funding", Amount: 100},
		{Version: 3, Kind: "credit", DeltaBalance: 5, Balance: 1005, Held: 100, From: "funding", To: m, Amount: 5},
		{Version: 4, Kind: "debit", DeltaBalance: -6, Balance: 999, Held: 100, From: m, To: "funding", Amount: 6},
		{Version: 5, Kind: "transfer", DeltaBalance: -7, Balance: 992, Held: 100, From: m, To: o, Amount: 7},
		{Version: 6, Kind: "capture", DeltaBalance: -8, DeltaHeld: -8, Balance: 984, Held: 92, From: m, To: "funding", Amount: 8},
		{Version: 7, Kind: "void", DeltaHeld: -92, Balance: 984, From: m, To: "funding", Amount: 92},
	}
	got := history(s, mina)
	if len(got) != len(want) {
		t.Fatalf("%d events: %+v", len(got), got)
	}
	for i, e := range got {
		w := want[i]
		w.EntryID, w.AuthorizationID, w.Actor, w.At, w.Metadata = e.EntryID, e.AuthorizationID, e.Actor, e.At, map[string]string{"of": w.Kind}
		w.Reference, w.Description = "r-"+w.Kind, "to "+w.Kind
		if i == 0 {
			w.Reference, w.Description, w.Metadata = e.EntryID.String(), "to open", e.Metadata
		}
		isHeld := i == 1 || i > 4
		if !reflect.DeepEqual(e, w) || e.EntryID == uuid.Nil || e.At.IsZero() || (e.AuthorizationID != nil) != isHeld || !strings.Contains(e.Actor, ":") {
			t.Errorf("event %d:\n%+v, want\n%+v", i, e, w)
		}
	}
	if theirs := history(s, otto); len(theirs) != 1 || theirs[0].EntryID != got[4].EntryID || theirs[0].DeltaBalance != 7 || theirs[0].Balance != 7 || theirs[0].Metadata["of"] != "transfer" {
		t.Errorf("the other side: %+v", theirs)
	}
}

func TestBadMovementsAreRefusedWithWhatIsWrongWithThem(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina, otto := s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 0)
	held := authorize(s, mina, 500, 3600)
	long := strings.Repeat("x", 501)
	tooMuch := make([]string, 0, metadata.MaxBytes/metadata.MaxValue+1) // the contract bounds each pair
	for i := range cap(tooMuch) {
		tooMuch = append(tooMuch, fmt.Sprintf(`"%c":"%s"`, 'a'+i, strings.Repeat("v", metadata.MaxValue)))
	}
	given := `"metadata":{` + strings.Join(tooMuch, ",") + `}`
	move := `{"from":"` + fleet.WalletID(mina) + `","to":"` + fleet.WalletID(otto) + `",`
	campaign := "/v1/campaigns/" + s.Campaign(3).String()
	bad := [][3]string{ // path, body, pointer
		{"/v1/wallets", `{"owner_id":"a","currency":"jpy"}`, "/currency"}, {"/v1/wallets", `{"owner_id":"a","currency":"YEN"}`, "/currency"},
		{"/v1/wallets", `{"owner_id":"a","currency":"JPY","initial_balance":-1}`, "/initial_balance"}, {"/v1/wallets", `{"owner_id":"a","currency":"JPY","initial_balance":1000000000001}`, "/initial_balance"},
		{"/v1/wallets", `{"owner_id":"a","currency":"JPY","metadata":{"a/b":1}}`, "/metadata/a~1b"},
		{"/v1/wallets", `{"owner_id":"a","currency":"JPY",` + given + `}`, "/metadata"},
		{mina + "/authorizations", `{"amount":1,"expires_in_seconds":0}`, "/expires_in_seconds"}, {mina + "/authorizations", `{"amount":1,"expires_in_seconds":2592001}`, "/expires_in_seconds"},
		{held + "/capture", `{"amount":0}`, "/amount"}, {held + "/capture", `{` + given + `}`, "/metadata"}, {held + "/void", `{"amount":1}`, "/amount"}, {held + "/void", `{` + given + `}`, "/metadata"},
		{"/v1/transfers", `{"from":"x","to":"` + fleet.WalletID(otto) + `","amount":1}`, "/from"}, {"/v1/transfers", move + `"amount":0}`, "/amount"}, {"/v1/transfers", move + `"amount":1,` + given + `}`, "/metadata"},
		{campaign + "/holds", `{"user_id":"a","quantity":1,` + given + `}`, "/metadata"}, {campaign + "/purchases", strings.Replace(goodPurchase, "{", "{"+given+",", 1), "/metadata"},
		{"/v1/campaigns", `{"name":"n","currency":"JPY","layers":[{"layer":1,"positions":3,"price":1}],` + given + `}`, "/metadata"},
	}
	for _, path := range []string{mina + "/credit", mina + "/debit", mina + "/authorizations"} {
		for _, amount := range []string{`0`, `-1`, `1.5`, `0.1`, `0.99999999999999999999`, `1e30`, `1000000000001`, `99999999999999999999`, `"1"`, `null`, `true`, `[1]`} {
			bad = append(bad, [3]string{path, `{"amount":` + amount + `}`, "/amount"})
		}
		bad = append(bad, [3]string{path, `{"amount":1,"description":"` + long + `"}`, "/description"}, [3]string{path, `{"amount":1,"description":"a\nb"}`, "/description"},
			[3]string{path, `{"amount":1,"reference":"a\u0000"}`, "/reference"}, [3]string{path, `{"amount":1,"reference":"` + long[:181] + `"}`, "/reference"},
			[3]string{path, `{"amount":1,"currency":"JPY"}`, "/currency"}, [3]string{path, `{"amount":1,` + given + `}`, "/metadata"})
	}
	done := func() int { return count(s, `SELECT count(*) FROM jobs WHERE client LIKE '%' || $1`, s.User("")) }
	before := done()
	for _, c := range bad {
		a := raw(s, http.MethodPost, c[0], c[1], "", "")
		named := func(e struct{ Pointer, Detail string }) bool { return e.Pointer == c[2] && e.Detail != "" }
		if p := refused(t, c[0]+" "+c[1], a, 400, "invalid-request"); !slices.ContainsFunc(p.Errors, named) {
			t.Errorf("%s %.60s: %s is not named: %s", c[0], c[1], c[2], a.Body)
		}
	}
	refused(t, "of a change", raw(s, http.MethodPatch, campaign, `{`+given+`}`, "-", ""), 400, "invalid-request")
	refused(t, "more than a double", raw(s, http.MethodPost, mina+"/credit", `{"amount":1e400}`, "", ""), 400, "invalid-request")
	if n := done(); n != before || n == 0 {
		t.Errorf("%d commands are done, and %d were before the bad ones", n, before)
	}
	s.ExpectWallet(mina, 1000, 500)
}

func TestAPurchaseByWalletPaysExactlyAndACancellationGivesBackOnce(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, busy)
	id := s.Campaign(4)
	mina := s.Wallet(s.User("mina"), 1000)
	buy := func(user, key string, layer, quantity int) fleet.Answer {
		return s.Buy(fleet.Order{Campaign: id, User: s.User(user), Layer: layer, Quantity: quantity, Wait: true, ByWallet: true, Key: key})
	}
	bought := buy("mina", "k", 3, 2)
	mustAnswer(t, "two of 300", bought, job.Succeeded, `"amount":600`)
	paid := history(s, mina)[1]
	if paid.To != "sales" || paid.Reference != "purchase:"+bought.ID.String() || paid.Amount != 600 {
		t.Errorf("%+v", paid)
	}
	wantAnswer(t, "how it was paid", s.Read("/v1/purchases/"+bought.Result.PurchaseID.String()), `"method":"wallet","reference":"`+paid.EntryID.String()+`"`)
	for range 2 {
		wantAnswer(t, "the same key", buy("mina", "k", 3, 2), bought.ID)
	}
	wantAnswer(t, "800 of 400", buy("mina", "", 4, 2), job.Failed, coded("insufficient-funds"))
	wantAnswer(t, "without a wallet", buy("otto", "", 0, 1), job.Failed, coded("insufficient-funds"))
	s.ExpectWallet(mina, 400, 0)
	got := fleet.Count(fleet.AtOnce(20, func(i int) fleet.Answer {
		return s.Cancel(s.App, bought.Result.PurchaseID, fmt.Sprint("cancel-", i), "")
	}))
	if got["succeeded"] != 1 || got["state-conflict"] != 19 {
		t.Errorf("20 cancellations: %v", got)
	}
	var kinds []string
	for _, e := range history(s, mina) {
		kinds = append(kinds, fmt.Sprint(e.Kind, " ", e.DeltaBalance))
	}
	wantEqual(t, "the history is", strings.Join(kinds, " "), "credit 1000 purchase -600 refund 600")
	wantAnswer(t, "with the money that came back", buy("mina", "", 3, 3), job.Succeeded)
	s.ExpectWallet(mina, 100, 0)
}

// Every entry says who asked for it, and those of a purchase say which.
func TestAHistorySaysForWhichPurchaseAndForWhom(t *testing.T) {
	t.Parallel()
	s := withUsers(fleet.Shared(t, busy))
	id, user := s.Campaign(4), s.User("mina")
	mina, token := s.Wallet(user, 2000), fleet.TokenFor(t, user, "")
	post := func(credential, path string, body fleet.Fields) fleet.Answer {
		a := s.Do(0, credential, http.MethodPost, path, map[string]string{"Idempotency-Key": uuid.NewString(), "Prefer": fleet.UntilFinal}, body)
		mustAnswer(t, path, a, job.Succeeded)
		return a
	}
	bought := post(token, "/v1/campaigns/"+id.String()+"/purchases", fleet.Fields{"user_id": user, "selection": fleet.Fields{"layer": 4, "quantity": 4}, "payment": fleet.Fields{"method": "wallet"}})
	purchase := bought.Result.PurchaseID
	path := "/v1/purchases/" + purchase.String()
	part := post(s.App, path+"/cancel", fleet.Fields{"positions": []fleet.Fields{{"number": 7}}})
	post(s.Operator, path+"/cancel", fleet.Fields{})
	by := fleet.As[struct { // as the documents of those who cancel have it
		Cancellation struct{ By string }
		Partial      []struct{ By string } `json:"partial_cancellations"`
	}](t, s.Read(path))
	got := history(s, mina)
	if len(got) != 4 || !strings.HasPrefix(got[0].Actor, "app:") || !strings.HasPrefix(got[1].Actor, "user:") || !strings.HasSuffix(got[1].Actor, "/"+user) ||
		!strings.HasPrefix(by.Partial[0].By, "app:") || !strings.HasPrefix(by.Cancellation.By, "operator:") {
		t.Fatalf("%+v, cancelled by %+v", got, by)
	}
	back := "refund:" + purchase.String()
	want := []eventView{
		{Kind: "credit", Reference: got[0].Reference, Actor: got[0].Actor},
		{Kind: "purchase", Reference: "purchase:" + bought.ID.String(), PurchaseID: &purchase, Actor: got[1].Actor},
		{Kind: "refund", Reference: back + ":" + part.ID.String(), PurchaseID: &purchase, Actor: by.Partial[0].By},
		{Kind: "refund", Reference: back, PurchaseID: &purchase, Actor: by.Cancellation.By},
	}
	for i, e := range got {
		if e = (eventView{Kind: e.Kind, Reference: e.Reference, PurchaseID: e.PurchaseID, Actor: e.Actor}); !reflect.DeepEqual(e, want[i]) {
			t.Errorf("entry %d: %+v, want %+v", i, e, want[i])
		}
	}
	for i, e := range fleet.As[eventPage](t, s.Do(0, token, http.MethodGet, mina+"/events?from_version=1", nil, nil)).Events {
		if role := []string{"app", "user", "app", "operator"}[i]; i > 0 && e.Actor != role || strings.Contains(e.Actor, ":") {
			t.Errorf("she sees that it was %s", e.Actor)
		}
	}
}

func TestPurchasesOfOneUserAtOnceSpendItsMoneyOnce(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1})
	id := s.Campaign(10)
	mina := s.Wallet("mina", 2*1000+999)
	orders := s.Crowd(12, func(i int) fleet.Order {
		if i < 5 {
			return fleet.Order{Campaign: id, User: "mina", Layer: 10, ByWallet: true}
		}
		return fleet.Order{Campaign: id, User: fmt.Sprint("other-", i), Layer: 9}
	})
	s.RunWorker()
	for i := range orders {
		if orders[i] = s.AwaitJob(0, orders[i].ID); i >= 5 && orders[i].State != job.Succeeded {
			t.Errorf("another: %v", orders[i])
		}
	}
	if got := fleet.Count(orders[:5]); got["succeeded"] != 2 || got["insufficient-funds"] != 3 {
		t.Errorf("five of 1000 with 2999: %v", got)
	}
	s.ExpectWallet(mina, 999, 0)
}
