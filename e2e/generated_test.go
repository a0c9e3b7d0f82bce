package e2e

import (
	"context"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// serverLimits are the bounds of this server that no schema of the contract says;
// most stand in its descriptions.
var serverLimits = regexp.MustCompile(`must be 3 to 50|must have every layer|every layer 1 to|minor units|has room for|ISO 4217|must be after sale_starts_at|` +
	`must be in the years|without a public beacon|must be at most 100"|must be at most 20"|must have exactly one of|in all"|there is no position|the campaign has layers|goes with quantity only|has columns 1 to|must be 1 to 600`)

func TestGeneratedRequestsGetAnswersThatTheContractPromises(t *testing.T) {
	t.Parallel()
	const budget, hang, bodyLimit = 12 * time.Second, 10 * time.Second, 1 << 20
	s := start(t, options{env: append([]string{"TRIPRIZE_API_MAX_WAIT=1s", "TRIPRIZE_STREAMS_INTERVAL=50ms", "TRIPRIZE_STREAMS_HEARTBEAT=100ms", "TRIPRIZE_STREAMS_MAX_AGE=200ms"}, trusting.env...)})
	m := newMaker(t, map[string]string{"operator": s.operator, "operator again": s.operator, "operator still": s.operator, "app": s.app, "mina": tokenFor(t, "mina", ""), "viewer": tokenFor(t, "v", "viewer"), "nobody": ""})
	m.ids["campaign"] = append(m.ids["campaign"], s.campaign(3).String(), s.campaign(20).String())
	answers, began := make(map[string]int), time.Now()
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(10, 40).Draw(rt, "requests") {
			if time.Since(began) > budget {
				return
			}
			o := rapid.SampledFrom(m.operations).Draw(rt, "operation")
			request, plain := m.request(rt, s.urls[0], o)
			ctx, cancel := context.WithTimeout(t.Context(), hang)
			a := send(request.WithContext(ctx))
			answers[o.OperationID+" "+strconv.Itoa(a.status)]++
			switch {
			case a.err != nil && request.ContentLength > bodyLimit && ctx.Err() == nil: // refused by its length, while it was still being sent
			case a.err != nil || a.status >= 500 || a.status == 0:
				rt.Errorf("%s %s: %v %s", o.method, request.URL, a, a.body)
			case o.Responses.Status(a.status) == nil:
				rt.Errorf("%s %s: the contract has no such answer: %v %s", o.method, request.URL, a, a.body)
			case plain && a.status == http.StatusBadRequest && a.code() == "invalid-request" && !serverLimits.Match(a.body):
				rt.Errorf("%s %s fits the contract and is refused: %s", o.method, request.URL, a.body)
			case a.ID != uuid.Nil && strings.HasPrefix(a.header.Get("Location"), "/v1/campaigns/") && len(m.ids["campaign"]) < 20:
				m.ids["campaign"] = append(m.ids["campaign"], a.ID.String())
			case a.ID != uuid.Nil && strings.HasPrefix(a.header.Get("Location"), "/v1/wallets/") && !strings.Contains(a.header.Get("Location"), "/authorizations/") && len(m.ids["wallet"]) < 20:
				m.ids["wallet"] = append(m.ids["wallet"], a.ID.String())
			case a.ID != uuid.Nil && strings.HasPrefix(a.header.Get("Location"), "/v1/holds/") && len(m.ids["hold"]) < 20:
				m.ids["hold"] = append(m.ids["hold"], a.ID.String())
			case a.ID != uuid.Nil && strings.Contains(a.header.Get("Location"), "/authorizations/") && len(m.ids["authorization"]) < 20:
				m.ids["authorization"] = append(m.ids["authorization"], a.ID.String())
			case a.ID != uuid.Nil && strings.HasPrefix(a.header.Get("Location"), "/v1/jobs/") && len(m.ids["job"]) < 20:
				m.ids["job"] = append(m.ids["job"], a.ID.String())
			}
			if a.Result.PurchaseID != uuid.Nil && len(m.ids["purchase"]) < 20 {
				m.ids["purchase"] = append(m.ids["purchase"], a.Result.PurchaseID.String())
			}
			cancel()
		}
	})
	done := make(map[string]bool) // what was not only refused
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		t.Log(name, answers[name])
		id, status, _ := strings.Cut(name, " ")
		if status < "400" {
			done[id] = true
		}
	}
	if len(done) < len(m.operations)/2 {
		t.Errorf("only %d of %d operations were ever done: such requests are not worth much", len(done), len(m.operations))
	}
}
