package sale_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func run() sweep.Run { return sweep.Run{Counts: make(sweep.Counts), BatchSize: 100, MaxBatches: 10} }

// A worker that has a payment goes on with it, also when a scheduler has no key.
func TestWithoutAKeyNothingIsEndedThatAWorkerHas(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	for _, phases := range [][]payment.Phase{{payment.Creating, payment.Expiring}, {payment.Confirming}, {payment.Captured}} {
		bought, _ := fixture.Reserve(t, db, id, "mina", 1, time.Hour)
		for _, phase := range phases {
			fixture.Advance(t, db, bought, phase)
		}
		before := fixture.Payment(t, db, bought)
		if _, ok, err := payment.Claim(t.Context(), db, before.Ref().Item(), time.Hour); err != nil || !ok {
			t.Fatal(ok, err)
		}
		claimed := fixture.Payment(t, db, bought)
		for name, ref := range map[string]payment.Ref{"one of another's": claimed.Ref(), "an old reference": before.Ref()} {
			until := `clock_timestamp() + interval '1 hour'`
			if ref == before.Ref() {
				until = `NULL`
			}
			setPayment(t, db, bought, `lease_until = `+until)
			err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
				known, waiting, err := payment.EndUnsent(t.Context(), tx, []lease.Item{ref.Item()})
				if len(known) != 0 || len(waiting) != 0 {
					t.Errorf("%s, %s: known %v, waiting %v", claimed.Phase, name, known, waiting)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// What is broken is said, and the others do not suffer.
func TestWithoutAKeyABrokenPaymentHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	broken, _ := fixture.Reserve(t, db, id, "mina", 2, time.Hour)
	sound, _ := fixture.Reserve(t, db, id, "otto", 2, time.Hour)
	for _, bought := range []uuid.UUID{broken, sound} {
		fixture.Advance(t, db, bought, payment.Captured)
	}
	servers.Exec(t, db, `UPDATE positions SET state = 'available', purchase_id = NULL, user_id = NULL, expires_at = NULL WHERE (campaign_id, layer, col) IN (
		SELECT campaign_id, layer, col FROM positions WHERE purchase_id = $1 LIMIT 1)`, broken)
	servers.Exec(t, db, `UPDATE payments SET due_at = clock_timestamp()`)
	sweep := sale.WithoutProvider{DB: db, Seller: fixture.Seller(db), Recheck: time.Hour, Logger: servers.Logger(t),
		Enqueue: func(context.Context, []job.Message) (int, error) { return 0, nil }}.Sweep()
	servers.NoError(t, sweep.Run(t.Context(), run()))
	for bought, want := range map[uuid.UUID]payment.Phase{broken: payment.Captured, sound: payment.Settled} {
		if paid := fixture.Payment(t, db, bought); paid.Phase != want {
			t.Errorf("the payment is %s, want %s", paid.Phase, want)
		}
	}
}

// The sweep gives the payment up. What the provider then says frees what it held.
func TestAnExpiredReservationFreesEverythingItHeldWhenItsPaymentHasEnded(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft, limit := fixture.Draft(4), 2
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, db, draft)
	order := sale.Order{UserID: "late", Selection: fixture.Chosen(fixture.At(2, 1), fixture.At(2, 2)), Payment: sale.Payment{Method: purchase.Card, PaymentMethod: "pm_card_visa"}}
	bought, ref := fixture.ReserveFor(t, db, fixture.PurchaseRequestOf(t, id, order), -time.Second)
	fixture.Advance(t, db, bought, payment.Action)
	if j := fixture.Complete(t, db, fixture.ChosenRequest(t, id, "late", fixture.At(1, 1)))[0]; j.Problem == nil || j.Problem.Code != fault.PurchaseLimitExceeded {
		t.Errorf("a reservation does not count for the limit: %+v", j)
	}
	changed := fixture.Watch(t, db)
	servers.NoError(t, sale.ExpiredReservations(db).Run(t.Context(), run()))
	changed(`
		~ job 1: awaiting_action → queued; progress={next_action: {type: redirect, url: https://bank.test/job 1}} →
		~ purchase 1: awaiting_action → pending
		~ payment of purchase 1: action → expiring; v1 → v2; next_action=https://bank.test/job 1 → ending=expired
		+ step of purchase 1 expired`)
	fixture.Sound(t, db)
	fixture.Advance(t, db, bought, payment.Ended)
	fixture.SettlePayments(t, db, ref)
	servers.Exec(t, db, `UPDATE payments SET due_at = due_at + interval '10 hours' WHERE due_at > finished_at + interval '50 seconds'`) // in a minute: not while this runs
	changed(`
		~ campaign 1: positions_reserved=2 board_version=1 → board_version=2
		~ position 2,1: reserved late purchase 1 v1 board_version=1 expires_at=60m → free v2 board_version=2
		~ position 2,2: reserved late purchase 1 v1 board_version=1 expires_at=60m → free v2 board_version=2
		~ job 1: queued → failed; → problem={code: reservation-expired, detail: the payment did not arrive in time; the reservation has ended}
		+ refused job 1
		+ held late 2,1
		+ held late 2,2
		~ purchase 1: pending → failed; → failure=reservation-expired
		~ payment of purchase 1: expiring → cancelled; v2 due_at=past → v4 due_at=10h
		+ step of purchase 1 released`)
	if j := fixture.Complete(t, db, fixture.ChosenRequest(t, id, "late", fixture.At(2, 1), fixture.At(2, 2)))[0]; j.State != job.Succeeded {
		t.Errorf("the limit is not free again: %+v", j.Problem)
	}
	fixture.Sound(t, db)
}
