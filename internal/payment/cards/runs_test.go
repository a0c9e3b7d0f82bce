package cards_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/provider"
	"triprize/internal/testkit/servers"
)

func TestWhatAPaymentGoesThrough(t *testing.T) {
	t.Parallel()
	all := map[string]string{
		"paid in one run": `pm_card_visa: run → finalize create#1 confirm#1 capture; captured due
			steps → payment-started authorized captured; captured due
			run old → nothing; captured due`,
		"an unknown method ends without an intent": `pm_unknown: run → finalize create#1; ended refused declined=resource_missing due`,
		"a next action that is no page":            `pm_no_page: run → finalize create#1 confirm#1 cancel#requires_action; ended refused declined=authentication_required (This payment method cannot be used here: it asks for a step that is no page to visit.) due`,
		"an authentication is shown until it is done": `pm_action: run → waits! create#1 confirm#1; action due; job awaiting_action redirect_0/1, awaiting_action
			run → waits fetch; action due; job awaiting_action redirect_0/1, awaiting_action
			bank requires_action requires_capture; run → finalize! fetch capture; captured due
			steps → payment-started action-required action-done authorized captured; captured due`,
		"money on a final payment is found when an event comes": `pm_action: run; cancel; run → finalize create#1 confirm#1 cancel; ended cancelled due; job awaiting_action redirect_0/1, awaiting_action
			finalize; run → nothing fetch; cancelled cancelled; job awaiting_action redirect_0/1, awaiting_action
			bank canceled succeeded; wake; due; run → finalize fetch; captured cancelled due; job awaiting_action redirect_0/1, awaiting_action
			finalize; run → nothing disputes list; refund_due cancelled; job awaiting_action redirect_0/1, awaiting_action`,
		"a slow method that cannot be cancelled frees its positions at the deadline": `pm_processing: run → waits create#1 confirm#1; processing due
			cancel; run → waits cancel fetch; expiring cancelled uncancellable due
			time; run → finalize fetch; expiring cancelled uncancellable due leased
			finalize; run → waits fetch; late cancelled uncancellable due
			bank processing succeeded; run → finalize fetch; captured cancelled uncancellable due
			steps → payment-started processing captured; captured cancelled uncancellable due`,
		"a late method that fails ends cancelled": `pm_processing: run; time; run; finalize; bank processing requires_payment_method; run → finalize create#1 confirm#1 fetch cancel#processing fetch fetch cancel#requires_payment_method; ended expired uncancellable due`,
		"a shutdown loses nothing and begins nothing": `pm_card_visa: during confirm after: stop; run → waits create#1 confirm#1; capturing due
			due`,
		"the time is over before it begins":           `pm_card_visa: time; run → finalize; ended expired due`,
		"the time is over while the buyer is awaited": `pm_action: run; time; run → finalize! create#1 confirm#1 fetch cancel#requires_action; ended expired due`,
		"the time ends in the creation":               `pm_card_visa: during create after: time; run → finalize create#1; ended expired due`,
		"the time ends in the confirmation":           `pm_card_visa: during confirm after: time; run → finalize create#1 confirm#1 cancel#requires_capture; ended expired due`,
		"what is being captured is not given up when the time is over": `pm_card_visa: fault capture unknown; run → waits! create#1 confirm#1 capture; capturing due faults=1 waits=answer; job queued waits: the payment provider does not respond, pending
			time; run → waits fetch capture#1; capturing due faults=2 waits=answer; job queued waits: the payment provider does not respond, pending
			sql latest = deadline; run → waits fetch capture#2; capturing due faults=3 waits=operator (payment provider: sim: unknown: simulated); job queued waits: the payment waits for an operator, pending
			mended; bank requires_capture processing; run → waits fetch; capturing due waits=operator (the provider is still taking the money, after every extension of the reservation); job queued waits: the payment waits for an operator, pending
			bank processing requires_capture; run → finalize! fetch capture; captured due`,
	}
	stories(t, all)
}

// A worker that was stopped while another one went on, or whose answer is lost, does nothing twice.
func TestNothingIsDoneTwiceWhenWorkersDieOrStopOrLoseAnswers(t *testing.T) {
	t.Parallel()
	stories(t, map[string]string{
		"it dies before its confirmation": `pm_card_visa: die confirm; run → died create#1 confirm#1; confirming due leased
			run → finalize fetch confirm#1 capture; captured due`,
		"it dies after its confirmation": `pm_card_visa: die confirm after; run → died create#1 confirm#1; confirming due leased
			run → finalize fetch capture; captured due`,
		"it stops before its confirmation, and another one finishes": `pm_card_visa: during confirm: run, finalize; run → fenced create#1 confirm#1 fetch confirm#1 capture; settled
			steps → payment-started authorized captured; settled`,
		"it stops after the creation, and the payment is given up": `pm_card_visa: during create after: cancel, run, finalize; run → fenced create#1; cancelled cancelled`,
		"it renews its lease before a call that it may not cover": `pm_card_visa: settings; die confirm; run; during fetch after: sql version = version + 1; run → fenced create#1 confirm#1 fetch; confirming due leased
			run → finalize fetch confirm#1 capture; captured due`,
		"an operator resolves what a stopped worker has": `pm_card_visa: fault capture forbidden once; run; during fetch: stale, resolve unpaid; run → fenced create#1 confirm#1 capture fetch capture#1; ended unpaid due resolved=unpaid; job queued waits: the payment waits for an operator, pending`,
		"the answer of the creation is lost": `pm_card_visa: fault create unknown once after; run → waits! create#1; creating due faults=1 waits=answer; job queued waits: the payment provider does not respond, pending
			run → finalize! create#1 confirm#1 capture; captured due`,
		"the answer of the confirmation is lost": `pm_card_visa: fault confirm unknown once after; run → waits! create#1 confirm#1; confirming due faults=1 waits=answer; job queued waits: the payment provider does not respond, pending
			run → finalize! fetch capture; captured due`,
		"the answer of the capture is lost": `pm_card_visa: fault capture unknown once after; run → waits! create#1 confirm#1 capture; capturing due faults=1 waits=answer; job queued waits: the payment provider does not respond, pending
			run → finalize! fetch; captured due`,
		"faults are stored under the keys": `pm_card_visa: stored create#1 confirm#2 capture#; run; run; run; run → waits! create#1 create#1 create#2 confirm#2 fetch confirm#2:1 capture; capturing attempt=2 due faults=1 waits=answer; job queued waits: the payment provider does not respond, pending
			run → finalize! fetch capture#1; captured attempt=2 due`,
		"a key may be forgotten": `pm_card_visa: die any after; run; sql attempt_at = attempt_at - interval '23 hours 1 minute'; run → finalize create#1 create#2 confirm#2 capture; captured attempt=2 due intents=2`,
		"an event comes in a run": `pm_action: during confirm after: wake; run → waits! create#1 confirm#1; action due; job awaiting_action redirect_0/1, awaiting_action
			due`,
	})
}

func TestWhatIsNotOursIsNeitherConfirmedNorCaptured(t *testing.T) {
	t.Parallel()
	const wrong, asks = `waits=operator (what the provider has sent is not our payment: pi_0 `, `job awaiting_action redirect_0/1`
	all := make(map[string]string)
	for what, why := range map[string]string{
		"amount": "is over 1201 JPY, and ours over 1200 JPY", "currency": "is over 1200 USD, and ours over 1200 JPY", "mode": "has livemode true", "purchase": `belongs to purchase "another"`,
	} {
		all[what] = `pm_action: alter ` + what + `; run → waits! create#1; creating due faults=1 ` + wrong + why + `); job queued waits: the payment waits for an operator, pending
			mended; run → waits! create#1 confirm#1; action due; ` + asks + `, awaiting_action
			alter ` + what + `; bank requires_action requires_capture; run; run → waits fetch fetch; action due faults=2 ` + wrong + why + `); ` + asks + ` waits: the payment waits for an operator, awaiting_action
			mended; run → finalize! fetch capture; captured due`
	}
	all["captured"] = `pm_action: run; alter captured; bank requires_action requires_capture; run; run → waits create#1 confirm#1 fetch fetch; action due faults=2 waits=operator (what the provider has sent is not our payment: pi_0 has captured 1199 of 1200 JPY); job awaiting_action redirect_0/1 waits: the payment waits for an operator, awaiting_action
			mended; run → finalize! fetch capture; captured due`
	stories(t, all)
}

func TestADeclinedCardIsFollowedByAnotherOnTheSameIntent(t *testing.T) {
	t.Parallel()
	all := map[string]string{
		"another one is confirmed": `pm_declined_once: run → waits! create#1 confirm#1; declined declined=card_declined/insufficient_funds due; job awaiting_action payment_method, awaiting_action
			try pm_card_visa → ; confirming tries=1 with pm_card_visa due
			run → finalize fetch confirm#1:method-1 capture; captured tries=1 with pm_card_visa due
			steps → payment-started declined payment-method-changed authorized captured; captured tries=1 with pm_card_visa due`,
		"a decline that was none": `pm_declined: run; bank requires_payment_method requires_capture; run → finalize! create#1 confirm#1 fetch capture; captured due`,
		"a failed authentication": `pm_action: run; listen; bank requires_action requires_payment_method; run → waits! create#1 confirm#1 fetch; declined declined=card_declined (The payment was declined.) due; job awaiting_action payment_method, awaiting_action
			told → purchase.awaiting_action; declined declined=card_declined (The payment was declined.) due; job awaiting_action payment_method, awaiting_action
			try pm_action; run → waits! fetch confirm#1:method-1; action tries=1 with pm_action due; job awaiting_action redirect_0/2, awaiting_action`,
		"another one instead of an authentication":     `pm_action: run; try pm_card_visa; run → finalize create#1 confirm#1 fetch confirm#1:method-1 capture; captured tries=1 with pm_card_visa due`,
		"another one when the first was authenticated": `pm_action: run; bank requires_action requires_capture; try pm_card_visa; run → finalize create#1 confirm#1 fetch capture; captured tries=1 with pm_action due`,
		"an unknown one after a decline": `pm_declined: run; try pm_unknown; run → waits! create#1 confirm#1 fetch confirm#1:method-1 fetch; declined tries=1 with pm_unknown declined=resource_missing due; job awaiting_action payment_method, awaiting_action
			try pm_card_visa; run → finalize fetch confirm#1:method-2 capture; captured tries=2 with pm_card_visa due`,
		"nobody brings another": `pm_declined: run; sql declined_until = clock_timestamp(); try pm_card_visa → state-conflict: the time for another payment method create#1 confirm#1; declined declined=card_declined/generic_decline due; job awaiting_action payment_method, awaiting_action
			expire; run → finalize cancel; ended declined declined=card_declined/generic_decline due; job awaiting_action payment_method, awaiting_action
			steps → payment-started declined; ended declined declined=card_declined/generic_decline due; job awaiting_action payment_method, awaiting_action`,
		"nobody brings another, and a worker comes before the sweep": `pm_declined: run; sql declined_until = clock_timestamp(); run → finalize! create#1 confirm#1 fetch cancel#requires_payment_method; ended declined declined=card_declined/generic_decline due
			steps → payment-started declined; ended declined declined=card_declined/generic_decline due`,
		"four others are the most":                          `pm_declined: run; try pm_declined; run; try pm_declined; run; try pm_declined; run; try pm_declined; run → finalize create#1 confirm#1 fetch confirm#1:method-1 fetch confirm#1:method-2 fetch confirm#1:method-3 fetch confirm#1:method-4 cancel#requires_payment_method; ended declined tries=4 with pm_declined declined=card_declined/generic_decline due`,
		"four others are the most for authentications, too": `pm_action: run; try pm_action; run; try pm_action; run; try pm_action; run; try pm_action; run; try pm_card_visa → state-conflict: 4 other payment methods were tried for this purchase, which is the maximum create#1 confirm#1 fetch confirm#1:method-1 fetch confirm#1:method-2 fetch confirm#1:method-3 fetch confirm#1:method-4; action tries=4 with pm_action due; job awaiting_action redirect_0/5, awaiting_action`,
		"it was taken back":                                 `pm_declined: run; sql cancel_job = gen_random_uuid(), cancelled_by = 'app:test'; try pm_other → state-conflict: the purchase does not wait for another payment method: it has expired or was cancelled create#1 confirm#1; declined declined=card_declined/generic_decline due; job awaiting_action payment_method, awaiting_action`,
	}
	// The page of the first card is no longer what its buyer wants.
	for method, c := range map[string][2]string{"pm_unknown": {"resource_missing", " fetch"}, "pm_no_page": {"authentication_required (This payment method cannot be used here: it asks for a step that is no page to visit.)", ""}} {
		is := `; declined tries=1 with ` + method + ` declined=` + c[0] + ` due; job awaiting_action payment_method, awaiting_action`
		all["a refused one does not bring the first back: "+method] = `pm_action: run; try ` + method + `; run → waits! create#1 confirm#1 fetch confirm#1:method-1` + c[1] + is + `
			run → waits fetch` + is + `
			try pm_card_visa; run → finalize fetch confirm#1:method-2 capture; captured tries=2 with pm_card_visa due`
	}
	// The next worker gets the same answer under the same key.
	for method, then := range map[string]string{
		"pm_declined":  `waits! fetch confirm#1:method-1; declined tries=1 with pm_declined declined=card_declined/generic_decline due; job awaiting_action payment_method, awaiting_action`,
		"pm_action":    `waits! fetch confirm#1:method-1; action tries=1 with pm_action due; job awaiting_action redirect_0/2, awaiting_action`,
		"pm_card_visa": `finalize fetch capture; captured tries=1 with pm_card_visa due`,
	} {
		all["the answer about another one is lost: "+method] = `pm_declined: run; try ` + method + `; die confirm after; run → died create#1 confirm#1 fetch confirm#1:method-1; confirming tries=1 with ` + method + ` due leased
			run → ` + then
	}
	stories(t, all)
}

// Anything else than what the provider said when an operator looked is somebody's money, and calls an operator.
func TestWhatAnOperatorHasResolvedWaitsAgainOnlyForSomethingNew(t *testing.T) {
	t.Parallel()
	stories(t, map[string]string{
		"the intent is gone, and comes back": `pm_action: run; gone; fault cancel refused/resource_missing; cancel; run → waits! create#1 confirm#1 cancel fetch; expiring cancelled due faults=1 waits=operator (payment provider: sim: refused resource_missing: simulated); job queued waits: the payment waits for an operator, awaiting_action
			resolve unpaid; run; finalize; sql due_at = clock_timestamp(); run → nothing fetch; cancelled cancelled resolved=unpaid; job queued waits: the payment waits for an operator, awaiting_action
			mended; there requires_capture; fault cancel refused/not_now; run → waits! fetch cancel#requires_capture fetch; cancelled cancelled due faults=1 waits=operator (intent pi_0 in status "requires_capture") resolved=unpaid; job queued waits: the payment waits for an operator, awaiting_action
			resolve unpaid → ; cancelled cancelled due resolved=unpaid; job queued waits: the payment waits for an operator, awaiting_action
			run → nothing fetch cancel#requires_capture fetch; cancelled cancelled resolved=unpaid; job queued waits: the payment waits for an operator, awaiting_action
			there succeeded; run → finalize fetch; captured cancelled due resolved=unpaid; job queued waits: the payment waits for an operator, awaiting_action`,
		"the key is refused": `pm_card_visa: fault capture forbidden; run; fault any forbidden/api_key_expired; run → waits create#1 confirm#1 capture fetch; capturing due faults=2 waits=operator (payment provider: sim: forbidden api_key_expired: simulated); job queued waits: the payment waits for an operator, pending
			resolve unpaid; run; finalize; run; run → waits fetch fetch; cancelled unpaid due faults=2 resolved=unpaid; job queued waits: the payment waits for an operator, pending
			mended; there succeeded; run → finalize fetch; captured unpaid due resolved=unpaid; job queued waits: the payment waits for an operator, pending`,
		// What is captured, or only authorized, is believed when the provider says so, and not when an operator does.
		"it is not paid, whatever an operator says": `pm_card_visa: fault capture refused/not_now; run → waits! create#1 confirm#1 capture fetch; capturing due faults=1 waits=operator (intent pi_0 in status "requires_capture"); job queued waits: the payment waits for an operator, pending
			resolve paid → state-conflict: the provider says that the payment is requires_capture with 0 JPY received of 1200 JPY; if the money came in another way, resolve it as paid-out-of-band fetch; capturing due faults=1 waits=operator (intent pi_0 in status "requires_capture"); job queued waits: the payment waits for an operator, pending
			alter captured; resolve paid → state-conflict: the provider says that the payment is succeeded with 1199 JPY received of 1200 JPY; if the money came in another way, resolve it as paid-out-of-band fetch; capturing due faults=1 waits=operator (intent pi_0 in status "requires_capture"); job queued waits: the payment waits for an operator, pending
			mended; fault fetch unavailable once; resolve paid → unavailable: the provider cannot be queried whether it has the money; retry; if the money came in another way, resolve it as paid-out-of-band: payment provider: sim: unavailable: simulated fetch; capturing due faults=1 waits=operator (intent pi_0 in status "requires_capture"); job queued waits: the payment waits for an operator, pending
			there succeeded; resolve paid → fetch; captured due resolved=paid; job queued waits: the payment waits for an operator, pending`,
		"it is paid at the till, and its authorization ends": `pm_card_visa: fault capture refused/not_now; run; mended; resolve paid-out-of-band → create#1 confirm#1 capture fetch; captured due resolved=paid-out-of-band; job queued waits: the payment waits for an operator, pending
			finalize; run → nothing fetch cancel#requires_capture; settled resolved=paid-out-of-band; job queued waits: the payment waits for an operator, pending`,
		"it is paid at the till, and then captured by hand": `pm_card_visa: fault capture refused/not_now; run; mended; resolve paid-out-of-band; finalize; there succeeded; run → waits! create#1 confirm#1 capture fetch fetch; settled due faults=1 waits=operator (intent pi_0 in status "succeeded", and it was paid out of band: refund or cancel it at the provider) resolved=paid-out-of-band; job queued waits: the payment waits for an operator, pending
			resolve unpaid → state-conflict: the payment was paid out of band: refund the provider's money there, then resolve it as paid-out-of-band once more; settled due faults=1 waits=operator (intent pi_0 in status "succeeded", and it was paid out of band: refund or cancel it at the provider) resolved=paid-out-of-band; job queued waits: the payment waits for an operator, pending
			resolve paid-out-of-band; run → nothing fetch; settled resolved=paid-out-of-band; job queued waits: the payment waits for an operator, pending`,
		"it is only the provider that does not answer": `pm_card_visa: fault capture forbidden/no; run → waits! create#1 confirm#1 capture; capturing due faults=1 waits=operator (payment provider: sim: forbidden no: simulated); job queued waits: the payment waits for an operator, pending
			fault fetch unavailable; run → waits fetch; capturing due faults=2 waits=operator (payment provider: sim: unavailable: simulated); job queued waits: the payment waits for an operator, pending
			mended; run → finalize! fetch capture#2; captured due`,
	})
}

func TestARetryHasAPaymentLookedAtNow(t *testing.T) {
	t.Parallel()
	stories(t, map[string]string{"a retry": `pm_card_visa: retry → state-conflict <nil>; reserved due
			fault any unavailable; run; sql due_at = clock_timestamp() + interval '1 hour'; retry → answered creating create#1; creating due faults=1 waits=provider; job queued waits: the payment provider is not available, pending
			due; mended; run → finalize! create#1 confirm#1 capture; captured due`,
		"of one that is finished": `pm_card_visa: run; finalize; retry → answered settled create#1 confirm#1 capture; settled due
			run → nothing disputes list; settled`})
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	off := cards.NewService(b.db, nil, nil, func(payment.Payment) any { return nil })
	b.exec(`UPDATE payments SET waiting_for = $2, waiting_since = clock_timestamp(), due_at = NULL WHERE purchase_id = $1`, id, payment.WaitsForKey)
	finished := b.reserve("pm_card_visa")
	b.want(finished, cards.Settle, payment.Captured)
	b.settle(finished)
	for _, one := range []uuid.UUID{id, finished} {
		if done, err := off.Retry(t.Context(), fixture.Command(job.KindPaymentRetry), one); err != nil || done.Job.Problem == nil || done.Job.Problem.Code != fault.StateConflict {
			t.Errorf("while cards are disabled: %+v, %v", done.Job.Problem, err)
		}
	}
}

func TestAProviderThatIsAwayMovesTheDeadlineAndSaysSo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	before := b.get(id)
	retry := time.Now().Add(3 * time.Minute)
	away := provider.Failed(payprovider.KindUnavailable, "")
	away.RetryAt = retry
	b.sim.Fail(away)
	result := b.run(id)
	p, j := b.get(id), b.jobOf(id)
	if result.Outcome != cards.Waits || p.Phase != payment.Creating || p.Faults != 1 || p.WaitingFor == nil || !result.Announce {
		t.Fatalf("%+v %+v", result, p)
	}
	if j.Progress == nil || j.Progress.Waiting == nil || j.Progress.Waiting.Reason != payment.WaitsForProvider.Text() || !j.Progress.Waiting.RetryAt.After(before.CreatedAt.Add(2*time.Minute)) {
		t.Errorf("the job says %+v", j.Progress)
	}
	if p.DueAt.Before(before.CreatedAt.Add(2 * time.Minute)) {
		t.Errorf("due at %s, although the provider asks for %s", p.DueAt, retry)
	}
	if moved := p.Deadline.Sub(before.Deadline); moved < 2*time.Minute {
		t.Errorf("the deadline has moved by %s", moved)
	} else if !before.KeptSince.Equal(before.CreatedAt) || p.KeptSince.Sub(before.KeptSince) != moved {
		t.Errorf("this counts as the user's time: it counted from %s, and does from %s", before.KeptSince, p.KeptSince)
	}
	for range 40 {
		b.want(id, cards.Waits, payment.Creating)
	}
	if p = b.get(id); !p.Deadline.Equal(p.Latest) || p.Attempt != 1 || p.KeptSince.Sub(before.KeptSince) != p.Latest.Sub(before.Deadline) {
		t.Errorf("deadline %s, latest %s, attempt %d, kept since %s", p.Deadline, p.Latest, p.Attempt, p.KeptSince)
	}
	if got := strings.Join(b.steps(id), " "); got != "reservation-extended" {
		t.Errorf("steps %s", got)
	}
	b.sim.Mend()
	b.want(id, cards.Settle, payment.Captured)
	if p, j := b.get(id), b.jobOf(id); p.Faults != 0 || p.WaitingFor != nil || j.Progress != nil {
		t.Errorf("it still waits: %d faults, %v, %+v", p.Faults, p.WaitingFor, j.Progress)
	}
}

// try has the buyer bring another payment method, and returns why that is refused.
func (b *bench) try(id uuid.UUID, method string) *job.Problem {
	b.t.Helper()
	r := fixture.Command(job.KindPaymentTry)
	r.UserID = "buyer"
	var due []lease.Item
	done, err := commands(b.db, b.sim, &due).Try(b.t.Context(), r, id, payment.Buyer{Client: "shop", ID: "buyer"}, method, nil)
	servers.NoError(b.t, err)
	if p := b.get(id); done.Job.Problem == nil && (len(due) != 1 || due[0] != p.Ref().Item() || p.PaymentMethod != method || p.LeaseUntil != nil) {
		b.t.Fatalf("due are %+v, of %+v", due, p)
	}
	return done.Job.Problem
}

// wantTried brings another payment method.
func (b *bench) wantTried(id uuid.UUID, method string) {
	b.t.Helper()
	if why := b.try(id, method); why != nil {
		b.t.Fatal(why)
	}
}

// wantDeclined runs a payment that its card then declines, with a code.
func (b *bench) wantDeclined(id uuid.UUID, code string) payment.Payment {
	b.t.Helper()
	p := b.want(id, cards.Waits, payment.CardDeclined)
	if p.Decline == nil || p.Decline.DeclineCode != code {
		b.t.Fatalf("%+v", p.Decline)
	}
	return p
}

func TestARefusedMethodIsNoDeclineOfItsUser(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_declined")
	b.wantDeclined(id, "generic_decline")
	for _, method := range []string{"pm_unknown", "pm_no_page"} {
		b.wantTried(id, method)
		b.wantDeclined(id, "")
		b.want(b.reserve(method), cards.Settle, payment.Ended)
	}
	if n := servers.Value[int](t, b.db, `SELECT count(*) FROM payment_steps WHERE declined_user = 'buyer'`); n != 1 {
		t.Errorf("%d declines count", n)
	}
}

func TestTheTimeForAnotherCardIsNeverLongerThanTheReservation(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_declined")
	b.exec(`UPDATE payments SET deadline = clock_timestamp() + interval '1 minute' WHERE purchase_id = $1`, id)
	b.run(id)
	if p := b.get(id); p.Phase != payment.CardDeclined || !p.OverAt().Equal(p.Deadline) || !b.jobOf(id).Progress.NextAction.ExpiresAt.Equal(p.Deadline) {
		t.Errorf("%s until %s, the deadline is %s", p.Phase, p.OverAt(), p.Deadline)
	}
	b.exec(`UPDATE payments SET awaits_until = clock_timestamp() + interval '30 seconds' WHERE purchase_id = $1`, id) // as after the end of the sale
	over := servers.Value[time.Time](t, b.db, `SELECT over_at FROM payments WHERE purchase_id = $1`, id)
	if p := b.get(id); !p.OverAt().Equal(*p.AwaitsUntil) || !over.Equal(p.OverAt()) {
		t.Errorf("over at %s, in the row at %s, awaited until %s", p.OverAt(), over, p.AwaitsUntil)
	}
}

// The writes name their conditions: what was read before another change is written nowhere, and of two other cards at once one is tried.
func TestWhatPeopleDecideIsWrittenOnlyUnderWhatWasRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	declined, waits := b.reserve("pm_declined"), b.reserve("pm_card_visa")
	p := b.wantDeclined(declined, "generic_decline")
	b.exec(`UPDATE payments SET phase = 'capturing', intent_id = 'pi_1', waiting_for = $2 WHERE purchase_id = $1`, waits, payment.WaitsForOperator)
	read := b.get(waits)
	write := func(id uuid.UUID, change string) error {
		return postgres.InTx(t.Context(), b.db, func(tx pgx.Tx) error {
			var batch pgx.Batch
			if change != "" {
				batch.Queue(`UPDATE payments SET `+change+` WHERE purchase_id = $1`, id)
			}
			if id == declined {
				payment.QueueTry(&batch, &p, "pm_other", nil)
			} else {
				payment.QueueResolve(&batch, read.PurchaseID, says(read, payment.FoundUnpaid), payprovider.Intent{})
			}
			return tx.SendBatch(t.Context(), &batch).Close()
		})
	}
	for id, changes := range map[uuid.UUID][]string{
		declined: {`phase = 'processing'`, `version = version + 1`, `tries = 4`, `declined_until = clock_timestamp()`, `cancel_job = gen_random_uuid(), cancelled_by = 'app:test'`},
		waits:    {`phase = 'confirming'`, `phase = 'settled', received = amount, finished_at = clock_timestamp()`, `version = version + 1`, `waiting_for = NULL`, `lease_until = clock_timestamp() + interval '1 hour'`},
	} {
		for _, change := range changes {
			if err := write(id, change); fault.CodeOf(err) != fault.StateConflict {
				t.Errorf("%s: %v", change, err)
			}
		}
		servers.NoError(t, write(id, ""))
		if err := write(id, ""); fault.CodeOf(err) != fault.StateConflict {
			t.Errorf("the second: %v", err)
		}
	}
}

// The tenth ends its purchase at once: its buyer could bring no other card.
func TestTenDeclinesInAnHourAreTheMost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	open := b.reserve("pm_action")
	b.want(open, cards.Waits, payment.Action)
	first := b.reserve("pm_declined")
	for range payment.MaxTries {
		b.wantDeclined(first, "generic_decline")
		b.wantTried(first, "pm_declined")
	}
	b.want(first, cards.Settle, payment.Ended) // five
	second, third := b.reserve("pm_declined"), b.reserve("pm_declined")
	for range 2 {
		b.wantDeclined(second, "generic_decline")
		b.wantTried(second, "pm_declined")
	}
	b.wantDeclined(second, "generic_decline") // eight
	if why := b.try(second, "pm_card_visa"); why == nil || why.Code != fault.DeclineLimitExceeded || !why.RetryAt.After(time.Now()) {
		t.Fatalf("while two others are being tried: %+v", why)
	}
	b.wantDeclined(third, "generic_decline") // nine
	b.wantTried(open, "pm_declined")         // its own card that is being tried does not count
	if p := b.want(open, cards.Settle, payment.Ended); *p.Ending != payment.Declined || p.Decline == nil {
		t.Errorf("after the tenth: %+v", p)
	}
	for _, id := range []uuid.UUID{second, third} {
		why := b.try(id, "pm_card_visa")
		if why == nil || why.Code != fault.DeclineLimitExceeded || why.RetryAt.Before(time.Now().Add(50*time.Minute)) {
			t.Fatalf("another card: %+v", why)
		}
	}
	b.exec(`UPDATE payment_steps SET at = at - interval '1 hour' WHERE purchase_id = $1`, first)
	b.wantTried(second, "pm_card_visa")
}
