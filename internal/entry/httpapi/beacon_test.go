package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize.example/draw/fairdraw"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// drafted is a campaign as far as these tests read it.
type drafted struct {
	ID       uuid.UUID
	Policies struct{ Beacon bool }
	Rules    json.RawMessage
}

// draft sends a campaign with policies, or a change of one, and returns the answer.
func draft(t *testing.T, s *fleet.System, path string, policies any) (a fleet.Answer, d drafted) {
	t.Helper()
	method, body := http.MethodPost, fleet.CampaignBody(3)
	if path != "/v1/campaigns" {
		method, body = http.MethodPatch, map[string]any{"name": "Another name"}
	}
	if policies != nil {
		body["policies"] = policies
	}
	a = s.Do(0, s.Operator, method, path, map[string]string{"Idempotency-Key": uuid.NewString()}, body)
	_ = json.Unmarshal(a.Body, &d)
	return a, d
}

func TestAnInstallationWithoutRelaysRefusesABeacon(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	a, _ := draft(t, s, "/v1/campaigns", map[string]any{"beacon": true})
	if a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), "/policies/beacon") || !strings.Contains(string(a.Body), "beacon.relays") {
		t.Errorf("%v: %s", a, a.Body)
	}
	for _, policies := range []any{nil, map[string]any{}, map[string]any{"beacon": false}} {
		if a, d := draft(t, s, "/v1/campaigns", policies); a.Status != http.StatusCreated || d.Policies.Beacon {
			t.Errorf("%v: %v", policies, a)
		}
	}
}

func TestACampaignThatDoesNotSayHasTheBeaconThatTheInstallationSays(t *testing.T) {
	t.Parallel()
	for _, standard := range []bool{true, false} {
		t.Run(fmt.Sprint(standard), func(t *testing.T) {
			t.Parallel()
			s := fleet.Start(t, fleet.Options{Beacon: 1, Workers: -1, Schedulers: -1, Env: []string{fmt.Sprintf("TRIPRIZE_BEACON_DEFAULT=%v", standard)}})
			for _, c := range []struct {
				policies any
				want     bool
			}{
				{nil, standard},
				{map[string]any{"unsold": "stay"}, standard},
				{map[string]any{"beacon": true}, true},
				{map[string]any{"beacon": false}, false},
			} {
				a, d := draft(t, s, "/v1/campaigns", c.policies)
				if a.Status != http.StatusCreated || d.Policies.Beacon != c.want {
					t.Fatalf("%v: %v, beacon %v", c.policies, a, d.Policies.Beacon)
				}
				path := "/v1/campaigns/" + d.ID.String()
				if a, d := draft(t, s, path, nil); a.Status != http.StatusOK || d.Policies.Beacon != c.want {
					t.Errorf("%v, and a name: %v, beacon %v", c.policies, a, d.Policies.Beacon)
				}
				if a, d := draft(t, s, path, map[string]any{"beacon": !c.want}); a.Status != http.StatusOK || d.Policies.Beacon == c.want {
					t.Errorf("%v, and the opposite: %v, beacon %v", c.policies, a, d.Policies.Beacon)
				}
				if a, d := draft(t, s, path, map[string]any{"late_payment": "reassign"}); a.Status != http.StatusOK || d.Policies.Beacon != standard {
					t.Errorf("policies that do not say: %v, beacon %v", a, d.Policies.Beacon)
				}
			}
		})
	}
}

// publish publishes a campaign and returns its rules.
func publish(t *testing.T, s *fleet.System, id uuid.UUID) (rules fairdraw.Rules) {
	t.Helper()
	a := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/publish", map[string]string{"Idempotency-Key": uuid.NewString()}, nil)
	var d drafted
	if err := json.Unmarshal(a.Body, &d); err != nil || a.Status != http.StatusOK {
		t.Fatal(a, err)
	}
	if err := json.Unmarshal(d.Rules, &rules); err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestACampaignIsNotPublishedWithABeaconThatNobodyAsksAnyMore(t *testing.T) {
	t.Parallel()
	s := fleet.Shared(t, quiet)
	_, d := draft(t, s, "/v1/campaigns", nil)
	servers.Exec(t, s.DB, `UPDATE campaigns SET policies = jsonb_set(policies, '{beacon}', 'true') WHERE id = $1`, d.ID)
	a := s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns/"+d.ID.String()+"/publish", map[string]string{"Idempotency-Key": uuid.NewString()}, nil)
	if a.Status != http.StatusConflict || !strings.Contains(string(a.Body), "beacon.relays") {
		t.Errorf("%v: %s", a, a.Body)
	}
	if a, d := draft(t, s, "/v1/campaigns/"+d.ID.String(), map[string]any{"beacon": false}); a.Status != http.StatusOK || d.Policies.Beacon {
		t.Errorf("without it: %v", a)
	}
	if rules := publish(t, s, d.ID); rules.Beacon != nil {
		t.Errorf("the rules have a beacon: %+v", rules.Beacon)
	}
}
