package sale_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/stripe"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestAUserKeepsFewPositionsFromOthersWithoutPaying(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(8))
	seller := sale.NewSeller(db, time.Hour, sale.Reservations{For: time.Hour, MaxPerUser: 5, Takes: stripe.Takes})
	order := func(user string, n int) job.Ref {
		ref := fixture.Accept(t, db, fixture.CardRequest(t, id, user, 0, n))[0]
		if _, err := seller.Sell(t.Context(), []job.Ref{ref}, sale.WaitForCampaign); err != nil {
			t.Fatal(err)
		}
		return ref
	}
	refused := func(ref job.Ref) bool {
		p := fixture.Job(t, db, ref.ID).Problem
		return p != nil && p.Code == fault.HoldLimitExceeded
	}
	first, second, third, other := order("mallory", 3), order("mallory", 3), order("mallory", 2), order("alice", 5)
	if refused(first) || !refused(second) || refused(third) || refused(other) {
		t.Errorf("refused: %t %t %t, and another user %t; want only the second", refused(first), refused(second), refused(third), refused(other))
	}
	both := fixture.Accept(t, db, fixture.CardRequest(t, id, "bob", 0, 3), fixture.CardRequest(t, id, "bob", 0, 3)) // in one transaction
	if _, err := seller.Sell(t.Context(), both, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	if refused(both[0]) == refused(both[1]) {
		t.Errorf("of two orders in one transaction not exactly one is refused: %+v, %+v", fixture.Job(t, db, both[0].ID).Problem, fixture.Job(t, db, both[1].ID).Problem)
	}
	bought := fixture.Job(t, db, first.ID).PurchaseID
	fixture.Advance(t, db, *bought, payment.Captured)
	fixture.Conclude(t, db, first)
	if paid := order("mallory", 3); refused(paid) {
		t.Error("what is paid counts as unpaid")
	}
}

func TestCardsDoNotPayWhereTheProviderCountsAmountsInAnotherUnit(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft := fixture.Draft(3)
	draft.Currency = "ISK"
	id := fixture.Campaign(t, db, draft)
	ref := fixture.Accept(t, db, fixture.CardRequest(t, id, "a", 0, 1))[0]
	if _, err := fixture.Seller(db).Sell(t.Context(), []job.Ref{ref}, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	if p := fixture.Job(t, db, ref.ID).Problem; p == nil || p.Code != fault.CardsNotAccepted {
		t.Errorf("%+v", p)
	}
}

func TestACardPurchaseIsNotSoldBeforeItIsPaid(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	_, err := db.Exec(t.Context(), `
		INSERT INTO purchases (id, campaign_id, user_id, client, job_id, amount, currency, payment_method, nonce, state, completed_at)
		VALUES (gen_random_uuid(), $1, 'u', 'shop', gen_random_uuid(), 100, 'JPY', 'card', decode(repeat('00', 16), 'hex'), 'completed', now())`, id)
	if broken, ok := err.(*pgconn.PgError); !ok || broken.ConstraintName != "card_purchases_begin_pending" { //nolint:errorlint // as it comes
		t.Errorf("got %v", err)
	}
}

func TestMoneyIsConcludedThoughItsJobWasFinalBefore(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	bought, ref := fixture.Reserve(t, db, id, "a", 1, time.Hour)
	fixture.Advance(t, db, bought, payment.Captured)
	servers.Exec(t, db, `UPDATE jobs SET state = 'failed', problem = '{"code": "internal-error", "detail": "given up"}', finished_at = now() WHERE id = $1`, ref.ID)
	if report := fixture.Conclude(t, db, ref); len(report.Broken) != 1 {
		t.Errorf("it is not said loudly: %v", report.Broken)
	}
	p, err := purchase.Get(t.Context(), db, access.Everything(), bought)
	if err != nil || p.State != purchase.Completed || fixture.Payment(t, db, bought).Phase != payment.Settled {
		t.Errorf("the purchase is %s, its payment %s, %v", p.State, fixture.Payment(t, db, bought).Phase, err)
	}
}
