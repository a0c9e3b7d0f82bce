package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
)

func TestAnAmountIsMovedOnTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina, otto := s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 0)
	read := s.Read(mina).Header.Get("ETag")
	if read != `"1"` {
		t.Fatalf("ETag %s", read)
	}
	if a := s.Execute(mina+"/debit", fleet.Fields{"amount": 100}, "If-Match", read); a.Status != http.StatusOK || a.Header.Get("ETag") != `"2"` {
		t.Errorf("the version that was read: %v, ETag %s", a, a.Header.Get("ETag"))
	}
	held := authorize(s, mina, 100, 3600)
	for path, body := range map[string]fleet.Fields{
		mina + "/credit": {"amount": 1}, mina + "/debit": {"amount": 1}, mina + "/authorizations": {"amount": 1},
		held + "/capture": {}, held + "/void": {}, "/v1/transfers": {"from": fleet.WalletID(mina), "to": fleet.WalletID(otto), "amount": 1},
	} {
		if p := refused(t, path, s.Execute(path, body, "If-Match", read, "Idempotency-Key", "old"+path), 412, "version-mismatch"); !strings.Contains(p.Detail, "version 3") {
			t.Errorf("%s: the present version is not named: %s", path, p.Detail)
		}
		for _, form := range []string{"3", `W/3`, `w/"3"`, `"W/3"`, `"x"`, `"-1"`, `"03"`, `"9999999999999999999"`, "*"} {
			refused(t, path+" "+form, s.Execute(path, body, "If-Match", form), 400, "invalid-request")
		}
	}
	s.ExpectWallet(mina, 900, 100)
	for _, tag := range []string{`W/"0"`, `"0"`} { // the same request
		if a := s.Execute(otto+"/credit", fleet.Fields{"amount": 1}, "If-Match", tag, "Idempotency-Key", "weak"+otto); a.Status != http.StatusOK || a.Header.Get("ETag") != `"1"` {
			t.Errorf("If-Match %s: %v %s", tag, a, a.Body)
		}
	}
	answers := make([]fleet.Answer, 10)
	fleet.Together(len(answers), func(i int) { answers[i] = s.Execute(mina+"/debit", fleet.Fields{"amount": 10}, "If-Match", `"3"`) })
	done := 0
	for i, a := range answers {
		if a.Status == http.StatusOK {
			done++
			continue
		}
		refused(t, fmt.Sprint(i), a, 412, "version-mismatch")
	}
	if done != 1 {
		t.Errorf("%d of 10 moved on the same version", done)
	}
	s.ExpectWallet(mina, 890, 100)
}

func TestEveryCommandIsRepeatedAsItWasAnswered(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina, otto := s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 0)
	captured, voided := authorize(s, mina, 100, 3600), authorize(s, mina, 100, 3600)
	transfer := func(amount int) fleet.Fields {
		return fleet.Fields{"from": fleet.WalletID(mina), "to": fleet.WalletID(otto), "amount": amount}
	}
	commands := []struct {
		path   string
		body   fleet.Fields
		status int
	}{
		{"/v1/wallets", fleet.Fields{"owner_id": s.User("new"), "currency": "JPY", "initial_balance": 5}, 201},
		{mina + "/credit", fleet.Fields{"amount": 7}, 200}, {mina + "/debit", fleet.Fields{"amount": 7}, 200},
		{"/v1/transfers", transfer(50), 201}, {mina + "/authorizations", fleet.Fields{"amount": 20}, 201},
		{captured + "/capture", fleet.Fields{"amount": 30}, 200}, {voided + "/void", fleet.Fields{}, 200},
		// Refusals that stay what they are:
		{"/v1/wallets", fleet.Fields{"owner_id": s.User("otto"), "currency": "JPY"}, 409}, {mina + "/debit", fleet.Fields{"amount": 5000}, 409},
		{"/v1/transfers", transfer(5000), 409}, {mina + "/authorizations", fleet.Fields{"amount": 5000}, 409}, {voided + "/capture", fleet.Fields{}, 409},
		{mina + "/authorizations/" + fleet.WalletID(mina) + "/void", fleet.Fields{}, 404},
	}
	first := make([]fleet.Answer, len(commands))
	for i, c := range commands {
		if first[i] = s.Execute(c.path, c.body, "Idempotency-Key", fmt.Sprint(i)); first[i].Status != c.status || first[i].Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s %v: %v %s", c.path, c.body, first[i], first[i].Body)
		}
	}
	s.Execute(mina+"/credit", fleet.Fields{"amount": 9000}) // what was refused could be paid now
	for round := range 2 {
		for i, c := range commands {
			again := s.ExecuteAt(round, c.path, c.body, "Idempotency-Key", fmt.Sprint(i))
			same := string(again.Body) == string(first[i].Body)
			if c.status >= 400 { // another request id
				a, b := fleet.As[trouble](t, again), fleet.As[trouble](t, first[i])
				same = a.Code == b.Code && a.Detail == b.Detail && a.About == b.About
			}
			if again.Status != c.status || !same || again.Header.Get("Idempotent-Replayed") != "true" || again.Header.Get("ETag") != first[i].Header.Get("ETag") ||
				again.Header.Get("Location") != first[i].Header.Get("Location") {
				t.Errorf("%s %v again: %v %v\n%s\n%s", c.path, c.body, again, again.Header, again.Body, first[i].Body)
			}
			other := fleet.Fields{"description": "another"}
			for name, value := range c.body {
				other[name] = value
			}
			refused(t, c.path+" with another body", s.Execute(c.path, other, "Idempotency-Key", fmt.Sprint(i)), 422, "idempotency-key-reused")
		}
	}
	s.ExpectWallet(mina, 1000-50-30+9000, 20+70)
	s.ExpectWallet(otto, 50, 0)
}

func TestOneKeyFiftyTimesInParallelIsOneCredit(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina := s.Wallet(s.User("mina"), 0)
	answers := make([]fleet.Answer, 50)
	fleet.Together(len(answers), func(i int) {
		answers[i] = s.ExecuteAt(i, mina+"/credit", fleet.Fields{"amount": 100}, "Idempotency-Key", "a double click")
	})
	replayed := 0
	for i, a := range answers {
		if a.Status != http.StatusOK || string(a.Body) != string(answers[0].Body) || a.Header.Get("ETag") != `"1"` {
			t.Errorf("request %d: %v %s", i, a, a.Body)
		}
		if a.Header.Get("Idempotent-Replayed") == "true" {
			replayed++
		}
	}
	if replayed != 49 {
		t.Errorf("%d of 50 answers say that they are replays", replayed)
	}
	s.ExpectWallet(mina, 100, 0)
}

func TestAReferenceIsUsedOnceByAClient(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina, otto := s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 0)
	answers := make([]fleet.Answer, 20)
	fleet.Together(len(answers), func(i int) { // with fresh keys
		answers[i] = s.ExecuteAt(i, mina+"/credit", fleet.Fields{"amount": 100, "reference": "till-1"})
	})
	done := 0
	for i, a := range answers {
		if a.Status == http.StatusOK {
			done++
			continue
		}
		refused(t, fmt.Sprint(i), a, 409, "state-conflict")
	}
	if done != 1 {
		t.Errorf("%d of 20 were done", done)
	}
	for path, body := range map[string]fleet.Fields{
		mina + "/debit": {"amount": 1}, mina + "/authorizations": {"amount": 1}, otto + "/credit": {"amount": 1},
		"/v1/transfers": {"from": fleet.WalletID(mina), "to": fleet.WalletID(otto), "amount": 1},
	} {
		body["reference"] = "till-1"
		if p := refused(t, path, s.Execute(path, body), 409, "state-conflict"); !strings.Contains(p.Detail, "till-1") {
			t.Errorf("%s: %s", path, p.Detail)
		}
	}
	other := s.Do(0, s.Operator, http.MethodPost, mina+"/credit", map[string]string{"Idempotency-Key": "k"}, fleet.Fields{"amount": 10, "reference": "till-1"})
	if other.Status != http.StatusOK {
		t.Errorf("another client's till-1: %v %s", other, other.Body)
	}
	s.ExpectWallet(mina, 1110, 0)
}
