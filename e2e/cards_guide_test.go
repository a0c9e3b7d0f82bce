//go:build soak

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fleet"
)

// aboutCards takes the chapter about cards out of the guide: it needs a sandbox.
func aboutCards(t *testing.T) (rest, chapter string) {
	t.Helper()
	before, after, found := strings.Cut(document(t, guide), "\n## Cards\n")
	chapter, behind, ends := strings.Cut(after, "\n## ")
	if !found || !ends {
		t.Fatal("the chapter about cards is gone")
	}
	return before + "\n## " + behind, chapter
}

func TestTheChapterAboutCardsWorksAsPasted(t *testing.T) {
	t.Parallel()
	_, chapter := aboutCards(t)
	_, dev := startDev(t, openDir(t))
	out := paste(t, blocks(chapter), "API="+dev.APIURL, "OPERATOR="+dev.OperatorKey, "APP="+dev.AppKey, "CAMPAIGN="+publishedAt(t, dev, 5))
	inOrder(t, out,
		`"state":"succeeded"`, `"state":"completed"`, `"payment_method":"pm_card_visa"`, `"livemode":false`, `"event":"reserved"`, `"event":"captured"`, // paid,
		`"state":"awaiting_action"`, `"next_action":{"type":"redirect"`, `"state":"succeeded"`, // authenticated,
		`"state":"awaiting_action"`, `"next_action":{"type":"payment_method"`, `"decline_code":"insufficient_funds"`, `"state":"succeeded"`, // declined, then paid with another card,
		`"kind":"cancellation","state":"succeeded"`, `"state":"refunding"`, `"method":"card"`, // refunded
		`"kind":"campaign-cancellation","state":"succeeded"`, `"refunds":{"total":`, `"reason":"campaign-cancelled"`, `"refunds":[]`) // and over.
	out = paste(t, blocks(document(t, "../docs/test-cards.md")), "SANDBOX="+dev.SandboxURL, "SANDBOX_KEY="+dev.SandboxKey)
	inOrder(t, out, `"status": "succeeded"`, `"amount": 250`, `"object": "list"`)
}

// publishedAt makes a campaign on sale at a running dev.
func publishedAt(t *testing.T, dev about, baseLength int) (id string) {
	t.Helper()
	s := &fleet.System{T: t, URLs: []string{dev.APIURL}, Operator: dev.OperatorKey}
	var made struct{ ID uuid.UUID }
	a := s.Post("/v1/campaigns", fleet.CampaignBody(baseLength))
	if err := json.Unmarshal(a.Body, &made); err != nil || a.Status != http.StatusCreated {
		t.Fatalf("%v %s", err, a.Body)
	}
	if a := s.Post("/v1/campaigns/"+made.ID.String()+"/publish", nil); a.Status != http.StatusOK {
		t.Fatalf("%s", a.Body)
	}
	return made.ID.String()
}

func TestEveryTestCardEndsAsTheGuideSays(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{Workers: 2})
	campaign := s.Campaign(20)
	t.Run("cards", func(t *testing.T) {
		for i, c := range cardCases {
			t.Run(fmt.Sprintf("%s-%d", c.method, i), func(t *testing.T) {
				t.Parallel()
				id := buyByCard(s, campaign, fmt.Sprintf("buyer-%d", i), c.method)
				if c.meanwhile != nil {
					c.meanwhile(t, s, id)
				}
				s.AwaitJob(0, id)
				expectCard(t, s, c, viewJob(s, id))
			})
		}
	})
	if n := s.Sandbox.Totals().RateLimited; n != 0 {
		t.Errorf("%d calls were refused as too many", n)
	}
	expectReturn(s, campaign)
	expectLedgersAgree(s)
}
