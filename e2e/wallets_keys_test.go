package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestAnAmountIsMovedOnTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, schedulers: -1})
	mina, otto := s.wallet("mina", 1000), s.wallet("otto", 0)
	read := s.see(mina).header.Get("ETag")
	if read != `"1"` {
		t.Fatalf("ETag %s", read)
	}
	if a := s.tell(mina+"/debit", fields{"amount": 100}, "If-Match", read); a.status != http.StatusOK || a.header.Get("ETag") != `"2"` {
		t.Errorf("the version that was read: %v, ETag %s", a, a.header.Get("ETag"))
	}
	held := s.authorize(mina, 100, 3600)
	for path, body := range map[string]fields{
		mina + "/credit": {"amount": 1}, mina + "/debit": {"amount": 1}, mina + "/authorizations": {"amount": 1},
		held + "/capture": {}, held + "/void": {}, "/v1/transfers": {"from": walletID(mina), "to": walletID(otto), "amount": 1},
	} {
		if p := refused(t, path, s.tell(path, body, "If-Match", read, "Idempotency-Key", "old"+path), 412, "version-mismatch"); !strings.Contains(p.Detail, "version 3") {
			t.Errorf("%s: the present version is not named: %s", path, p.Detail)
		}
		for _, form := range []string{"3", `W/"3"`, `"x"`, `"-1"`, `"03"`, `"9999999999999999999"`, "*"} {
			refused(t, path+" "+form, s.tell(path, body, "If-Match", form), 400, "invalid-request")
		}
	}
	s.expectWallet(mina, 900, 100)
	answers := make([]answer, 10)
	together(len(answers), func(i int) { answers[i] = s.tell(mina+"/debit", fields{"amount": 10}, "If-Match", `"3"`) })
	done := 0
	for i, a := range answers {
		if a.status == http.StatusOK {
			done++
			continue
		}
		refused(t, fmt.Sprint(i), a, 412, "version-mismatch")
	}
	if done != 1 {
		t.Errorf("%d of 10 moved on the same version", done)
	}
	s.expectWallet(mina, 890, 100)
}

func TestEveryCommandIsRepeatedAsItWasAnswered(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1, schedulers: -1})
	mina, otto := s.wallet("mina", 1000), s.wallet("otto", 0)
	captured, voided := s.authorize(mina, 100, 3600), s.authorize(mina, 100, 3600)
	transfer := func(amount int) fields {
		return fields{"from": walletID(mina), "to": walletID(otto), "amount": amount}
	}
	commands := []struct {
		path   string
		body   fields
		status int
	}{
		{"/v1/wallets", fields{"owner_id": "new", "currency": "JPY", "initial_balance": 5}, 201},
		{mina + "/credit", fields{"amount": 7}, 200}, {mina + "/debit", fields{"amount": 7}, 200},
		{"/v1/transfers", transfer(50), 201}, {mina + "/authorizations", fields{"amount": 20}, 201},
		{captured + "/capture", fields{"amount": 30}, 200}, {voided + "/void", fields{}, 200},
		// Refusals that stay what they are:
		{"/v1/wallets", fields{"owner_id": "otto", "currency": "JPY"}, 409}, {mina + "/debit", fields{"amount": 5000}, 409},
		{"/v1/transfers", transfer(5000), 409}, {mina + "/authorizations", fields{"amount": 5000}, 409}, {voided + "/capture", fields{}, 409},
		{mina + "/authorizations/" + walletID(mina) + "/void", fields{}, 404},
	}
	first := make([]answer, len(commands))
	for i, c := range commands {
		if first[i] = s.tell(c.path, c.body, "Idempotency-Key", fmt.Sprint(i)); first[i].status != c.status || first[i].header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s %v: %v %s", c.path, c.body, first[i], first[i].body)
		}
	}
	s.tell(mina+"/credit", fields{"amount": 9000}) // what was refused could be paid now
	for round := range 2 {
		for i, c := range commands {
			again := s.tellAt(round, c.path, c.body, "Idempotency-Key", fmt.Sprint(i))
			same := string(again.body) == string(first[i].body)
			if c.status >= 400 { // another request id
				a, b := as[trouble](t, again), as[trouble](t, first[i])
				same = a.Code == b.Code && a.Detail == b.Detail && a.About == b.About
			}
			if again.status != c.status || !same || again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("ETag") != first[i].header.Get("ETag") ||
				again.header.Get("Location") != first[i].header.Get("Location") {
				t.Errorf("%s %v again: %v %v\n%s\n%s", c.path, c.body, again, again.header, again.body, first[i].body)
			}
			other := fields{"description": "another"}
			for name, value := range c.body {
				other[name] = value
			}
			refused(t, c.path+" with another body", s.tell(c.path, other, "Idempotency-Key", fmt.Sprint(i)), 422, "idempotency-key-reused")
		}
	}
	s.expectWallet(mina, 1000-50-30+9000, 20+70)
	s.expectWallet(otto, 50, 0)
}

func TestOneKeyFiftyTimesInParallelIsOneCredit(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1, schedulers: -1})
	mina := s.wallet("mina", 0)
	answers := make([]answer, 50)
	together(len(answers), func(i int) {
		answers[i] = s.tellAt(i, mina+"/credit", fields{"amount": 100}, "Idempotency-Key", "a double click")
	})
	replayed := 0
	for i, a := range answers {
		if a.status != http.StatusOK || string(a.body) != string(answers[0].body) || a.header.Get("ETag") != `"1"` {
			t.Errorf("request %d: %v %s", i, a, a.body)
		}
		if a.header.Get("Idempotent-Replayed") == "true" {
			replayed++
		}
	}
	if replayed != 49 {
		t.Errorf("%d of 50 answers say that they are replays", replayed)
	}
	s.expectWallet(mina, 100, 0)
}

func TestAReferenceIsUsedOnceByAClient(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1, schedulers: -1})
	mina, otto := s.wallet("mina", 1000), s.wallet("otto", 0)
	answers := make([]answer, 20)
	together(len(answers), func(i int) { // with fresh keys
		answers[i] = s.tellAt(i, mina+"/credit", fields{"amount": 100, "reference": "till-1"})
	})
	done := 0
	for i, a := range answers {
		if a.status == http.StatusOK {
			done++
			continue
		}
		refused(t, fmt.Sprint(i), a, 409, "state-conflict")
	}
	if done != 1 {
		t.Errorf("%d of 20 were done", done)
	}
	for path, body := range map[string]fields{
		mina + "/debit": {"amount": 1}, mina + "/authorizations": {"amount": 1}, otto + "/credit": {"amount": 1},
		"/v1/transfers": {"from": walletID(mina), "to": walletID(otto), "amount": 1},
	} {
		body["reference"] = "till-1"
		if p := refused(t, path, s.tell(path, body), 409, "state-conflict"); !strings.Contains(p.Detail, "till-1") {
			t.Errorf("%s: %s", path, p.Detail)
		}
	}
	other := s.do(0, s.newKey("another-shop"), http.MethodPost, mina+"/credit", map[string]string{"Idempotency-Key": "k"}, fields{"amount": 10, "reference": "till-1"})
	if other.status != http.StatusOK {
		t.Errorf("another client's till-1: %v %s", other, other.body)
	}
	s.expectWallet(mina, 1110, 0)
}
