//go:build web

package web_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

// The page as the api serves it, with the proof that the api makes: a draw is checked by who
// opens an address, without a key.
func TestTheDrawOfARunningSystemIsCheckedAtItsAddress(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{})
	campaign := s.Campaign(4)
	var bought uuid.UUID
	for range 10 {
		a := s.Buy(fleet.Order{Campaign: campaign, User: "mina", Wait: true})
		if a.Refusal() != "" {
			t.Fatal(a)
		}
		bought = a.Result.PurchaseID
	}
	s.AwaitDrawn(campaign)
	p := open(t, s.URLs[0]+"/verify?campaign="+campaign.String())
	p.done()
	if text := p.text("report"); p.verdict() != "verified" {
		t.Error(text)
	}
	p.choose("purchase", file(t, "purchase.json", s.Read("/v1/purchases/"+bought.String()+"/proof").Body))
	p.done()
	if text := p.text("report"); p.verdict() != "verified" || !strings.Contains(text, "took part") {
		t.Error(text)
	}
	fixture.Sound(t, s.DB)
}
