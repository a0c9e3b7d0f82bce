package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/key"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// An api dies ten times between a yes and its effect, or after the effect and before the commit: each request is still
// pending then, and approved again it has one effect.
func TestAnApprovalOfAKilledAPIHasOneEffect(t *testing.T) {
	t.Parallel()
	settings := []string{"TRIPRIZE_APPROVALS_REQUIRED=wallet.credit,campaign.cancel", "TRIPRIZE_CONSOLE_OIDC_ISSUER=https://accounts.test",
		"TRIPRIZE_CONSOLE_OIDC_CLIENT_ID=triprize", "TRIPRIZE_CONSOLE_OIDC_ROLES_APPROVER=finance"}
	s := fleet.Start(t, fleet.Options{Binaries: true, Env: settings})
	sessions := key.NewSessions(s.DB, key.NewVerifier(s.DB, key.CacheTTL), s.Settings.Draw.SecretKey)
	_, cookie, err := sessions.OpenFor(t.Context(), key.Person{Issuer: "https://accounts.test", Subject: "finance", Roles: []key.Role{key.Approver}})
	servers.NoError(t, err)
	approve := func(api int, id uuid.UUID) int {
		form := url.Values{"/reason": {"yes"}, "once": {uuid.NewString()}}.Encode()
		request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.URLs[api]+"/console/approvals/"+id.String()+"/approve", strings.NewReader(form))
		servers.NoError(t, err)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Sec-Fetch-Site", "same-origin")
		request.Header.Set("Cookie", "triprize-console="+cookie)
		answer, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(request)
		if err != nil {
			return 0 // it has died
		}
		defer func() { _ = answer.Body.Close() }()
		return answer.StatusCode
	}
	wallet := s.Wallet("mina", 0)
	for i := range 10 {
		path, body := wallet+"/credit", fleet.Fields{"amount": 1}
		if i%2 == 1 {
			path, body = "/v1/campaigns/"+s.Campaign(3).String()+"/cancel", fleet.Fields{"reason": "rain"}
		}
		asked := s.Do(0, s.Operator, http.MethodPost, path, map[string]string{"Idempotency-Key": uuid.NewString()}, body)
		fleet.Want(t, http.StatusAccepted, asked)
		api := s.RunAPI("TRIPRIZE_TEST_FAILPOINTS=" + []string{"approvals.sending", "approvals.sent"}[i/2%2] + "=kill")
		if status := approve(len(s.URLs)-1, asked.ID); status != 0 {
			t.Fatalf("the api that dies answers %d", status)
		}
		died(t, "the api", api)
		s.URLs = s.URLs[:1]
		if effects := servers.Value[int](t, s.DB, `SELECT count(*) FROM jobs WHERE idempotency_key = 'approval:' || $1`, asked.ID); effects != 0 {
			t.Fatalf("the dead api has left %d effects", effects)
		}
		for _, want := range []int{http.StatusSeeOther, http.StatusConflict} {
			if status := approve(0, asked.ID); status != want {
				t.Fatalf("request %d: approved again with %d, want %d", i, status, want)
			}
		}
		if i%2 == 0 {
			s.ExpectWallet(wallet, int64(i/2+1), 0)
			continue
		}
		var result struct{ Job struct{ ID uuid.UUID } }
		servers.NoError(t, json.Unmarshal([]byte(servers.Value[string](t, s.DB, `SELECT result FROM approvals WHERE id = $1`, asked.ID)), &result))
		done := s.Do(0, s.Operator, http.MethodGet, "/v1/jobs/"+result.Job.ID.String(), map[string]string{"Prefer": fleet.UntilFinal}, nil)
		fleet.WantSucceeded(t, done)
	}
}
