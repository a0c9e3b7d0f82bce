package upkeep_test

import (
	"testing"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
)

// The sweep gives the payment up. What the provider then says frees what it held.
func TestAnExpiredReservationFreesEverythingItHeldWhenItsPaymentHasEnded(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	draft, limit := fixture.Draft(4), 2
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, p.db, draft)
	order := sale.Order{UserID: "late", Selection: fixture.Chosen(fixture.At(2, 1), fixture.At(2, 2)), Payment: sale.Payment{Method: purchase.Card, PaymentMethod: "pm_card_visa"}}
	bought, ref := fixture.ReserveFor(t, p.db, fixture.PurchaseRequestOf(t, id, order), -time.Second)
	fixture.Advance(t, p.db, bought, payment.Action)
	if j := fixture.Finalize(t, p.db, fixture.ChosenRequest(t, id, "late", fixture.At(1, 1)))[0]; j.Problem == nil || j.Problem.Code != fault.PurchaseLimitExceeded {
		t.Errorf("a reservation does not count for the limit: %+v", j)
	}
	changed := fixture.Watch(t, p.db)
	p.sweep("expired-reservations")
	changed(`
		~ job 1: awaiting_action → queued; progress={next_action: {type: redirect, url: https://bank.test/purchase 1}} →
		~ purchase 1: awaiting_action → pending
		~ payment of purchase 1: action → expiring; v1 → v2; next_action=https://bank.test/purchase 1 → ending=expired
		+ step of purchase 1 expired`)
	fixture.Sound(t, p.db)
	fixture.Advance(t, p.db, bought, payment.Ended)
	fixture.Conclude(t, p.db, ref)
	changed(`
		~ campaign 1: positions_reserved=2 board_version=1 → board_version=2
		~ position 2,1: reserved late purchase 1 v1 board_version=1 expires_at=60m → free v2 board_version=2
		~ position 2,2: reserved late purchase 1 v1 board_version=1 expires_at=60m → free v2 board_version=2
		~ job 1: queued → failed; → problem={code: reservation-expired, detail: the payment did not arrive in time; the reservation has ended}
		+ refused job 1
		+ held late 2,1
		+ held late 2,2
		~ purchase 1: pending → failed; → failure=reservation-expired
		~ payment of purchase 1: expiring → cancelled; v2 due_at=past → v4 due_at=soon
		+ step of purchase 1 released`)
	if j := fixture.Finalize(t, p.db, fixture.ChosenRequest(t, id, "late", fixture.At(2, 1), fixture.At(2, 2)))[0]; j.State != job.Succeeded {
		t.Errorf("the limit is not free again: %+v", j.Problem)
	}
	fixture.Sound(t, p.db)
}
