package sale_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// outOfTime makes a payment late, whose positions are free again then.
func outOfTime(t *testing.T, db *pgxpool.Pool, bought uuid.UUID, ref job.Ref) {
	t.Helper()
	fixture.Advance(t, db, bought, payment.Processing)
	fixture.Advance(t, db, bought, payment.Expiring)
	setPayment(t, db, bought, `uncancellable = true, deadline = clock_timestamp()`)
	fixture.SettlePayments(t, db, ref)
	if p := fixture.Payment(t, db, bought); p.Phase != payment.Late || p.DueAt == nil {
		t.Fatalf("not late: %+v", p)
	}
}

// late makes a payment for positions of a campaign that is late: they are free again, and
// its money is there.
func late(t *testing.T, db *pgxpool.Pool, request job.Request) (bought uuid.UUID, ref job.Ref) {
	t.Helper()
	bought, ref = fixture.ReserveFor(t, db, request, time.Hour)
	outOfTime(t, db, bought, ref)
	fixture.Advance(t, db, bought, payment.Captured)
	return bought, ref
}

// A buyer wants 2/1, 3/1 and 3/2.
func TestWhatBecomesOfAPaymentWhoseEndIsKnown(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	bought3 := now{purchase.Completed, payment.Settled, job.Succeeded, "", "", 0, 3}
	refunding := func(code fault.Code, reason payment.RefundReason) now {
		return now{purchase.Refunding, payment.RefundDue, job.Failed, code, reason, 0, 0}
	}
	tooLate := refunding(fault.ReservationExpired, payment.RefundLatePayment)
	ends := func(state purchase.State, code fault.Code) now {
		return now{state, payment.Cancelled, job.Failed, code, "", 0, 0}
	}
	const released, refunded = "reserved released", "reserved released refund-requested"
	const lateBack = "reserved released payment-late refund-requested"
	type bought struct { // a purchase and its job, which has begun
		campaign, id uuid.UUID
		ref          job.Ref
	}
	advance := func(phases ...payment.Phase) func(b bought) {
		return func(b bought) {
			for _, phase := range phases {
				fixture.Advance(t, db, b.id, phase)
			}
		}
	}
	cancels := func(b bought) { takeBack(t, db, b.campaign, b.id) }
	endsAs := func(ending payment.Ending) func(b bought) {
		return func(b bought) { fixture.EndAs(t, db, b.id, ending) }
	}
	ended := func(b bought) { endCampaign(t, db, b.campaign) }
	isLate := func(b bought) { outOfTime(t, db, b.id, b.ref) }
	captured := advance(payment.Captured)
	set := func(sql string) func(b bought) {
		return func(b bought) { setPayment(t, db, b.id, sql) }
	}
	for name, c := range map[string]struct {
		happens []func(b bought)
		want    now
		steps   string
	}{
		"captured":                                                   {[]func(bought){captured}, bought3, "reserved"},
		"captured though its time was over":                          {[]func(bought){advance(payment.Expiring, payment.Captured)}, bought3, "reserved"},
		"captured in a cancelled campaign":                           {[]func(bought){captured, ended}, refunding(fault.CampaignNotActive, payment.RefundCampaignCancelled), refunded},
		"captured and cancelled meanwhile":                           {[]func(bought){advance(payment.Capturing), cancels, captured}, refunding(fault.PurchaseCancelled, payment.RefundPurchaseCancelled), refunded},
		"captured after its buyer gave it up":                        {[]func(bought){advance(payment.Confirming), cancels, captured}, refunding(fault.PurchaseCancelled, payment.RefundPurchaseCancelled), refunded},
		"captured, and cancelled by its buyer and with its campaign": {[]func(bought){captured, cancels, ended}, refunding(fault.PurchaseCancelled, payment.RefundPurchaseCancelled), refunded},
		"expired":                    {[]func(bought){endsAs(payment.Expired)}, ends(purchase.Failed, fault.ReservationExpired), released},
		"declined":                   {[]func(bought){endsAs(payment.Declined)}, ends(purchase.Failed, fault.PaymentDeclined), released},
		"refused":                    {[]func(bought){endsAs(payment.Refused)}, ends(purchase.Failed, fault.PaymentRefused), released},
		"given up with its campaign": {[]func(bought){endsAs(payment.CampaignCancelled), ended}, ends(purchase.Failed, fault.CampaignNotActive), released},
		"given up by its buyer":      {[]func(bought){cancels, advance(payment.Ended)}, ends(purchase.Cancelled, fault.PurchaseCancelled), released},
		"cancelled while it was captured, which did not succeed": {[]func(bought){advance(payment.Capturing), cancels, endsAs(payment.Expired)}, ends(purchase.Cancelled, fault.PurchaseCancelled), released},
		"over, and not to be cancelled":                          {[]func(bought){advance(payment.Processing, payment.Expiring), set(`uncancellable = true, deadline = clock_timestamp()`)}, now{purchase.Pending, payment.Late, job.Queued, "", "", 0, 0}, released},
		"not to be cancelled, and not over yet":                  {[]func(bought){advance(payment.Processing, payment.Expiring), set(`uncancellable = true`)}, now{purchase.Pending, payment.Expiring, job.Queued, "", "", 3, 0}, "reserved"},
		"late, and its money does not come":                      {[]func(bought){isLate, endsAs(payment.Expired)}, ends(purchase.Failed, fault.ReservationExpired), released},
		"late, and its positions are free":                       {[]func(bought){isLate, captured}, tooLate, lateBack},
		"late, and another has reserved its positions": {[]func(bought){isLate, func(b bought) {
			fixture.ReserveFor(t, db, fixture.CardRequest(t, b.campaign, "b", 2, 2), time.Hour)
		}, captured}, tooLate, lateBack},
		"late, and the sale is paused": {[]func(bought){isLate, func(b bought) {
			servers.Exec(t, db, `UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, b.campaign)
		}, captured}, tooLate, lateBack},
		"late, and it is sold out":            {[]func(bought){isLate, func(b bought) { fixture.SellOut(t, db, b.campaign) }, captured}, tooLate, lateBack},
		"late, and its campaign is cancelled": {[]func(bought){isLate, ended, captured}, refunding(fault.CampaignNotActive, payment.RefundCampaignCancelled), refunded},
	} {
		b := bought{campaign: fixture.Campaign(t, db, fixture.Draft(4))}
		b.id, b.ref = fixture.ReserveFor(t, db, fixture.PurchaseRequestOf(t, b.campaign, sale.Order{UserID: "a", Selection: fixture.Chosen(at(2, 1), at(3, 1), at(3, 2)),
			Payment: sale.Payment{Method: purchase.Card, PaymentMethod: "pm"}}), time.Hour)
		for _, happens := range c.happens {
			happens(b)
		}
		before := counts(t, db, b.campaign)
		report := fixture.SettlePayments(t, db, b.ref, b.ref) // two tasks may be for one payment
		if got := nowOf(t, db, b.id, b.ref); got != c.want {
			t.Errorf("%s: %+v; want %+v", name, got, c.want)
		}
		if n := counts(t, db, b.campaign); n.Sold != before.Sold+c.want.Sold {
			t.Errorf("%s: counted %+v, before %+v", name, n, before)
		}
		if s := stepsOf(t, db, b.id); s != c.steps {
			t.Errorf("%s: steps %s", name, s)
		}
		due := map[bool]string{c.want.Refund != "": "refund", c.want.Payment == payment.Late: "payment"}[true]
		if len(report.Due) > 1 || (len(report.Due) == 1) != (due != "") || due != "" && report.Due[0].Kind != due || report.Sold != c.want.Sold {
			t.Errorf("%s: %+v", name, report)
		}
		p := purchaseOf(t, db, b.id)
		if p.Amount != 800 || len(p.Items) != 3 || p.Items[0].Layer != 2 || p.Items[1].Layer != 3 || p.Items[2].Layer != 3 {
			t.Errorf("%s: %+v", name, p)
		}
		if j := fixture.Job(t, db, b.ref.ID); c.want == bought3 && !slices.Equal(resultOf(t, j).Positions, p.Items) || !isAsOf(t, db, b.ref.ID) {
			t.Errorf("%s: the result is %s", name, j.Result)
		}
		if again := fixture.SettlePayments(t, db, b.ref); len(again.Outcomes)+len(again.Due)+again.Sold != 0 {
			t.Errorf("%s, again: %+v", name, again)
		}
	}
	fixture.Sound(t, db)
}

// isAsOf tells whether the result of a job, if it has one, names the version of the board that it
// has made. The campaign is quiet.
func isAsOf(t *testing.T, db *pgxpool.Pool, jobID uuid.UUID) bool {
	t.Helper()
	return servers.Value[bool](t, db, `
		SELECT coalesce((j.result ->> 'board_version')::bigint = c.board_version, j.state <> 'succeeded')
		FROM jobs j JOIN campaigns c ON c.id = j.campaign_id WHERE j.id = $1`, jobID)
}

func TestNothingBecomesOfPaymentsThatGoOn(t *testing.T) {
	db, id := campaignOn(t, 6)
	refs := []job.Ref{{ID: uuid.New(), CampaignID: id}, {ID: uuid.New(), CampaignID: uuid.New()}} // and of no payments
	for _, phase := range []payment.Phase{payment.Reserved, payment.Creating, payment.Confirming, payment.Action, payment.Processing, payment.Capturing, payment.Expiring} {
		bought, ref := fixture.Reserve(t, db, id, "a", 2, -time.Second)
		fixture.Advance(t, db, bought, phase)
		refs = append(refs, ref)
	}
	changed := fixture.Watch(t, db)
	if report := fixture.SettlePayments(t, db, refs...); len(report.Outcomes) != 0 {
		t.Errorf("%+v", report)
	}
	changed(``)
	fixture.Sound(t, db)
}

func TestACancellationThatWaitedForAPaymentSaysWhatBecameOfIt(t *testing.T) {
	db, id := campaignOn(t, 4)
	for end, want := range map[payment.Phase]string{payment.Ended: "cancelled 1,1", payment.Captured: "refunding 1,1"} {
		bought, ref := fixture.ReserveFor(t, db, fixture.CardRequest(t, id, "a", 1, 1), time.Hour)
		fixture.Advance(t, db, bought, payment.Action)
		back := takeBack(t, db, id, bought)
		if j := fixture.Job(t, db, ref.ID); j.State != job.Queued || j.Progress != nil {
			t.Errorf("the job still asks its buyer: %s, %+v", j.State, j.Progress)
		}
		if again := complete(t, fixture.Seller(db), back); len(again.Outcomes)+len(again.Due)+len(again.Busy) != 0 {
			t.Errorf("delivered again: %+v", again)
		}
		refused(t, "another cancellation", cancel(t, db, fixture.CancelRequest(t, id, bought)), "is being cancelled already")
		fixture.Advance(t, db, bought, end)
		report := fixture.SettlePayments(t, db, ref)
		j := fixture.Job(t, db, back.ID)
		if expect(t, string(end), []job.Job{j}, want); resultOf(t, j).Amount != 100 || !isAsOf(t, db, back.ID) || len(report.Outcomes) != 2 {
			t.Errorf("%s: %s, %s, %+v", end, j.State, j.Result, report)
		}
		if p := purchaseOf(t, db, bought); p.Failure != nil || p.Cancellation == nil || p.Cancellation.By != "app:test" || *p.Cancellation.Reason != "a test" || p.CompletedAt != nil {
			t.Errorf("%s: %+v", end, p)
		}
		refused(t, "a late cancellation", cancel(t, db, fixture.CancelRequest(t, id, bought)), "already")
	}
	bought, _ := fixture.Reserve(t, db, id, "a", 1, time.Hour)
	fixture.Advance(t, db, bought, payment.Expiring)
	refused(t, "what expires", cancel(t, db, fixture.CancelRequest(t, id, bought)), "already being cancelled")
	fixture.Sound(t, db)
}

// A slow method cannot be cancelled at the provider. Its buyer is told of
// the cancellation when the positions are free, and not when the payment ends hours later; what it
// still brings goes back.
func TestTheCancellationOfASlowPaymentEndsWhenItsPositionsAreFree(t *testing.T) {
	db, id := campaignOn(t, 3)
	bought, ref := fixture.Reserve(t, db, id, "mina", 2, time.Hour)
	fixture.Advance(t, db, bought, payment.Processing)
	back := takeBack(t, db, id, bought)
	setPayment(t, db, bought, `uncancellable = true`)
	fixture.SettlePayments(t, db, ref) // its time is not over: the positions are still its own
	expect(t, "too early", jobsOf(t, db, []job.Ref{back}), "queued")
	setPayment(t, db, bought, `deadline = clock_timestamp()`)
	fixture.SettlePayments(t, db, ref)
	expect(t, "when they are free", jobsOf(t, db, []job.Ref{back, ref}), "any 3", "purchase-cancelled")
	if p := fixture.Payment(t, db, bought); p.Phase != payment.Cancelled || p.DueAt == nil {
		t.Errorf("the payment is %s, due at %v", p.Phase, p.DueAt)
	}
	fixture.Sound(t, db)
	money := fixture.Payment(t, db, bought)
	money.Phase, money.Received = payment.Captured, money.Amount
	servers.NoError(t, payment.Write(t.Context(), db, &money, payment.Always, 0, nil))
	fixture.SettlePayments(t, db, ref)
	if p := purchaseOf(t, db, bought); p.State != purchase.Refunding {
		t.Errorf("late money: the purchase is %s", p.State)
	}
	fixture.Sound(t, db)
}

// When a payment changes after it was final here, its money goes back, once.
func TestMoneyThatAppearsOnAFinalPurchaseIsRefundedOnce(t *testing.T) {
	db, id := campaignOn(t, 6)
	endsAs := func(ending payment.Ending) func(bought uuid.UUID) {
		return func(bought uuid.UUID) { fixture.EndAs(t, db, bought, ending) }
	}
	for name, c := range map[string]struct {
		ended  func(bought uuid.UUID)
		code   fault.Code
		reason payment.RefundReason
	}{
		"failed":             {endsAs(payment.Declined), fault.PaymentDeclined, payment.RefundLatePayment},
		"cancelled":          {func(bought uuid.UUID) { takeBack(t, db, id, bought); fixture.Advance(t, db, bought, payment.Ended) }, fault.PurchaseCancelled, payment.RefundPurchaseCancelled},
		"with its campaign":  {endsAs(payment.CampaignCancelled), fault.CampaignNotActive, payment.RefundCampaignCancelled},
		"its job is deleted": {endsAs(payment.Expired), "", payment.RefundLatePayment},
	} {
		bought, ref := fixture.Reserve(t, db, id, "a", 2, time.Hour)
		fixture.Advance(t, db, bought, payment.Confirming)
		c.ended(bought)
		fixture.SettlePayments(t, db, ref)
		if p := fixture.Payment(t, db, bought); p.DueAt == nil || p.FinishedAt == nil {
			t.Errorf("%s: nobody looks at it once more: %+v", name, p)
		}
		if c.code == "" {
			servers.Exec(t, db, `DELETE FROM jobs WHERE id = $1`, ref.ID)
		}
		for round := range 2 {
			fixture.Advance(t, db, bought, payment.Captured)
			report := fixture.SettlePayments(t, db, ref)
			if (len(report.Due) == 1) != (round == 0) || len(report.Outcomes) != 0 {
				t.Errorf("%s, round %d: %+v", name, round, report)
			}
		}
		if p := purchaseOf(t, db, bought); p.State != purchase.Refunding || fixture.Payment(t, db, bought).Phase != payment.RefundDue || (p.Cancellation != nil) != (name == "cancelled") {
			t.Errorf("%s: %+v", name, p)
		}
		if reason := servers.Value[payment.RefundReason](t, db, `SELECT reason FROM refunds WHERE purchase_id = $1`, bought); reason != c.reason {
			t.Errorf("%s: refunded for %s", name, reason)
		}
		if c.code != "" {
			expectCodes(t, db, []job.Ref{ref}, c.code)
		}
	}
	fixture.Sound(t, db)
}

func TestADeclineIsToldInTheWordsOfTheProvider(t *testing.T) {
	db, id := campaignOn(t, 3)
	bought, ref := fixture.Reserve(t, db, id, "a", 1, time.Hour)
	setPayment(t, db, bought, `decline = '{"code": "card_declined", "decline_code": "insufficient_funds", "advice": "try_again_later", "message": "Your card has insufficient funds."}'`)
	fixture.EndAs(t, db, bought, payment.Declined)
	fixture.SettlePayments(t, db, ref)
	p := fixture.Job(t, db, ref.ID).Problem
	if p.Code != fault.PaymentDeclined || p.Detail != "Your card has insufficient funds." || p.DeclineCode != "insufficient_funds" || p.Advice != "try_again_later" {
		t.Errorf("%+v", p)
	}
}
