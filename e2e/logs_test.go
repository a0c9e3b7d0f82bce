package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// linesOf returns the lines with a text in the logs of all processes, each with its process.
func linesOf(s *fleet.System, text string) (lines []string) {
	for _, process := range []string{"api-1", "api-2", "worker-1", "scheduler-1"} {
		for line := range strings.Lines(string(s.Log(process))) {
			if strings.Contains(line, text) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// At the default level the id of one request leads through the logs of all processes, from the
// purchase that sells the last position to the winners; and no log has a secret, or what was sent. What becomes of
// a card and of the money is there with the ids that the provider knows.
func TestOneIDFollowsAPurchaseAndItsDrawThroughAllLogs(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{APIs: 2})
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	id := s.Campaign(2)
	if a := s.Buy(fleet.Order{Campaign: id, User: "anna-of-the-body", Quantity: 2, Wait: true}); a.Refusal() != "" {
		t.Fatal(a)
	}
	last := s.Do(1, s.App, http.MethodPost, "/v1/campaigns/"+id.String()+"/purchases",
		map[string]string{"Idempotency-Key": "a-key", "Prefer": fleet.UntilFinal, "X-Request-ID": "order-4711", "traceparent": "00-" + trace + "-00f067aa0ba902b7-01"},
		fleet.Fields{"user_id": "mina-of-the-body", "selection": fleet.Fields{"quantity": 1}, "payment": fleet.Fields{"method": "external", "reference": "in-the-body"}})
	if last.Refusal() != "" {
		t.Fatal(last)
	}
	s.AwaitDrawn(id)
	servers.Eventually(t, "the request and the draw have their last lines", func() bool {
		written := strings.Join(linesOf(s, "request_id=order-4711"), "")
		return strings.Contains(written, "kind=draw") && strings.Contains(written, "msg=request ")
	})
	followed := linesOf(s, "request_id=order-4711")
	all, sold := strings.Join(followed, ""), last.Result.Positions[0]
	steps := [][]string{
		{"process=api", "msg=request ", "operation=requestPurchase", "status=200", "job=" + last.ID.String()},
		{"process=worker", `msg="job finalized"`, "kind=purchase", "outcome=succeeded", "job=" + last.ID.String(), "purchase=" + last.Result.PurchaseID.String(),
			fmt.Sprintf(" positions=%d/%d ", sold.Layer, sold.Column), "attempts=1", "took_ms="},
		{"process=worker", `msg="draw triggered"`, "by=sell_out", "from=active", "to=drawing"},
		{"process=worker", `msg="execution lock taken"`, "holder=", "version=1", "took_ms="},
		{"process=worker", `msg="draw list frozen"`, "positions=3", "prizes=2"},
		{"process=worker", `msg="draw completed"`, "from=drawing", "to=completed", "winners=2", "took_ms="},
		{"process=worker", `msg="job finalized"`, "kind=draw", "outcome=succeeded"},
	}
	for _, step := range steps {
		n := 0
		for _, line := range followed {
			if strings.Contains(line, "trace_id="+trace) && strings.Contains(line, id.String()) &&
				!slices.ContainsFunc(step, func(part string) bool { return !strings.Contains(line, part) }) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d lines have %v among\n%s", n, step, all)
		}
	}
	if len(followed) != len(steps) {
		t.Errorf("%d lines:\n%s", len(followed), all)
	}
	for _, secret := range []string{s.App, s.Operator, s.Settings.Draw.SecretKey, fleet.SandboxKey, fleet.WebhookSecret, "of-the-body", "in-the-body", "a-key"} {
		if found := linesOf(s, secret); secret == "" || len(found) > 0 {
			t.Errorf("the logs have %q: %s", secret, found)
		}
	}

	id = s.Campaign(4)
	declined := s.Buy(fleet.Order{Campaign: id, User: "mina", Card: "pm_card_chargeDeclinedInsufficientFunds", Wait: true})
	paid := s.Buy(fleet.Order{Campaign: id, User: "anna", Card: "pm_card_visa", Wait: true})
	if paid.Refusal() != "" {
		t.Fatal(paid)
	}
	if a := s.Cancel(s.App, paid.Result.PurchaseID, "cancel", "wrong size"); a.Refusal() != "" {
		t.Fatal(a)
	}
	for _, want := range [][]string{
		{`msg="a card was declined"`, "job=" + declined.ID.String(), "intent=pi_", "decline=insufficient_funds"},
		{`msg="a payment has succeeded"`, "job=" + paid.ID.String(), "purchase=" + paid.Result.PurchaseID.String(), "intent=pi_"},
		{`msg="a refund has succeeded"`, "purchase=" + paid.Result.PurchaseID.String(), "provider_id=re_"},
	} {
		servers.Eventually(t, want[0], func() bool {
			return slices.ContainsFunc(linesOf(s, want[0]), func(line string) bool {
				return !slices.ContainsFunc(want, func(part string) bool { return !strings.Contains(line, part) })
			})
		})
	}
}
