package refunds_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/refunds"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// partsWorld is a completed purchase of four positions of 200.
func partsWorld(t *testing.T) (w *world, campaignID uuid.UUID, at []shape.Position) {
	t.Helper()
	w = &world{t: t, db: servers.DB(t)}
	campaignID = fixture.Campaign(t, w.db, fixture.Draft(4))
	w.bought, _ = fixture.BuyByCard(t, w.db, campaignID, "mina", 4, 4)
	p, err := purchase.Get(t.Context(), w.db, access.Everything(), w.bought)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range p.Items {
		at = append(at, item.Position)
	}
	w.provider = newProvider(*fixture.Payment(t, w.db, w.bought).IntentID, p.Amount)
	w.runner = w.newRunner()
	return w, campaignID, at
}

// cancel cancels positions of the purchase, or with none all that is left, and returns the refund.
func (w *world) cancel(campaignID uuid.UUID, positions ...shape.Position) uuid.UUID {
	w.t.Helper()
	refs := fixture.Accept(w.t, w.db, fixture.CancelRequestOf(w.t, campaignID, sale.Cancellation{PurchaseID: w.bought, Positions: positions, By: "app:test"}))
	report, err := fixture.Seller(w.db).Cancel(w.t.Context(), refs, sale.WaitForCampaign)
	if err != nil || len(report.Refunds) != 1 {
		w.t.Fatalf("%+v, %v", report, err)
	}
	return report.Refunds[0].ID
}

// lost is the fault of calls that make refunds and do not arrive.
var lost = func(call string) (error, bool) {
	if call == "create" {
		return errLost, true
	}
	return nil, false
}

func (w *world) runOf(id uuid.UUID) refunds.Outcome {
	w.t.Helper()
	w.id = id
	return w.run()
}

// What somebody has refunded by hand counts towards what was cancelled, also when parts are: the
// buyer has the price of what was cancelled, and no more, and of all of it in the end.
func TestRefundsOfPartsGiveBackWhatIsLeftOfWhatWasCancelled(t *testing.T) {
	t.Parallel()
	w, campaignID, at := partsWorld(t)
	price := w.provider.captured / 4
	w.byHand(price/2, payprovider.RefundSucceeded) // nobody has told us
	w.provider.fault = lost
	first, second := w.cancel(campaignID, at[0]), w.cancel(campaignID, at[1])
	if result := w.runOf(first); result != refunds.Waits {
		t.Errorf("the first is %s", result)
	}
	calls := len(w.provider.calls)
	if result := w.runOf(second); result != refunds.Waits || len(w.provider.calls) != calls {
		t.Errorf("the second is %s, and has called %v, while the first may be made", result, w.provider.calls[calls:])
	}
	w.provider.fault = nil
	w.hear(0)
	for _, id := range []uuid.UUID{first, second} {
		if result := w.runOf(id); result != refunds.Finished {
			t.Errorf("got %s", result)
		}
	}
	if back := w.provider.returned(); back != 2*price {
		t.Errorf("%d are back, of two positions at %d", back, price)
	}
	w.expect(payment.RefundSucceeded, purchase.Completed, 3)
	fixture.Sound(t, w.db)
	last := w.cancel(campaignID)
	if result := w.runOf(last); result != refunds.Finished || w.provider.returned() != w.provider.captured {
		t.Errorf("%s, %d are back", result, w.provider.returned())
	}
	w.expect(payment.RefundSucceeded, purchase.Refunded, 4)
	fixture.Sound(t, w.db)
}

// A call that was lost may still be made: a part has a further key only when the provider has
// forgotten the first, as the charge has money for both.
func TestARefundOfAPartKeepsItsKey(t *testing.T) {
	t.Parallel()
	w, campaignID, at := partsWorld(t)
	w.provider.fault = lost
	id := w.cancel(campaignID, at[0])
	for range 7 {
		w.runOf(id)
	}
	if len(w.provider.creates) < 7 {
		t.Fatalf("it was tried %d times", len(w.provider.creates))
	}
	for _, made := range w.provider.creates {
		if made.Key != w.provider.creates[0].Key {
			t.Errorf("it has the keys %s and %s", w.provider.creates[0].Key, made.Key)
		}
	}
}

// A call whose fault is replayed is over: a further key is safe for a part, too, when the list shows
// that the call has made nothing.
func TestAPartWhoseFaultIsReplayedHasAFurtherKey(t *testing.T) {
	t.Parallel()
	for _, made := range []bool{true, false} {
		w, campaignID, at := partsWorld(t)
		w.provider.fault = once("create", 1, errLost, true)
		id := w.cancel(campaignID, at[0])
		w.runOf(id)
		first, stored := w.provider.creates[0], *errLost
		stored.Replayed = true
		w.provider.keys[first.Key] = answer{err: &stored}
		w.runOf(id)
		want := "create list create list create"
		if made { // and the list has been late
			w.provider.add(first.Amount, payprovider.RefundSucceeded, first.Metadata)
			want = "create list create list"
		}
		w.runOf(id)
		w.expect(payment.RefundSucceeded, purchase.Completed, 1)
		if got := strings.Join(w.provider.calls, " "); got != want || w.provider.creates[1].Key != first.Key {
			t.Errorf("called %s, with %+v", got, w.provider.creates)
		}
		fixture.Sound(t, w.db)
	}
}

// A part that was refunded by hand ends with that; a part that fails there is owed, and no more.
func TestAPartThatIsResolvedOrFailsIsOwedOnce(t *testing.T) {
	t.Parallel()
	w, campaignID, at := partsWorld(t)
	price := w.provider.captured / 4
	w.provider.status = payprovider.RefundFailed
	id := w.cancel(campaignID, at[0])
	if result := w.runOf(id); result != refunds.Refused {
		t.Fatalf("got %s", result)
	}
	byHand := w.byHand(price, payprovider.RefundSucceeded)
	w.hear(byHand)
	if err := outcome(service(w).Resolve(t.Context(), request(job.KindRefundResolve), access.Everything(), id, "operator:ops", "refunded in the dashboard")); err != nil {
		t.Fatal(err)
	}
	if r := w.refund(); r.State != payment.RefundResolved || r.Amount != 0 {
		t.Errorf("resolved: %+v", r)
	}
	fixture.Sound(t, w.db)
	w.provider.refunds[byHand].Status = payprovider.RefundFailed
	w.hear(byHand)
	ours, _ := w.all()
	var owed money.Amount
	for _, r := range ours {
		owed += r.Amount
	}
	if len(ours) != 2 || owed != price {
		t.Errorf("owed are %d in %+v", owed, ours)
	}
	fixture.Sound(t, w.db)
}
