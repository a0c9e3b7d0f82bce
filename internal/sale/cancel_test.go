package sale_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// The positions, the money and the limit are free again; a cancellation that is delivered again, when
// the positions have been sold to another, changes nothing.
func TestACancelledPurchaseGivesBackPositionsMoneyAndLimit(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft, limit := fixture.Draft(4), 2
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, db, draft)
	fixture.Wallet(t, db, "a", 1000)
	bought := resultOf(t, fixture.Complete(t, db, fixture.WalletRequest(t, id, "a", 2, 2))[0]).PurchaseID
	ref := fixture.Accept(t, db, fixture.CancelRequestOf(t, id, sale.Cancellation{PurchaseID: bought, By: "user:jwt:x/a", Reason: "changed my mind"}))[0]
	changed := fixture.Watch(t, db)
	complete(t, fixture.Seller(db), ref)
	changed(`
		~ campaign 1: positions_sold=2 board_version=1 → board_version=2
		~ position 2,1: sold a purchase 1 v1 board_version=1 → free v2 board_version=2
		~ position 2,2: sold a purchase 1 v1 board_version=1 → free v2 board_version=2
		~ job 2: queued → succeeded result={amount: 400, board_version: 2, positions: 2,1@200 2,2@200, purchase_id: purchase 1, state: cancelled} attempts=1
		~ purchase 1: completed → cancelled; → cancelled_by=user:jwt:x/a cancel_reason=changed my mind
		+ refund 1 wallet 400 succeeded purchase 1 number=1 user_id=a reason=cancelled
		~ wallet a: 600 v2 → 1000 v3
		+ entry 3 refund 400 refunds → wallet a v3 balance 400 reference=refund:job 1 description=cancelled purchase job 1 purchase 1 actor=user:jwt:x/a`)
	want := fmt.Sprintf(`{"purchase_id":"%s","state":"cancelled","positions":[{"layer":2,"column":1,"number":2,"label":"2","price":200},{"layer":2,"column":2,"number":3,"label":"3","price":200}],"amount":400,"currency":"JPY","board_version":2}`, bought)
	if j := fixture.Job(t, db, ref.ID); string(j.Result) != want {
		t.Errorf("the job: %s %s", j.State, j.Result)
	}
	if again := fixture.Buy(t, db, id, "b", 2, 2); again == bought || fixture.Buy(t, db, id, "a", 3, 2) == bought {
		t.Error("a new sale is the old purchase")
	}
	changed = fixture.Watch(t, db)
	if again := complete(t, fixture.Seller(db), ref); len(again.Outcomes)+len(again.Busy) != 0 {
		t.Errorf("got %+v", again)
	}
	changed(``)
	refused(t, "with another key", cancel(t, db, fixture.CancelRequest(t, id, bought)), "cancelled already")
	fixture.Sound(t, db)
}

func TestACancelledPartIsGivenBackAndTheRestIsKept(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft, limit := fixture.Draft(4), 3
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, db, draft)
	fixture.Wallet(t, db, "a", 1000)
	bought := resultOf(t, fixture.Complete(t, db, fixture.WalletRequest(t, id, "a", 3, 3))[0]).PurchaseID
	changed := fixture.Watch(t, db)
	cancel(t, db, partOf(t, id, bought, at(3, 2)))
	changed(`
		~ campaign 1: positions_sold=3 board_version=1 → positions_sold=2 board_version=2
		~ position 3,2: sold a purchase 1 v1 board_version=1 → free v2 board_version=2
		+ job 2 cancellation succeeded result={amount: 300, board_version: 2, positions: 3,2@300, purchase_id: purchase 1, state: completed} attempts=1
		+ message 2 cancellation job 2
		~ purchase 1: 3,2@300 →; → partial_cancellations={amount: 300, by: app:test, job_id: job 2, positions: 3,2@300, reason: a friend is ill}
		+ refund 1 wallet 300 succeeded purchase 1 number=1 user_id=a reason=cancelled
		~ wallet a: 100 v2 → 400 v3
		+ entry 3 refund 300 refunds → wallet a v3 balance 300 reference=refund:job 1:job 2 description=cancelled part of purchase job 1 purchase 1 actor=app:test`)
	fixture.Buy(t, db, id, "a", 1, 1) // the limit counts the rest
	expect(t, "another has the position", fixture.Complete(t, db, fixture.ChosenRequest(t, id, "b", at(3, 2))), "3,2")
	refused(t, "again", cancel(t, db, partOf(t, id, bought, at(3, 1), at(3, 2))), "cancelled already")
	changed = fixture.Watch(t, db)
	cancel(t, db, partOf(t, id, bought, at(3, 1), at(3, 3))) // all that is left
	changed(`
		~ campaign 1: positions_sold=4 board_version=4 → positions_sold=2 board_version=5
		~ position 3,1: sold a purchase 1 v1 board_version=1 → free v2 board_version=5
		~ position 3,3: sold a purchase 1 v1 board_version=1 → free v2 board_version=5
		+ job 6 cancellation succeeded result={amount: 600, board_version: 5, positions: 3,1@300 3,3@300, purchase_id: purchase 1, state: cancelled} attempts=1
		+ message 6 cancellation job 6
		~ purchase 1: completed → cancelled; → cancelled_by=app:test cancel_reason=a friend is ill
		+ refund 2 wallet 600 succeeded purchase 1 number=2 user_id=a reason=cancelled
		~ wallet a: 400 v3 → 1000 v4
		+ entry 4 refund 600 refunds → wallet a v4 balance 600 reference=refund:job 1 description=cancelled purchase job 1 purchase 1 actor=app:test`)
	both := resultOf(t, fixture.Complete(t, db, fixture.WalletRequest(t, id, "a", 2, 2))[0]).PurchaseID
	complete(t, fixture.Seller(db), fixture.Accept(t, db, partOf(t, id, both, at(2, 1)), partOf(t, id, both, at(2, 2)))...) // in one transaction: the second has become the rest
	if p := purchaseOf(t, db, both); p.State != purchase.Cancelled || len(p.Partial) != 1 {
		t.Errorf("part by part: %+v", p)
	}
	fixture.Sound(t, db)
}

// What an app owes its buyers is listed, what a wallet got back has succeeded, and what a card gets is due: of
// each part, and of the rest, many in one transaction.
func TestEveryCancellationHasItsRefundHoweverItWasPaid(t *testing.T) {
	t.Parallel()
	for method, c := range map[purchase.PaymentMethod]struct {
		state string
		due   int
		whole purchase.State
	}{purchase.External: {"listed", 0, purchase.Cancelled}, purchase.Wallet: {"succeeded", 0, purchase.Cancelled}, purchase.Card: {"open", 2, purchase.Refunding}} {
		db := servers.DB(t)
		id := fixture.Campaign(t, db, fixture.Draft(5))
		fixture.Wallet(t, db, "a", 5000)
		request := fixture.PurchaseRequestOf(t, id, sale.Order{UserID: "a", Selection: fixture.Random(5, 5), Payment: sale.Payment{Method: method, PaymentMethod: "pm_1"}})
		var bought uuid.UUID
		if method == purchase.Card {
			var ref job.Ref
			bought, ref = fixture.ReserveFor(t, db, request, time.Hour)
			fixture.Advance(t, db, bought, payment.Captured)
			fixture.SettlePayments(t, db, ref)
		} else {
			bought = resultOf(t, fixture.Complete(t, db, request)[0]).PurchaseID
		}
		cancel(t, db, partOf(t, id, bought, at(5, 1)))
		fixture.Sound(t, db)
		refs := fixture.Accept(t, db, partOf(t, id, bought, at(5, 2), at(5, 3)), partOf(t, id, bought, at(5, 3)), fixture.CancelRequest(t, id, bought), partOf(t, id, bought, at(5, 5)))
		delivered := slices.Clone(refs)
		slices.Reverse(delivered) // they are decided in the order of arrival
		report := complete(t, fixture.Seller(db), delivered...)
		expect(t, string(method), jobsOf(t, db, refs), "completed 5,2 5,3", "state-conflict", string(c.whole)+" 5,4 5,5", "state-conflict")
		refused(t, "a position that is cancelled", fixture.Job(t, db, refs[1].ID), "cancelled already")
		refused(t, "after the whole", fixture.Job(t, db, refs[3].ID), "already")
		rows := servers.Value[string](t, db, `SELECT string_agg(format('%s %s %s', number, amount, state), ', ' ORDER BY number) FROM refunds
			WHERE reason = 'cancelled' AND (due_at IS NULL) = (method <> 'card') AND (finished_at IS NOT NULL) = (state = 'succeeded')`)
		if want := fmt.Sprintf("1 500 %s, 2 1000 %[1]s, 3 1000 %[1]s", c.state); rows != want || len(report.Due) != c.due {
			t.Errorf("%s: refunds %s, want %s; %d are due", method, rows, want, len(report.Due))
		}
		if method == purchase.Card && stepsOf(t, db, bought) != "reserved refund-requested refund-requested refund-requested" {
			t.Errorf("steps %s", stepsOf(t, db, bought))
		}
		fixture.Sound(t, db)
	}
}

func TestOfTwentyCancellationsAtOnceOneSucceeds(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for what, positions := range map[string][]shape.Position{"of a purchase": nil, "of a position": {at(4, 1)}} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		bought := fixture.Buy(t, db, id, "a", 4, 4)
		var requests []job.Request
		for range 20 {
			requests = append(requests, partOf(t, id, bought, positions...))
		}
		refs := fixture.Accept(t, db, requests...)
		seller := fixture.Seller(db)
		var all sync.WaitGroup
		for _, ref := range append(refs, refs...) { // each is delivered twice
			all.Go(func() { complete(t, seller, ref) })
		}
		all.Wait()
		succeeded := 0
		for _, j := range jobsOf(t, db, refs) {
			if j.State == job.Succeeded {
				succeeded++
			} else {
				refused(t, "another", j, "cancelled already")
			}
		}
		if p := purchaseOf(t, db, bought); succeeded != 1 || len(p.Partial) != len(positions) || counts(t, db, id).Sold != map[bool]int{true: 0, false: 3}[positions == nil] {
			t.Errorf("%s: %d succeeded, %+v", what, succeeded, p)
		}
	}
	fixture.Sound(t, db)
}

func TestAfterTheDeadlineOnlyAnOperatorCancels(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft, until := fixture.Draft(4), time.Now().Add(time.Hour).UTC()
	draft.Policies.CancellationUntil = &until
	id := fixture.Campaign(t, db, draft)
	inTime, waited := fixture.Buy(t, db, id, "a", 0, 1), fixture.Buy(t, db, id, "b", 0, 1)
	late, operators := fixture.Buy(t, db, id, "c", 0, 2), fixture.Buy(t, db, id, "d", 0, 1)
	expect(t, "in time", []job.Job{cancel(t, db, fixture.CancelRequest(t, id, inTime))}, "any 2") // cancelled, and its position
	asked := fixture.Accept(t, db, fixture.CancelRequest(t, id, waited))[0]
	day := servers.Value[string](t, db, `UPDATE campaigns SET policies = jsonb_set(policies, '{cancellation_until}', to_jsonb(clock_timestamp())) RETURNING left(policies->>'cancellation_until', 11)`)
	refused(t, "late", cancel(t, db, fixture.CancelRequest(t, id, late)), "could be cancelled until "+day)
	refused(t, "a part of it", cancel(t, db, partOf(t, id, late, positionsOf(purchaseOf(t, db, late))[0])), "could be cancelled until "+day)
	complete(t, fixture.Seller(db), asked)
	expectCodes(t, db, []job.Ref{asked}, "") // asked in time, and only the queue was late
	if j := cancel(t, db, byOperator(t, id, operators)); j.State != job.Succeeded || purchaseOf(t, db, operators).Cancellation.Reason != nil {
		t.Errorf("an operator, who need not say why: %+v", j.Problem)
	}
	open, _ := fixture.Reserve(t, db, id, "e", 1, time.Hour)
	takeBack(t, db, id, open) // the deadline is for what is bought
	fixture.Sound(t, db)
}

func TestWhatCannotBeCancelledIsRefusedAndSaysWhy(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	drawing := fixture.Campaign(t, db, fixture.Draft(3))
	last := fixture.Buy(t, db, drawing, "a", 0, 6)
	refused(t, "the campaign is drawing", cancel(t, db, byOperator(t, drawing, last)), "drawing: its sale has ended")
	refused(t, "a part of that", cancel(t, db, partOf(t, drawing, last, at(1, 1))), "drawing")

	id := fixture.Campaign(t, db, fixture.Draft(4))
	failed, ref := fixture.Reserve(t, db, id, "a", 1, time.Hour)
	fixture.EndAs(t, db, failed, payment.Expired)
	fixture.SettlePayments(t, db, ref)
	refused(t, "a failed purchase", cancel(t, db, byOperator(t, id, failed)), "the purchase is failed")
	pending, _ := fixture.Reserve(t, db, id, "a", 2, time.Hour)
	refused(t, "a part that is not paid yet", cancel(t, db, partOf(t, id, pending, positionsOf(purchaseOf(t, db, pending))[0])), "the purchase is pending")
	if j := cancel(t, db, byOperator(t, id, uuid.New())); j.State != job.Failed || j.Problem.Code != fault.NotFound {
		t.Errorf("no purchase: %s, %+v", j.State, j.Problem)
	}
	external := fixture.Buy(t, db, id, "c", 0, 2)
	refused(t, "of another purchase", cancel(t, db, partOf(t, id, external, positionsOf(purchaseOf(t, db, pending))[0])), "has no position")
	servers.Exec(t, db, `UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, id)
	expect(t, "in a pause it can be", []job.Job{cancel(t, db, byOperator(t, id, external))}, "any 3") // cancelled, and its positions
	servers.Exec(t, db, `UPDATE campaigns SET paused_at = NULL WHERE id = $1`, id)
	external = fixture.Buy(t, db, id, "c", 0, 1)
	endCampaign(t, db, id)
	refused(t, "the campaign is cancelled", cancel(t, db, byOperator(t, id, external)), "the campaign is cancelled")
	if n := counts(t, db, id); n.Sold != 1 || n.Reserved != 2 {
		t.Errorf("%+v", n)
	}
	fixture.Sound(t, db)
}

func TestADisputedPurchaseIsCancelledByOperatorsOnly(t *testing.T) {
	db, id := campaignOn(t, 6)
	for name, c := range map[string]struct {
		dispute  string
		captured bool // and not settled yet
		operator bool
		refused  bool
	}{
		"open":                  {`"status":"needs_response","refundable":false`, false, false, true},
		"lost":                  {`"status":"lost","refundable":false`, false, false, true},
		"won":                   {`"status":"won","refundable":true`, false, false, false},
		"only an inquiry":       {`"status":"warning_needs_response","refundable":true`, false, false, false},
		"an inquiry that holds": {`"status":"warning_under_review","refundable":false`, false, false, true},
		"of tomorrow's":         {`"status":"frozen","refundable":true`, false, false, false},
		"untold":                {`"status":"warning_needs_response"`, false, false, true},
		"none":                  {"", false, false, false},
		"open, by an operator":  {`"status":"needs_response","refundable":false`, false, true, false},
		"before it was final":   {`"status":"needs_response","refundable":false`, true, false, true},
	} {
		bought, ref := fixture.Reserve(t, db, id, "mina", 1, time.Hour)
		fixture.Advance(t, db, bought, payment.Captured)
		if !c.captured {
			fixture.SettlePayments(t, db, ref)
		}
		if c.dispute != "" {
			setPayment(t, db, bought, `disputed_at = clock_timestamp(), dispute = '{"id":"du_1","reason":"fraudulent",`+c.dispute+`}'`)
		}
		j := cancel(t, db, fixture.CancelRequestOf(t, id, sale.Cancellation{PurchaseID: bought, By: "app:shop", AnyTime: c.operator}))
		if isDisputed := j.Problem != nil && j.Problem.Code == fault.PurchaseDisputed; isDisputed != c.refused || (j.State == job.Succeeded) == c.refused || (purchaseOf(t, db, bought).State == purchase.Refunding) == c.refused {
			t.Errorf("%s: the cancellation is %s %+v", name, j.State, j.Problem)
		}
		fixture.SettlePayments(t, db, ref)
	}
}

// The statements refuse what a decision by an old state would write.
func TestTheStatementsOfAPartialCancellationRefuseWhatIsNotThere(t *testing.T) {
	db, id := campaignOn(t, 6)
	bought, _ := fixture.BuyByCard(t, db, id, "a", 5, 2)
	p := purchaseOf(t, db, bought)
	part := func(items ...purchase.Item) map[uuid.UUID][]purchase.PartialCancellation {
		return map[uuid.UUID][]purchase.PartialCancellation{bought: {{JobID: uuidv7.New(), By: "app:test", Items: items, Amount: purchase.PriceOf(items)}}}
	}
	other := p.Items[0]
	other.Layer = 6
	back := payment.Refund{ID: uuidv7.New(), PurchaseID: bought, CampaignID: id, UserID: "a", Method: payment.RefundToCard, Amount: 1001, Currency: "JPY", Reason: payment.RefundPurchaseCancelled}
	owed := back
	owed.PurchaseID, owed.Method = fixture.Buy(t, db, id, "b", 4, 1), payment.RefundExternal
	for what, queue := range map[string]func(b *pgx.Batch) error{
		"a position that it has not": func(b *pgx.Batch) error { return purchase.QueueCancelPart(b, part(other)) },
		"all positions":              func(b *pgx.Batch) error { return purchase.QueueCancelPart(b, part(p.Items...)) },
		"a purchase that is cancelled": func(b *pgx.Batch) error {
			purchase.QueueEnd(b, []purchase.End{{ID: bought, State: purchase.Refunding, By: "app:test"}}, purchase.Completed)
			return purchase.QueueCancelPart(b, part(p.Items[0]))
		},
		"more than was captured": func(b *pgx.Batch) error { payment.QueueInsertRefunds(b, []payment.Refund{back}); return nil },
		"more than was paid":     func(b *pgx.Batch) error { payment.QueueInsertRefunds(b, []payment.Refund{owed}); return nil },
	} {
		err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
			var b pgx.Batch
			if err := queue(&b); err != nil {
				return err
			}
			return tx.SendBatch(t.Context(), &b).Close()
		})
		if !errors.Is(err, postgres.ErrRows) {
			t.Errorf("%s: %v", what, err)
		}
	}
	fixture.Sound(t, db)
}
