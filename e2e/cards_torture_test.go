//go:build soak

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/devkit/devstack"
	"triprize/internal/job"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

// tortureCards are the payment methods of a torture, the good ones most often.
var tortureCards = []string{
	"pm_card_visa", "pm_card_visa", "pm_card_visa", "pm_card_visa", "pm_card_mastercard", "pm_card_jcb",
	"pm_card_chargeDeclined", "pm_card_chargeDeclinedInsufficientFunds", "pm_card_authenticationRequired", "pm_card_authenticationRequired",
	"pm_sandbox_processing", "pm_sandbox_500_once", "pm_sandbox_webhook_never", "pm_sandbox_webhook_twice", "pm_sandbox_webhook_late",
	"pm_sandbox_webhook_reversed", "pm_sandbox_timeout_after_charge", "pm_card_pendingRefund", "pm_card_pendingRefund", "pm_card_pendingRefund",
}

// wish is what a buyer does and what happens to the purchase, as the dice have said.
type wish struct {
	user, card    string
	campaign      uuid.UUID
	outcome       string // of an action; empty: the buyer goes away
	cancels, part bool   // all while it is paid, or one position afterwards
	others        []string
	beside        func(*torture, stripesim.Payment) bool // when it has ended
	early         bool                                   // a half is refunded by hand as soon as it is captured at the provider
	byHand        bool                                   // operators resolve its refunds
}

// torture is a random run. Its seed decides what is done; when it happens, the machine
// decides.
type torture struct {
	s         *fleet.System
	dice      *rand.Rand
	campaigns []uuid.UUID
	faults    stripesim.Faults

	mu     sync.Mutex
	jobs   []uuid.UUID
	lost   []uuid.UUID // purchases whose money the bank has given back
	byHand []uuid.UUID // purchases whose refunds are resolved by hand
	bought []uuid.UUID // purchases that were completed, and nothing has happened to them yet
	slow   []uuid.UUID // of these, those whose refunds are pending first

	disputeIDs []string // of the provider; all have ended

	refundedByHand, refundedEarly, resolved, disputed, brought atomic.Int64
}

func TestWhateverHappensTheProviderKeepsWhatWeHaveSold(t *testing.T) {
	t.Parallel()
	first, runs := uint64(1), seeds()
	if text := os.Getenv("TRIPRIZE_TEST_SEED"); text != "" { // repeats one run
		var err error
		first, err = strconv.ParseUint(text, 10, 64)
		servers.NoError(t, err)
		runs = 1
	}
	for seed := first; seed < first+runs; seed++ {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			tortureWith(t, seed)
		})
	}
}

func tortureWith(t *testing.T, seed uint64) {
	s := cardSystem(t, fleet.Options{APIs: 1, Workers: 2, Restart: 100 * time.Millisecond, Sandbox: &stripesim.Settings{
		Dir: t.TempDir(), Later: time.Second, Slow: 300 * time.Millisecond, Hang: 4 * time.Second, Late: time.Second, Reverse: 500 * time.Millisecond,
		Retry: 100 * time.Millisecond, Processing: 3 * time.Second,
	}}, "TRIPRIZE_PAYMENTS_RESERVATION=12s", "TRIPRIZE_PAYMENTS_MAX_EXTENSION=12s")
	to := &torture{s: s, dice: rand.New(rand.NewPCG(seed, 0))}
	to.campaigns = []uuid.UUID{s.Campaign(10), s.Campaign(10), s.Campaign(10)}
	to.faults = stripesim.Faults{Seed: seed, Decline: 0.05, ErrorBefore: 0.03, ErrorAfter: 0.03, TimeoutBefore: 0.01, TimeoutAfter: 0.02, TooMany: 0.02,
		WebhookLost: 0.2, WebhookTwice: 0.2, WebhookLate: 0.2}
	s.Sandbox.Set(to.faults)
	var buyers sync.WaitGroup
	for n := range 90 {
		w := wish{user: fmt.Sprintf("u%d", n%30), card: tortureCards[to.dice.IntN(len(tortureCards))], campaign: to.campaigns[to.dice.IntN(len(to.campaigns))],
			outcome: []string{"succeed", "fail", ""}[to.dice.IntN(3)], cancels: to.dice.IntN(6) == 0, beside: besides[to.dice.IntN(len(besides))],
			part: to.dice.IntN(3) == 0, others: []string{tortureCards[to.dice.IntN(len(tortureCards))], "pm_card_visa"}[:to.dice.IntN(3)],
			early: to.dice.IntN(3) == 0, byHand: to.dice.IntN(2) == 0}
		buyers.Go(func() { to.buy(w) })
		if n%9 == 4 {
			to.disturb()
			to.operate()
		}
	}
	buyers.Wait()
	to.keyIsRefused()
	to.callsAreLate()
	to.besideAtLeastOnce()
	to.inTimeAtLeastOnce()
	to.cancelCampaign(to.campaigns[1])
	to.disturb()
	to.calm()
	to.expectEnds()
}

// buy buys two positions, retries until it is promised, does what the buyer does, brings other cards
// after declines, and perhaps cancels them, or, when they are bought, one.
func (to *torture) buy(w wish) {
	key := uuid.NewString()
	var a fleet.Answer
	for a.Status != http.StatusAccepted {
		a = to.s.Buy(fleet.Order{Campaign: w.campaign, User: w.user, Quantity: 2, Card: w.card, Key: key})
		if a.Status == http.StatusConflict || to.s.T.Context().Err() != nil {
			return
		}
		time.Sleep(20 * time.Millisecond) // as clients are told to
	}
	to.add(&to.jobs, a.ID)
	away, known := w.outcome == "", false
	for end := time.Now().Add(servers.Patience); time.Now().Before(end); { // until the job is final: its reservation ends
		j := to.s.Job(a.ID)
		ok := j.Err == nil && j.Status == http.StatusOK
		if ok && j.PurchaseID != uuid.Nil && !known {
			if known = true; w.byHand {
				to.add(&to.byHand, j.PurchaseID)
			}
		}
		if known && w.early {
			w.early = !to.refundsEarly(j.PurchaseID)
		}
		switch {
		case !ok:
		case j.NextAction != nil && j.NextAction.Type == "redirect" && away:
			return
		case j.NextAction != nil && j.NextAction.Type == "redirect" && w.outcome != "":
			to.authenticate(j, w.outcome)
			w.outcome = ""
		case j.NextAction != nil && j.NextAction.Type == "payment_method" && len(w.others) > 0:
			if bringCard(to.s, j.PurchaseID, w.others[0]).Status == http.StatusAccepted {
				to.brought.Add(1)
			}
			w.others = w.others[1:]
		case j.PurchaseID != uuid.Nil && w.cancels:
			to.s.Cancel(to.s.App, j.PurchaseID, uuid.NewString(), "torture")
			w.cancels = false
		case j.State.Final():
			to.ended(j, w)
			return
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// ended is what happens to a purchase when its job is final.
func (to *torture) ended(j fleet.Answer, w wish) {
	if w.card == "pm_card_pendingRefund" && j.State == job.Succeeded {
		to.add(&to.slow, j.PurchaseID)
		return
	}
	if w.part && !w.cancels {
		to.cancelPart(j.PurchaseID)
	}
	if all := to.s.Sandbox.PaymentsOf(j.PurchaseID.String()); w.beside != nil && len(all) == 1 && all[0].Captured > 1 {
		w.beside(to, all[0])
	} else if !w.part && j.State == job.Succeeded {
		to.add(&to.bought, j.PurchaseID)
	}
}

// refundsEarly gives a half back by hand when the provider has captured a payment: perhaps before our books say so.
// It reports whether it has tried.
func (to *torture) refundsEarly(bought uuid.UUID) bool {
	all := to.s.Sandbox.PaymentsOf(bought.String())
	if len(all) != 1 || all[0].Captured < 2 {
		return false
	}
	if to.refundsPart(all[0]) {
		to.refundedEarly.Add(1)
	}
	return true
}

func (to *torture) must(err error) {
	if err != nil {
		to.s.T.Error(err)
	}
}

func (to *torture) add(list *[]uuid.UUID, id uuid.UUID) {
	to.mu.Lock()
	defer to.mu.Unlock()
	*list = append(*list, id)
}

// some takes up to n purchases from a list.
func (to *torture) some(list *[]uuid.UUID, n int) []uuid.UUID {
	to.mu.Lock()
	defer to.mu.Unlock()
	n = min(n, len(*list))
	taken := slices.Clone((*list)[:n])
	*list = (*list)[n:]
	return taken
}

// cancelPart cancels the first position of a purchase, if it is bought.
func (to *torture) cancelPart(bought uuid.UUID) {
	at := "/v1/purchases/" + bought.String()
	a := to.s.Read(at)
	if a.Status != http.StatusOK {
		return // the api has just begun, or there is no purchase
	}
	if p := fleet.As[purchaseView](to.s.T, a); len(p.Positions) > 1 {
		to.s.Execute(at+"/cancel", fleet.Fields{"positions": p.Positions[:1]})
	}
}

// besides are what happens to money at the provider beside us, mostly nothing. They report
// whether it has happened.
var besides = []func(*torture, stripesim.Payment) bool{nil, nil, nil, nil, nil, nil, (*torture).refundsPart, (*torture).refundsPart, (*torture).disputesInVain, (*torture).disputes}

// refundsPart is somebody who gives a half back by hand. It is refused when more is back already.
func (to *torture) refundsPart(p stripesim.Payment) bool {
	if refundAtProvider(to.s, p.ID, p.Captured/2).Status != http.StatusOK {
		return false
	}
	to.refundedByHand.Add(1)
	return true
}

// disputesInVain and disputes are a bank whose dispute ends at once: its events come in any order.
func (to *torture) disputesInVain(p stripesim.Payment) bool { return to.dispute(p, true) }

func (to *torture) disputes(p stripesim.Payment) bool { return to.dispute(p, false) }

func (to *torture) dispute(p stripesim.Payment, won bool) bool {
	id, err := to.s.Sandbox.Dispute(p.Charge)
	if err != nil { // all was refunded before
		return false
	}
	to.disputed.Add(1)
	if bought, err := uuid.Parse(p.Metadata["purchase_id"]); err == nil && !won {
		to.add(&to.lost, bought)
	}
	to.must(to.s.Sandbox.CloseDispute(id, won))
	to.mu.Lock()
	defer to.mu.Unlock()
	to.disputeIDs = append(to.disputeIDs, id)
	return true
}

// besideAtLeastOnce has each happen to another payment, whatever the dice have said.
func (to *torture) besideAtLeastOnce() {
	paid := slices.DeleteFunc(to.s.Sandbox.Payments(), func(p stripesim.Payment) bool { return p.Captured < 2 || p.Refunded > 0 || p.Disputed })
	for _, beside := range besides {
		for done := beside == nil; !done && len(paid) > 0; paid = paid[1:] {
			done = beside(to, paid[0])
		}
	}
}

// inTimeAtLeastOnce has happen what a slow machine may be too late for: another card, and a refund before our books know of the capture.
func (to *torture) inTimeAtLeastOnce() {
	campaign := to.s.Campaign(10)
	for happened, w := range map[*atomic.Int64]wish{
		&to.brought:       {campaign: campaign, card: "pm_card_chargeDeclined", others: []string{"pm_card_visa"}},
		&to.refundedEarly: {campaign: campaign, card: "pm_card_visa", early: true},
	} {
		servers.Eventually(to.s.T, "somebody is in time", func() bool {
			if w.user = uuid.NewString(); happened.Load() == 0 {
				to.buy(w)
			}
			return happened.Load() > 0
		})
	}
}

// authenticate does what the buyer does, if it is not too late.
func (to *torture) authenticate(j fleet.Answer, outcome string) {
	for _, p := range to.s.Sandbox.PaymentsOf(j.PurchaseID.String()) {
		_ = to.s.Sandbox.Authenticate(p.ID, outcome == "succeed")
	}
}

// disturb kills or stops a process, or takes the provider or the key away for a while.
func (to *torture) disturb() {
	switch to.dice.IntN(8) {
	case 0, 1:
		to.s.Workers[to.dice.IntN(len(to.s.Workers))].Kill()
	case 2:
		w := to.s.Workers[to.dice.IntN(len(to.s.Workers))]
		if w.Signal(syscall.SIGSTOP) == nil {
			to.s.T.Cleanup(func() { _ = w.Signal(syscall.SIGCONT) })
			time.Sleep(time.Duration(to.dice.IntN(6000)) * time.Millisecond)
			_ = w.Signal(syscall.SIGCONT)
		}
	case 3:
		for _, c := range []*devstack.Child{to.s.APIs[0], to.s.Schedulers[0]} {
			c.Kill()
		}
	case 4:
		mode := []stripesim.Away{stripesim.Unavailable, stripesim.Silent}[to.dice.IntN(2)]
		to.must(to.s.Sandbox.SetAway(mode))
		time.Sleep(time.Duration(to.dice.IntN(1500)) * time.Millisecond)
		to.must(to.s.Sandbox.SetAway(stripesim.Here))
	case 5, 6:
		to.keyIsRefused()
	case 7:
		to.callsAreLate()
	}
}

// keyIsRefused takes the key away while refunds are under way, and operators see to what waits meanwhile.
func (to *torture) keyIsRefused() {
	for _, bought := range to.some(&to.slow, 3) {
		to.s.Cancel(to.s.App, bought, uuid.NewString(), "torture")
	}
	time.Sleep(time.Duration(to.dice.IntN(1000)) * time.Millisecond)
	key := []stripesim.Key{{Expired: true}, {Lacks: []string{"charge_write"}}, {Lacks: []string{"payment_intent_write"}}, {Expired: true}}[to.dice.IntN(4)]
	to.must(to.s.Sandbox.SetKey(key))
	time.Sleep(time.Duration(to.dice.IntN(3000)) * time.Millisecond)
	to.operate()
	to.must(to.s.Sandbox.SetKey(stripesim.Key{}))
}

// callsAreLate has calls arrive after their callers have given them up: parts are cancelled, and a
// refund by hand comes before the calls do.
func (to *torture) callsAreLate() {
	late := to.faults
	late.LatencyMS = 7000
	to.s.Sandbox.Set(late)
	bought := to.some(&to.bought, 4)
	for _, id := range bought {
		to.cancelPart(id)
	}
	time.Sleep(time.Duration(1500+to.dice.IntN(1000)) * time.Millisecond)
	to.s.Sandbox.Set(to.faults)
	for _, id := range bought {
		if all := to.s.Sandbox.PaymentsOf(id.String()); len(all) == 1 && refundAtProvider(to.s, all[0].ID, all[0].Captured/4).Status == http.StatusOK {
			to.refundedByHand.Add(1)
		}
	}
}

func (to *torture) cancelCampaign(id uuid.UUID) {
	key := uuid.NewString()
	servers.Eventually(to.s.T, "the cancellation of a campaign is promised", func() bool {
		a := to.s.Do(0, to.s.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/cancel", map[string]string{"Idempotency-Key": key}, fleet.Fields{"reason": "torture"})
		if a.Status == http.StatusAccepted {
			to.jobs = append(to.jobs, a.ID)
		}
		return a.Status == http.StatusAccepted
	})
}

// calm ends the faults, and waits until every job is final and every payment and refund
// has its end.
func (to *torture) calm() {
	to.s.Sandbox.Set(stripesim.Faults{})
	for _, p := range to.s.Sandbox.Payments() {
		if p.Status == "processing" {
			_ = to.s.Sandbox.Finish(p.ID, to.dice.IntN(2) == 0)
		}
	}
	open := "unknown"
	defer func() {
		if open != "" {
			to.s.T.Errorf("these have no end:\n%s", open)
		}
	}()
	servers.Eventually(to.s.T, "everything has its end", func() bool {
		to.operate()
		open = servers.Value[string](to.s.T, to.s.DB, `
			SELECT coalesce(string_agg(thing, E'\n'), '') FROM (
				SELECT 'job ' || to_jsonb(j)::text FROM jobs j WHERE state IN ('queued', 'awaiting_action')
				UNION ALL SELECT 'payment ' || to_jsonb(p)::text FROM payments p WHERE finished_at IS NULL OR due_at <= clock_timestamp()
				UNION ALL SELECT 'refund ' || to_jsonb(r)::text FROM refunds r WHERE finished_at IS NULL AND number IS NOT NULL
				UNION ALL SELECT there.id || ' of the provider, events ' || coalesce((SELECT json_agg(json_build_object('type', type, 'status', status, 'outcome', outcome) ORDER BY received_at)
					FROM payment_events WHERE object_id = there.id)::text, 'none') || coalesce((SELECT json_agg(p) FROM payments p WHERE intent_id IN (SELECT intent_id FROM payment_events WHERE object_id = there.id))::text, '')
					FROM unnest($1::text[]) there (id)
					WHERE NOT EXISTS (SELECT FROM refunds WHERE provider_id = there.id AND state = 'succeeded') AND NOT EXISTS (SELECT FROM disputes WHERE id = there.id AND closed)
			) unfinished (thing)`, append(to.refundsThere(), to.disputeIDs...))
		return open == ""
	})
}

// refundsThere are the ids of the refunds at the provider that have given money back.
func (to *torture) refundsThere() (ids []string) {
	for _, r := range to.s.Sandbox.Refunds() {
		if !r.Void && r.Status == "succeeded" {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// operate sees to the refunds that wait for an operator: the bank has given the money back
// when its dispute is lost, somebody pays by bank, and any other refund is tried again.
func (to *torture) operate() {
	type waiting struct {
		Refunds []struct {
			ID         string
			Amount     int64
			PurchaseID uuid.UUID `json:"purchase_id"`
		}
	}
	a := to.s.Do(0, to.s.Operator, http.MethodGet, "/v1/refunds?waiting_for=operator", nil, nil)
	if a.Status != http.StatusOK {
		return // the api has just begun
	}
	for _, r := range fleet.As[waiting](to.s.T, a).Refunds {
		to.mu.Lock()
		lost, byHand := slices.Contains(to.lost, r.PurchaseID), slices.Contains(to.byHand, r.PurchaseID)
		to.mu.Unlock()
		switch {
		case lost:
			to.s.Post("/v1/refunds/"+r.ID+"/resolve", fleet.Fields{"amount": r.Amount, "reason": "the bank has given it back"})
		case byHand:
			if to.s.Post("/v1/refunds/"+r.ID+"/resolve", fleet.Fields{"amount": r.Amount, "reason": "by bank transfer"}).Status == http.StatusOK {
				to.resolved.Add(1)
			}
		default:
			to.s.Post("/v1/refunds/"+r.ID+"/retry", nil)
		}
	}
}

// expectOneEach checks that no refund of ours was made twice, whatever happened beside it.
func (to *torture) expectOneEach() {
	made := make(map[string]string)
	for _, r := range to.s.Sandbox.Refunds() {
		ours := r.Metadata["refund_id"]
		if r.Void || r.Status != "succeeded" || ours == "" {
			continue
		}
		if made[ours] != "" {
			to.s.T.Errorf("the refund %s was made as %s and %s", ours, made[ours], r.ID)
		}
		made[ours] = r.ID
	}
}

// expectEnds checks the money. The audit follows at the end of the test.
func (to *torture) expectEnds() {
	expectLedgersAgree(to.s)
	to.expectOneEach()
	now := time.Now().UTC()
	env := append(to.s.Sandbox.Env(), "TRIPRIZE_POSTGRES_URL="+to.s.Settings.Postgres.URL, "TRIPRIZE_REDIS_URL="+to.s.Settings.Redis.URL)
	stdout, stderr, status := run(to.s.T, env, "audit", "payments", "--json", "--from", now.Add(-time.Hour).Format(time.RFC3339), "--to", now.Add(time.Hour).Format(time.RFC3339))
	var report struct {
		OK bool
		reconciliation.Span
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || status != 0 || !report.OK || len(report.Discrepancies) != 0 || len(report.Totals) != 1 || report.Totals[0].Charges == 0 {
		to.s.T.Errorf("the audit of payments: status %d, %s%s", status, stdout, stderr)
	}
	var sold, parts, failed, refunded int
	if err := to.s.DB.QueryRow(to.s.T.Context(), `
		SELECT count(*) FILTER (WHERE state = 'completed'), count(partial_cancellations), count(*) FILTER (WHERE state IN ('failed', 'cancelled')), count(*) FILTER (WHERE state = 'refunded')
		FROM purchases`).Scan(&sold, &parts, &failed, &refunded); err != nil {
		to.s.T.Fatal(err)
	}
	to.s.T.Logf("%d jobs: %d sold, %d in part, %d not, %d refunded; %d refunds by hand (%d around the capture), %d resolved by hand, %d disputes, %d other cards; at the provider: %+v", len(to.jobs), sold, parts, failed, refunded,
		to.refundedByHand.Load(), to.refundedEarly.Load(), to.resolved.Load(), to.disputed.Load(), to.brought.Load(), to.s.Sandbox.Totals())
	if sold == 0 || parts == 0 || failed == 0 || to.brought.Load() == 0 || to.refundedByHand.Load() == 0 || to.refundedEarly.Load() == 0 || to.disputed.Load() == 0 {
		to.s.T.Error("the run did not reach what it is about")
	}
}
