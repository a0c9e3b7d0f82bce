package httpapi_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
)

func TestATableIsSentHoweverItsMediaTypeIsWritten(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	path := s.URLs[0] + "/v1/campaigns/" + s.Campaign(3).String() + "/purchases"
	for _, accept := range []string{"text/csv", "Text/CSV", "text/csv; charset=utf-8", "TEXT/csv;charset=UTF-8;q=0.9, application/json;q=0.5", "image/png, text/*"} {
		head, body, err := plain(t, http.MethodGet, path, map[string]string{"Authorization": "Bearer " + s.App, "Accept": accept})
		if err != nil || head.StatusCode != http.StatusOK || head.Header.Get("Content-Type") != "text/csv; charset=utf-8; header=present" {
			t.Errorf("%s: %v %s, %v", accept, head, body, err)
		}
	}
}

func TestAUUIDInCapitalsIsTheSameRequest(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	mina, otto := s.Wallet(s.User("mina"), 1000), s.Wallet(s.User("otto"), 0)
	key := uuid.NewString()
	var first fleet.Answer
	for i, spell := range []func(string) string{strings.ToLower, strings.ToUpper} {
		a := s.Execute("/v1/transfers", fleet.Fields{"from": spell(fleet.WalletID(mina)), "to": spell(fleet.WalletID(otto)), "amount": 100}, "Idempotency-Key", key)
		if a.Status != http.StatusCreated || i > 0 && !bytes.Equal(a.Body, first.Body) {
			t.Errorf("%v %s, first %s", a, a.Body, first.Body)
		}
		first = a
		if a := s.Execute("/v1/wallets/"+spell(fleet.WalletID(mina))+"/debit", fleet.Fields{"amount": 1}, "Idempotency-Key", key+"-debit"); a.Status != http.StatusOK {
			t.Errorf("%v %s", a, a.Body)
		}
	}
	s.ExpectWallet(mina, 899, 0)
	s.ExpectWallet(otto, 100, 0)
}

func TestATimeInSmallLettersIsTheSameTime(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	body, key := fleet.CampaignBody(3), map[string]string{"Idempotency-Key": uuid.NewString()}
	var made [2]fleet.Answer
	for i, moment := range []string{"2030-01-02T03:04:05.5Z", "2030-01-02t03:04:05.5z"} {
		body["sale_ends_at"] = moment
		made[i] = s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns", key, body)
		if made[i].Status != http.StatusCreated || !fleet.Contains(made[i].Body, `"sale_ends_at":"2030-01-02T03:04:05.5Z"`) {
			t.Errorf("%s: %v %s", moment, made[i], made[i].Body)
		}
	}
	if made[0].ID != made[1].ID {
		t.Error("they were two requests")
	}
}

func TestWhoForgetsTheBodyIsToldWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	for path, field := range map[string]string{"/v1/campaigns": "/currency", "/v1/campaigns/" + s.Campaign(3).String() + "/purchases": "/user_id", "/v1/transfers": "/amount"} {
		a := s.Do(0, s.Operator, http.MethodPost, path, map[string]string{"Idempotency-Key": uuid.NewString()}, nil)
		if p := refused(t, path, a, 400, "invalid-request"); p.Detail != "the body is empty" || !fleet.Contains(a.Body, `{"pointer":"`+field+`","detail":"is required"}`) {
			t.Errorf("%s: %s", path, a.Body)
		}
	}
}

func TestARefusalNamesTheCredentials(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, fleet.Trusting)
	a := s.Do(0, fleet.TokenFor(t, s.User("mina"), ""), http.MethodPost, "/v1/campaigns", map[string]string{"Idempotency-Key": uuid.NewString()}, fleet.CampaignBody(3))
	if refused(t, "a user", a, 403, "forbidden"); !fleet.Contains(a.Body, `"title":"The credentials do not allow this"`) || !fleet.Contains(a.Body, "the role user may not do this") {
		t.Errorf("%s", a.Body)
	}
}

func TestACampaignWhoseSaleIsOverIsNotPublished(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	body := fleet.CampaignBody(3)
	body["sale_ends_at"], body["policies"] = time.Now().Add(-time.Hour).UTC(), fleet.Fields{"unsold": "draw"}
	path := "/v1/campaigns/" + s.Post("/v1/campaigns", body).ID.String()
	publish := func() fleet.Answer {
		return s.Do(0, s.Operator, http.MethodPost, path+"/publish", map[string]string{"Idempotency-Key": uuid.NewString()}, nil)
	}
	if p := refused(t, "an hour ago", publish(), 409, "state-conflict"); !strings.Contains(p.Detail, "sale_ends_at") || !strings.Contains(p.Detail, "(now ") {
		t.Errorf("%s", p.Detail)
	}
	if a := s.Do(0, s.Operator, http.MethodPatch, path, nil, fleet.Fields{"sale_ends_at": time.Now().Add(time.Hour).UTC()}); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	if a := publish(); a.Status != http.StatusOK {
		t.Errorf("an hour from now: %v %s", a, a.Body)
	}
}
