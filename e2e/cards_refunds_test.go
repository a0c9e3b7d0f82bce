//go:build soak

package e2e

import (
	"cmp"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

func TestACancelledCardPurchaseIsRefundedOnce(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	campaign := s.Campaign(3)
	id := buyPaid(s, campaign, "alice", "pm_card_visa")
	answers := fleet.AtOnce(5, func(int) fleet.Answer { return s.Cancel(s.App, id, uuid.NewString(), "changed my mind") })
	var succeeded int
	for _, a := range answers {
		if s.AwaitJob(0, a.ID).State == job.Succeeded {
			succeeded++
		}
	}
	if succeeded != 1 {
		t.Errorf("%d of 5 cancellations succeeded", succeeded)
	}
	if p := awaitPurchase(s, id, "refunded"); !p.happened("refunded") || p.Refund() == nil || p.Refund().State != "succeeded" {
		t.Errorf("%+v", p)
	}
	if n := len(s.Sandbox.RefundsOf(s.Sandbox.PaymentsOf(id.String())[0].ID)); n != 1 {
		t.Errorf("%d refunds at the provider", n)
	}
	if sold := s.CampaignNow(campaign).Counts.Sold; sold != 0 {
		t.Errorf("%d positions are sold", sold)
	}
	expectLedgersAgree(s)
}

func TestAPurchaseCancelledBeforeItIsPaidIsNeverCharged(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	campaign := s.Campaign(3)
	id := buyByCard(s, campaign, "alice", "pm_card_authenticationRequired")
	j := awaitAction(s, id)
	cancellation := s.Cancel(s.App, j.PurchaseID, uuid.NewString(), "")
	if a := s.AwaitJob(0, cancellation.ID); a.State != job.Succeeded {
		t.Errorf("the cancellation: %s", a)
	}
	if a := s.AwaitJob(0, id); a.Refusal() != "purchase-cancelled" {
		t.Errorf("the purchase's job: %s", a)
	}
	if p := viewPurchase(s, j.PurchaseID); p.State != "cancelled" {
		t.Errorf("the purchase is %s", p.State)
	}
	if p := s.Sandbox.PaymentsOf(j.PurchaseID.String()); len(p) != 1 || p[0].Status != "canceled" {
		t.Errorf("at the provider: %+v", p)
	}
	expectLedgersAgree(s)
}

func TestARefundThatTheProviderRefusesWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	id := buyPaid(s, s.Campaign(3), "alice", "pm_card_refundFail")
	s.AwaitJob(0, s.Cancel(s.App, id, uuid.NewString(), "").ID)
	failed := func() (p purchaseView) {
		servers.Eventually(t, "the refund has failed", func() bool {
			p = viewPurchase(s, id)
			return p.State == "refunding" && p.Refund() != nil && p.Refund().State == "failed"
		})
		return p
	}
	path := "/v1/refunds/" + failed().Refund().ID
	if a := s.Post(path+"/retry", nil); a.Status != http.StatusOK {
		t.Errorf("the retry: %s, %s", a, a.Body)
	}
	servers.Eventually(t, "it was tried again", func() bool { return len(s.Sandbox.RefundsOf(s.Sandbox.PaymentsOf(id.String())[0].ID)) == 2 })
	failed()
	if a := s.Do(0, s.App, http.MethodPost, path+"/resolve", map[string]string{"Idempotency-Key": uuid.NewString()}, fleet.Fields{"reason": "by me"}); a.Status != http.StatusForbidden {
		t.Errorf("an app settles a card refund: %s", a)
	}
	if a := s.Post(path+"/resolve", fleet.Fields{"reason": "sent by bank transfer"}); a.Status != http.StatusOK {
		t.Errorf("the resolution: %s, %s", a, a.Body)
	}
	if p := viewPurchase(s, id); p.State != "refunded" || !p.happened("refund-resolved") {
		t.Errorf("%+v", p)
	}
}

func TestADisputeIsShownAndReleasesNothing(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	campaign := s.Campaign(3)
	id := buyPaid(s, campaign, "alice", "pm_card_createDispute")
	var p purchaseView
	servers.Eventually(t, "the dispute is recorded", func() bool {
		p = viewPurchase(s, id)
		return p.Dispute != nil
	})
	if p.State != "completed" || !p.happened("disputed") || s.CampaignNow(campaign).Counts.Sold != 1 {
		t.Errorf("%+v", p)
	}
	if d := p.Dispute; d.Amount != p.Amount || d.Currency != "JPY" || d.Fee == nil || *d.Fee != 1300 || p.AmountDisputed != 0 {
		t.Errorf("its money: %+v", d)
	}
	if err := s.Sandbox.CloseDispute(p.Dispute.ID, false); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "it is lost", func() bool {
		p = viewPurchase(s, id)
		return p.Dispute.Status == "lost"
	})
	if p.State != "completed" || p.AmountDisputed != p.Amount || p.AmountRefunded != 0 {
		t.Errorf("%+v", p)
	}
}

// An inquiry takes no money. Its dispute does, until it is won.
func TestAnInquiryThatBecomesADisputeForbidsTheCancellationUntilItIsWon(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	id := buyPaid(s, s.Campaign(3), "alice", "pm_card_createDisputeInquiry")
	said := func(status string) (dispute string) {
		servers.Eventually(t, "the dispute is "+status, func() bool {
			d := viewPurchase(s, id).Dispute
			if d != nil {
				dispute = d.ID
			}
			return d != nil && d.Status == status
		})
		return dispute
	}
	dispute := said("warning_needs_response")
	if err := s.Sandbox.EscalateDispute(dispute); err != nil {
		t.Fatal(err)
	}
	said("needs_response")
	if d := viewPurchase(s, id).Dispute; d.Fee == nil || *d.Fee != 1300 {
		t.Errorf("it costs %v", d.Fee)
	}
	if j := s.AwaitJob(0, s.Cancel(s.App, id, uuid.NewString(), "").ID); j.State != job.Failed || j.Problem.Code != "purchase-disputed" {
		t.Errorf("while it is disputed: %v %s", j, j.Body)
	}
	if err := s.Sandbox.CloseDispute(dispute, true); err != nil {
		t.Fatal(err)
	}
	said("won")
	if j := s.AwaitJob(0, s.Cancel(s.App, id, uuid.NewString(), "").ID); j.State != job.Succeeded {
		t.Errorf("when it is won: %v %s", j, j.Body)
	}
	servers.Eventually(t, "it is refunded", func() bool { return viewPurchase(s, id).State == "refunded" })
}

func TestACancelledCampaignGivesEveryYenBack(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{Workers: 2})
	campaign := s.Campaign(5)
	wallet := s.Wallet("wanda", 100_000)
	card := buyPaid(s, campaign, "carl", "pm_card_visa")
	slow := buyByCard(s, campaign, "anna", "pm_card_authenticationRequired")
	awaiting := awaitAction(s, slow)
	if a := s.Buy(fleet.Order{Campaign: campaign, User: "wanda", ByWallet: true, Wait: true}); a.State != job.Succeeded {
		t.Fatal(a)
	}
	external := s.Buy(fleet.Order{Campaign: campaign, User: "otto", Wait: true})
	cancelled := s.Post("/v1/campaigns/"+campaign.String()+"/cancel", fleet.Fields{"reason": "the hall has burnt down"})
	if cancelled.Status != http.StatusAccepted {
		t.Fatalf("%s %s", cancelled, cancelled.Body)
	}
	operatorsJob := func() fleet.Answer {
		return s.Do(0, s.Operator, http.MethodGet, "/v1/jobs/"+cancelled.ID.String(), map[string]string{"Prefer": fleet.UntilFinal}, nil)
	}
	if a := operatorsJob(); a.State != job.Succeeded {
		t.Errorf("the cancellation: %s %s", a, a.Body)
	}
	awaitPurchase(s, card, "refunded")
	if a := s.AwaitJob(0, slow); a.Refusal() != "campaign-not-active" {
		t.Errorf("the job that awaited its buyer: %s", a)
	}
	if p := viewPurchase(s, awaiting.PurchaseID); p.State != "failed" {
		t.Errorf("its purchase is %s", p.State)
	}
	s.ExpectWallet(wallet, 100_000, 0)
	list := fleet.As[struct {
		Refunds []struct {
			ID, State, Method string
			PurchaseID        uuid.UUID `json:"purchase_id"`
		}
	}](t, s.Do(0, s.Operator, http.MethodGet, "/v1/campaigns/"+campaign.String()+"/refunds", nil, nil))
	states := make(map[string]string)
	for _, r := range list.Refunds {
		states[r.Method] = r.State
		if r.Method != "external" {
			continue
		}
		if r.PurchaseID != external.Result.PurchaseID {
			t.Errorf("the refund for the app to do is of %s", r.PurchaseID)
		}
		if a := s.Execute("/v1/refunds/"+r.ID+"/resolve", fleet.Fields{"reason": "paid out at the till"}); a.Status != http.StatusOK {
			t.Errorf("an app settles its own: %s %s", a, a.Body)
		}
	}
	if want := "map[card:succeeded external:listed wallet:succeeded]"; fmt.Sprint(states) != want {
		t.Errorf("refunds %v, want %s", states, want)
	}
	if counts := s.CampaignNow(campaign).Counts; counts.Sold != 0 || counts.Reserved != 0 {
		t.Errorf("%+v", counts)
	}
	expectLedgersAgree(s)
}

func TestMoneyThatComesLateFollowsThePolicy(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{})
	for name, policy := range map[string]struct {
		campaign uuid.UUID
		state    string
		step     string
		code     string // of the job
	}{
		"refund":   {s.Campaign(3), "refunded", "payment-late", "reservation-expired"},
		"reassign": {lenient(s, 3), "completed", "reassigned", ""},
	} {
		id := buyByCard(s, policy.campaign, "alice", "pm_sandbox_processing")
		servers.Eventually(t, "the provider has it", func() bool {
			return servers.Value[bool](t, s.DB, `SELECT EXISTS (SELECT FROM payments WHERE job_id = $1 AND phase = 'processing')`, id)
		})
		servers.Exec(t, s.DB, `UPDATE payments SET deadline = now(), latest = now() WHERE job_id = $1`, id)
		purchase := viewJob(s, id).PurchaseID
		servers.Eventually(t, "the positions are free again", func() bool { return viewPurchase(s, purchase).happened("released") })
		if state := viewJob(s, id).State; state.Final() {
			t.Errorf("%s: the job is %s before the provider has decided", name, state)
		}
		if err := s.Sandbox.Finish(s.Sandbox.PaymentsOf(purchase.String())[0].ID, true); err != nil {
			t.Fatal(err)
		}
		if p := awaitPurchase(s, purchase, policy.state); !p.happened(policy.step) {
			t.Errorf("%s: %+v", name, p.Timeline)
		}
		if a := s.AwaitJob(0, id); a.Refusal() != policy.code {
			t.Errorf("%s: the job ends as %v", name, a)
		}
	}
	expectLedgersAgree(s)
}

func TestThreeHundredBuyersAreServedThroughDeclinesAndErrors(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{Workers: 2, Sandbox: &stripesim.Settings{Rate: -1, EndpointRate: -1}},
		"TRIPRIZE_PAYMENTS_STRIPE_RATE=1000", "TRIPRIZE_PAYMENTS_STRIPE_ENDPOINT_RATE=1000")
	campaign := s.Campaign(24) // 300 positions
	s.Sandbox.Set(stripesim.Faults{Seed: 7, Decline: 0.04, ErrorBefore: 0.025, ErrorAfter: 0.025})
	answers := s.Crowd(300, func(i int) fleet.Order {
		return fleet.Order{Campaign: campaign, User: fmt.Sprint("buyer-", i), Card: "pm_card_visa"}
	})
	ends := make(map[string]int)
	for _, a := range answers {
		if a.Status != http.StatusAccepted {
			t.Fatal(a)
		}
		for {
			end := s.Do(0, s.App, http.MethodGet, "/v1/jobs/"+a.ID.String(), map[string]string{"Prefer": fleet.UntilFinal}, nil)
			if end.State == job.AwaitingAction { // declined: its buyer brings another card
				ends["declined"]++
				if again := bringCard(s, viewJob(s, a.ID).PurchaseID, "pm_card_visa"); again.Status != http.StatusAccepted {
					t.Fatalf("%v %s", again, again.Body)
				}
				continue
			}
			ends[cmp.Or(end.Refusal(), string(end.State))]++
			break
		}
	}
	if ends["declined"] == 0 || ends["succeeded"]*100 <= 95*300 {
		t.Errorf("%v", ends)
	}
	expectLedgersAgree(s)
}
