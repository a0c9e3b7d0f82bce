package httpapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi"
	"triprize/internal/testkit/fleet"
)

// A campaign that is not published is the operators' alone: nobody else can tell it from one
// that is not there.
func TestADraftIsTheOperatorsAlone(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet).With()
	draft := view(s, s.Post("/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated).ID.String()
	given := view(s, s.Post("/v1/campaigns", fleet.CampaignBody(3)), http.StatusCreated).ID.String()
	if a := s.Post("/v1/campaigns/"+given+"/cancel", fleet.RawJSON(`{"reason":"a mistake"}`)); a.Status != http.StatusAccepted {
		t.Fatal(a)
	}
	contract, err := httpapi.LoadContract()
	if err != nil {
		t.Fatal(err)
	}
	callers := map[string]string{"app": s.App, "user": fleet.TokenFor(t, s.User("mina"), ""), "viewer": fleet.TokenFor(t, "v", "viewer"), "anonymous": ""}
	asked := 0
	for i := range contract.Operations {
		o := &contract.Operations[i]
		if !strings.Contains(o.Path, "{campaign}") {
			continue
		}
		for role, credential := range callers {
			if !slices.Contains(o.Roles, role) && (role != "anonymous" || !o.Open) {
				continue
			}
			for _, id := range []string{draft, given, uuid.NewString()} {
				path := strings.NewReplacer("{campaign}", id, "{layer}", "1", "{column}", "1", "{user}", s.User("mina"), "{leaf}", "0", "{index}", "0").Replace(o.Path)
				header := map[string]string{"Idempotency-Key": uuid.NewString()}
				var body any
				if o.HasBody {
					user := s.User("mina")
					body = fleet.RawJSON(`{"user_id":"` + user + `","selection":{"quantity":1},"payment":{"method":"wallet"}}`)
					if strings.HasSuffix(o.Path, "/holds") {
						body = fleet.RawJSON(`{"user_id":"` + user + `","quantity":1}`)
					}
					if strings.HasSuffix(o.Path, "/draw/round") {
						body = fleet.RawJSON(`{"signature":"` + strings.Repeat("0f", 48) + `"}`)
					}
					if strings.HasSuffix(o.Path, "/refunds/resolve") {
						body = fleet.RawJSON(`{"reason":"r"}`)
					}
				}
				a := s.Do(0, credential, o.Method, path, header, body)
				if a.Status != http.StatusNotFound || strings.Contains(string(a.Body), "draft") {
					t.Errorf("%s %s by %s: %v %s", o.Method, o.Path, role, a, a.Body)
				}
				asked++
			}
		}
	}
	if asked < 30 {
		t.Errorf("only %d requests", asked)
	}
	for role, credential := range callers {
		for _, query := range []string{"", "?state=pending", "?state=cancelled"} {
			if a := s.Do(0, credential, http.MethodGet, "/v1/campaigns"+query, nil, nil); strings.Contains(string(a.Body), draft) || strings.Contains(string(a.Body), given) {
				t.Errorf("%s is told of a draft by %q", role, query)
			}
		}
	}
	if a := s.Do(0, s.Operator, http.MethodGet, "/v1/campaigns?state=pending", nil, nil); !strings.Contains(string(a.Body), draft) {
		t.Errorf("an operator is not: %s", a.Body)
	}
}
