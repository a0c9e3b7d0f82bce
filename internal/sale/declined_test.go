package sale_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/inventory"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// A hold of ten minutes is bought after five, the card is declined after one more, and no other
// comes: four minutes are left, and they are the buyer's.
func TestADeclinedCardLeavesTheRestOfTheHold(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	h := c.hold("a", 10*time.Minute, at(3, 1), at(3, 2))
	for range 2 { // and again
		c.clock.MoveOn(2 * time.Minute)
		p, ref := c.reserve("a", fixture.FromHold(h.ID), 15*time.Minute)
		if used, err := inventory.GetHold(t.Context(), c.db, access.Everything(), h.ID); err != nil || used.State != inventory.HoldUsed {
			t.Fatal(used.State, err)
		}
		c.clock.MoveOn(time.Minute)
		board := servers.Value[int64](t, c.db, `SELECT board_version FROM campaigns WHERE id = $1`, c.id)
		c.ended(p, ref, payment.Declined)
		if of := servers.Value[int64](t, c.db, `SELECT min(board_version) FROM positions WHERE hold_id = $1`, h.ID); of != board+1 {
			t.Errorf("the board was at %d, and the positions changed at %d", board, of)
		}
		now, err := inventory.GetHold(t.Context(), c.db, access.Everything(), h.ID)
		if err != nil || now.State != inventory.HoldActive || !now.ExpiresAt.Equal(h.ExpiresAt) || now.PurchaseID != nil || now.EndedAt != nil {
			t.Fatalf("%+v, %v", now, err)
		}
		failed := fixture.Job(t, c.db, p.JobID).Problem
		if failed == nil || failed.Code != fault.PaymentDeclined || failed.About != (fault.About{Kind: fault.AboutHold, ID: h.ID.String()}) {
			t.Fatalf("%+v", failed)
		}
		if steps := stepsOf(t, c.db, p.PurchaseID); !strings.HasSuffix(steps, " held-again") || strings.Contains(steps, "released") {
			t.Fatalf("steps%s", steps)
		}
		fixture.Sound(t, c.db)
	}
	if _, err := c.tryHold("b", time.Minute, at(3, 2)); fault.CodeOf(err) != fault.PositionTaken {
		t.Errorf("another user: %v", err)
	}
	c.wantKept("a", at(3, 1), 0) // the hold counts once, when it ends
	c.clock.MoveOn(5 * time.Minute)
	c.hold("b", time.Minute, at(3, 2))
	c.wantKept("a", at(3, 1), 10*time.Minute)
	fixture.Sound(t, c.db)
}

func TestAHoldKeepsNothingAgainThatIsOverOrCancelled(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(c *checkout, p payment.Payment) payment.Ending{
		"the hold is over": func(c *checkout, _ payment.Payment) payment.Ending {
			c.clock.MoveOn(5 * time.Minute)
			return payment.Declined
		},
		"the buyer has cancelled": func(c *checkout, p payment.Payment) payment.Ending {
			takeBack(t, c.db, c.id, p.PurchaseID)
			return payment.CancelledByBuyer
		},
		"the sale has ended": func(c *checkout, _ payment.Payment) payment.Ending {
			servers.Exec(t, c.db, `UPDATE campaigns SET sale_ends_at = clock_timestamp() WHERE id = $1`, c.id)
			return payment.Declined
		},
		"the campaign is cancelled": func(c *checkout, _ payment.Payment) payment.Ending {
			endCampaign(t, c.db, c.id)
			return payment.CampaignCancelled
		},
	} {
		c := openCheckout(t)
		h := c.hold("a", 10*time.Minute, at(3, 1))
		c.clock.MoveOn(6 * time.Minute)
		p, ref := c.reserve("a", fixture.FromHold(h.ID), 14*time.Minute)
		c.ended(p, ref, end(c, p))
		now, err := inventory.GetHold(t.Context(), c.db, access.Everything(), h.ID)
		if err != nil || now.State != inventory.HoldUsed {
			t.Errorf("%s: the hold is %s, %v", what, now.State, err)
		}
		if steps := stepsOf(t, c.db, p.PurchaseID); !strings.HasSuffix(steps, " released") {
			t.Errorf("%s: steps%s", what, steps)
		}
		fixture.Sound(t, c.db)
	}
}

// The statement names the state: a position that was paid meanwhile stays sold.
func TestAHoldKeepsNoSoldPositionAgain(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	h := c.hold("a", 10*time.Minute, at(3, 1))
	p, ref := c.reserve("a", fixture.FromHold(h.ID), 15*time.Minute)
	fixture.Advance(t, c.db, p.PurchaseID, payment.Captured)
	fixture.Conclude(t, c.db, ref)
	err := postgres.InTx(t.Context(), c.db, func(tx pgx.Tx) error {
		var b pgx.Batch
		inventory.QueueRestoreHolds(&b, []inventory.Owned{{HoldID: h.ID, PurchaseID: p.PurchaseID, Items: h.Positions}})
		return tx.SendBatch(t.Context(), &b).Close()
	})
	if !errors.Is(err, postgres.ErrRows) {
		t.Error(err)
	}
	fixture.Sound(t, c.db)
}

// The longest that anybody keeps a position is as long as before: a hold until its last second, and
// the least time of a reservation.
func TestAnotherCardForAHoldIsNoWayAroundTheBound(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	h := c.hold("a", 10*time.Minute, at(3, 1))
	c.clock.MoveOn(8 * time.Minute)
	for range 2 {
		p, ref := c.reserve("a", fixture.FromHold(h.ID), 12*time.Minute)
		c.ended(p, ref, payment.Declined)
	}
	p, ref := c.reserve("a", fixture.FromHold(h.ID), 12*time.Minute)
	c.neverPaid(p, ref, 12*time.Minute)
	c.wantKept("a", at(3, 1), 20*time.Minute)
	if _, err := c.tryHold("a", time.Second, at(3, 1)); fault.CodeOf(err) != fault.HoldLimitExceeded {
		t.Errorf("it is held again: %v", err)
	}
	c.refused("a", fixture.Chosen(at(3, 1)), fault.HoldLimitExceeded)
	fixture.Sound(t, c.db)
}

func TestAUserWithTenDeclinesPaysByNoCardForAnHour(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	p, ref := c.reserve("a", fixture.Chosen(at(1, 1)), 15*time.Minute)
	c.ended(p, ref, payment.Declined)
	decline := func(n int, user string) {
		servers.Exec(t, c.db, `INSERT INTO payment_steps (purchase_id, event, declined_client, declined_user, at) SELECT $1, 'declined', 'test', $2, clock_timestamp() FROM generate_series(1, $3)`,
			p.PurchaseID, user, n)
	}
	decline(9, "a")
	decline(20, "c")
	c.reserve("a", fixture.Chosen(at(2, 1)), 15*time.Minute)
	decline(1, "a")
	why := c.refused("a", fixture.Chosen(at(2, 2)), fault.DeclineLimitExceeded)
	if left := why.RetryAt.Sub(time.Now().Add(c.clock.Ahead())); left > time.Hour || left < 59*time.Minute {
		t.Errorf("again in %s", left)
	}
	orders := fixture.Accept(t, c.db, fixture.PurchaseRequestOf(t, c.id, sale.Order{UserID: "a", Selection: fixture.Random(4, 1), Payment: sale.Payment{Method: purchase.Card, PaymentMethod: "pm_1"}}),
		fixture.PurchaseRequestOf(t, c.id, sale.Order{UserID: "a", Selection: fixture.Random(4, 1), Payment: sale.Payment{Method: purchase.External}}))
	if _, err := c.seller.Sell(t.Context(), orders, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	byCard, otherwise := fixture.Job(t, c.db, orders[0].ID).Problem, fixture.Job(t, c.db, orders[1].ID).Problem
	if byCard == nil || byCard.Code != fault.DeclineLimitExceeded || otherwise != nil {
		t.Errorf("by card %+v, otherwise %+v", byCard, otherwise)
	}
	c.reserve("b", fixture.Chosen(at(3, 1)), 15*time.Minute)
	c.clock.MoveOn(time.Hour)
	c.reserve("a", fixture.Chosen(at(3, 2)), 15*time.Minute)
}
