package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

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
func (s *system) authorize(wallet string, amount int64, seconds int) string {
	s.t.Helper()
	a := s.tell(wallet+"/authorizations", fields{"amount": amount, "expires_in_seconds": seconds, "description": "deposit"})
	if a.status != http.StatusCreated || a.header.Get("Location") != wallet+"/authorizations/"+a.ID.String() {
		s.t.Fatalf("authorize: %v %s", a, a.body)
	}
	return a.header.Get("Location")
}

// expectAuthorization wants an answer to be an authorization in this state.
func (s *system) expectAuthorization(what string, a answer, state string, captured int64) authorizationView {
	s.t.Helper()
	v := as[authorizationView](s.t, a)
	if a.status != http.StatusOK || v.State != state || v.Captured != captured {
		s.t.Errorf("%s: %v %s; want %s, %d captured", what, a, a.body, state, captured)
	}
	return v
}

func TestHeldMoneyIsCapturedInPartsAndTheRestIsGivenBack(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, schedulers: -1})
	mina := s.wallet("mina", 1000)
	first := s.authorize(mina, 800, 3600)
	v := s.expectAuthorization("as made", s.see(first), "active", 0)
	if v.Amount != 800 || v.WalletID.String() != walletID(mina) || v.Description != "deposit" || v.ExpiresAt.Sub(v.CreatedAt) != time.Hour {
		t.Errorf("%+v", v)
	}
	s.expectWallet(mina, 1000, 800)
	refused(t, "a debit of what is held", s.tell(mina+"/debit", fields{"amount": 201}), 409, "insufficient-funds")
	refused(t, "a second hold of it", s.tell(mina+"/authorizations", fields{"amount": 201}), 409, "insufficient-funds")
	s.expectAuthorization("a part", s.tell(first+"/capture", fields{"amount": 300, "reference": "part"}), "active", 300)
	s.expectWallet(mina, 700, 500)
	refused(t, "more than is left", s.tell(first+"/capture", fields{"amount": 501}), 409, "state-conflict")
	s.expectAuthorization("the rest", s.tell(first+"/capture", nil), "captured", 800)
	s.expectWallet(mina, 200, 0)
	for _, end := range []string{"/capture", "/void"} {
		refused(t, end+" of what is captured", s.tell(first+end, fields{}), 409, "state-conflict")
	}
	second := s.authorize(mina, 200, 3600)
	s.expectAuthorization("a part", s.tell(second+"/capture", fields{"amount": 50}), "active", 50)
	s.expectAuthorization("void", s.tell(second+"/void", fields{"description": "order cancelled"}), "voided", 50)
	s.expectWallet(mina, 150, 0)
	for _, end := range []string{"/capture", "/void"} {
		refused(t, end+" of what is voided", s.tell(second+end, nil), 409, "state-conflict")
	}
	otto := s.wallet("otto", 1000)
	other := otto + second[len(mina):]
	refused(t, "another wallet's", s.see(other), 404, "not-found")
	refused(t, "capture of another wallet's", s.tell(other+"/capture", nil), 404, "not-found")
	refused(t, "void of none", s.tell(mina+"/authorizations/"+uuid.NewString()+"/void", nil), 404, "not-found")
	s.expectWallet(otto, 1000, 0)
	if v := as[authorizationView](t, s.tell(otto+"/authorizations", fields{"amount": 1})); v.ExpiresAt.Sub(v.CreatedAt) != 7*24*time.Hour {
		t.Errorf("by default it holds for %s", v.ExpiresAt.Sub(v.CreatedAt))
	}
}

func TestMoneyWhoseHoldIsOverIsSpentAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: -1, schedulers: -1})
	mina, otto := s.wallet("mina", 1000), s.wallet("otto", 1000)
	needed, tidied := s.authorize(mina, 1000, 1), s.authorize(otto, 600, 1)
	refused(t, "before its time", s.tell(mina+"/debit", fields{"amount": 1}), 409, "insufficient-funds")
	eventually(t, 5*time.Second, "the debit is paid", func() bool {
		a := s.tell(mina+"/debit", fields{"amount": 900})
		return a.status == http.StatusOK
	})
	s.expectWallet(mina, 100, 0)
	s.expectAuthorization("by whoever needed the money", s.see(needed), "expired", 0)
	eventually(t, 5*time.Second, "the other one's time is over", func() bool {
		var due int
		err := s.db.QueryRow(t.Context(), `SELECT count(*) FROM authorizations WHERE state = 'active' AND expires_at <= clock_timestamp()`).Scan(&due)
		return err == nil && due == 1
	})
	a := s.do(0, s.operator, http.MethodPost, "/v1/sweeps/expired-authorizations", nil, nil)
	if report := as[sweepReport](t, a); a.status != http.StatusOK || report.Counts["expired"] != 1 || report.Error != "" {
		t.Errorf("the sweep: %v %s", a, a.body)
	}
	s.expectWallet(otto, 1000, 0)
	s.expectAuthorization("by the sweep", s.see(tidied), "expired", 0)
	refused(t, "too late", s.tell(tidied+"/capture", nil), 409, "state-conflict")
	if again := as[sweepReport](t, s.do(0, s.operator, http.MethodPost, "/v1/sweeps/expired-authorizations", nil, nil)); again.Counts["expired"] != 0 {
		t.Errorf("once more: %+v", again)
	}
}

func TestOfManyWhoCaptureTheSameMoneyOneIsPaid(t *testing.T) {
	t.Parallel()
	s := start(t, options{apis: 2, workers: -1, schedulers: -1})
	mina := s.wallet("mina", 1000)
	held := s.authorize(mina, 1000, 3600)
	answers := make([]answer, 20)
	together(len(answers), func(i int) {
		end := "/capture"
		if i%2 == 1 {
			end = "/void"
		}
		answers[i] = s.tellAt(i/2, held+end, nil)
	})
	done := ""
	for i, a := range answers {
		if a.status == http.StatusOK && done == "" {
			done = as[authorizationView](t, a).State
			continue
		}
		refused(t, fmt.Sprint(i), a, 409, "state-conflict")
	}
	s.expectWallet(mina, map[string]int64{"captured": 0, "voided": 1000}[done], 0)
}
