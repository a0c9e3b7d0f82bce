package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"triprize/internal/testkit/fleet"

	"github.com/google/uuid"
)

type authorizationView struct {
	ID               uuid.UUID
	WalletID         uuid.UUID `json:"wallet_id"`
	Amount, Captured int64
	State            string
	Description      string
	ExpiresAt        time.Time `json:"expires_at"`
	CreatedAt        time.Time `json:"created_at"`
}

// authorize holds money and returns the path of the authorization.
func authorize(s *fleet.System, wallet string, amount int64, seconds int) string {
	s.T.Helper()
	a := s.Execute(wallet+"/authorizations", fleet.Fields{"amount": amount, "expires_in_seconds": seconds, "description": "deposit"})
	if a.Status != http.StatusCreated || a.Header.Get("Location") != wallet+"/authorizations/"+a.ID.String() {
		s.T.Fatalf("authorize: %v %s", a, a.Body)
	}
	return a.Header.Get("Location")
}

// expectAuthorization wants an answer to be an authorization in this state.
func expectAuthorization(s *fleet.System, what string, a fleet.Answer, state string, captured int64) authorizationView {
	s.T.Helper()
	v := fleet.As[authorizationView](s.T, a)
	if a.Status != http.StatusOK || v.State != state || v.Captured != captured {
		s.T.Errorf("%s: %v %s; want %s, %d captured", what, a, a.Body, state, captured)
	}
	return v
}

func TestHeldMoneyIsCapturedInPartsAndTheRestIsGivenBack(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina := s.Wallet(s.User("mina"), 1000)
	first := authorize(s, mina, 800, 3600)
	v := expectAuthorization(s, "as made", s.Read(first), "active", 0)
	if v.Amount != 800 || v.WalletID.String() != fleet.WalletID(mina) || v.Description != "deposit" || v.ExpiresAt.Sub(v.CreatedAt) != time.Hour {
		t.Errorf("%+v", v)
	}
	s.ExpectWallet(mina, 1000, 800)
	refused(t, "a debit of what is held", s.Execute(mina+"/debit", fleet.Fields{"amount": 201}), 409, "insufficient-funds")
	refused(t, "a second hold of it", s.Execute(mina+"/authorizations", fleet.Fields{"amount": 201}), 409, "insufficient-funds")
	expectAuthorization(s, "a part", s.Execute(first+"/capture", fleet.Fields{"amount": 300, "reference": "part"}), "active", 300)
	s.ExpectWallet(mina, 700, 500)
	refused(t, "more than is left", s.Execute(first+"/capture", fleet.Fields{"amount": 501}), 409, "state-conflict")
	expectAuthorization(s, "the rest", s.Execute(first+"/capture", nil), "captured", 800)
	s.ExpectWallet(mina, 200, 0)
	for _, end := range []string{"/capture", "/void"} {
		refused(t, end+" of what is captured", s.Execute(first+end, fleet.Fields{}), 409, "state-conflict")
	}
	second := authorize(s, mina, 200, 3600)
	expectAuthorization(s, "a part", s.Execute(second+"/capture", fleet.Fields{"amount": 50}), "active", 50)
	expectAuthorization(s, "void", s.Execute(second+"/void", fleet.Fields{"description": "order cancelled"}), "voided", 50)
	s.ExpectWallet(mina, 150, 0)
	for _, end := range []string{"/capture", "/void"} {
		refused(t, end+" of what is voided", s.Execute(second+end, nil), 409, "state-conflict")
	}
	otto := s.Wallet(s.User("otto"), 1000)
	other := otto + second[len(mina):]
	refused(t, "another wallet's", s.Read(other), 404, "not-found")
	refused(t, "capture of another wallet's", s.Execute(other+"/capture", nil), 404, "not-found")
	refused(t, "void of none", s.Execute(mina+"/authorizations/"+uuid.NewString()+"/void", nil), 404, "not-found")
	s.ExpectWallet(otto, 1000, 0)
	if v := fleet.As[authorizationView](t, s.Execute(otto+"/authorizations", fleet.Fields{"amount": 1})); v.ExpiresAt.Sub(v.CreatedAt) != 7*24*time.Hour {
		t.Errorf("by default it holds for %s", v.ExpiresAt.Sub(v.CreatedAt))
	}
}

func TestMoneyWhoseHoldIsOverIsSpentAtOnce(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	mina, otto := s.Wallet("mina", 1000), s.Wallet("otto", 1000)
	needed, tidied := authorize(s, mina, 1000, 3600), authorize(s, otto, 600, 3600)
	refused(t, "before its time", s.Execute(mina+"/debit", fleet.Fields{"amount": 1}), 409, "insufficient-funds")
	exec(s, `UPDATE authorizations SET expires_at = clock_timestamp()`)
	if a := s.Execute(mina+"/debit", fleet.Fields{"amount": 900}); a.Status != http.StatusOK {
		t.Errorf("at its time: %v %s", a, a.Body)
	}
	s.ExpectWallet(mina, 100, 0)
	expectAuthorization(s, "by whoever needed the money", s.Read(needed), "expired", 0)
	a := s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/expired-authorizations", nil, nil)
	if report := fleet.As[fleet.SweepReport](t, a); a.Status != http.StatusOK || report.Counts["expired"] != 1 || report.Error != "" {
		t.Errorf("the sweep: %v %s", a, a.Body)
	}
	s.ExpectWallet(otto, 1000, 0)
	expectAuthorization(s, "by the sweep", s.Read(tidied), "expired", 0)
	if events := history(s, otto, "limit=1", func() {}); events[0].Kind != "expire" || events[0].DeltaHeld != -600 {
		t.Errorf("its wallet was told of %+v", events[0])
	}
	refused(t, "too late", s.Execute(tidied+"/capture", nil), 409, "state-conflict")
	if again := fleet.As[fleet.SweepReport](t, s.Do(0, s.Operator, http.MethodPost, "/v1/sweeps/expired-authorizations", nil, nil)); again.Counts["expired"] != 0 {
		t.Errorf("once more: %+v", again)
	}
}

func TestOfManyWhoCaptureTheSameMoneyOneIsPaid(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina := s.Wallet(s.User("mina"), 1000)
	held := authorize(s, mina, 1000, 3600)
	answers := make([]fleet.Answer, 20)
	fleet.Together(len(answers), func(i int) {
		end := "/capture"
		if i%2 == 1 {
			end = "/void"
		}
		answers[i] = s.ExecuteAt(i/2, held+end, nil)
	})
	done := ""
	for i, a := range answers {
		if a.Status == http.StatusOK && done == "" {
			done = fleet.As[authorizationView](t, a).State
			continue
		}
		refused(t, fmt.Sprint(i), a, 409, "state-conflict")
	}
	s.ExpectWallet(mina, map[string]int64{"captured": 0, "voided": 1000}[done], 0)
}
