package sale_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/config"
	"triprize/internal/platform/stripe"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// checkout is a campaign in which a user keeps a position for 20 minutes at most, and then
// leaves it to others for 10. A card has 15 minutes.
type checkout struct {
	t      *testing.T
	db     *pgxpool.Pool
	clock  *servers.Clock
	id     uuid.UUID
	holds  *inventory.Holds
	seller *sale.Seller
}

func openCheckout(t *testing.T) *checkout {
	t.Helper()
	db, clock := servers.DBWithClock(t)
	turns := func(s *config.Holds) { s.MaxTTL, s.MaxExtensions, s.CoolDown = 10*time.Minute, 1, 10*time.Second }
	settings := servers.Defaults(t).Holds
	turns(&settings)
	return &checkout{t: t, db: db, clock: clock, id: fixture.Campaign(t, db, fixture.Draft(4)), holds: fixture.Holds(t, db, nil, turns),
		seller: sale.NewSeller(db, time.Hour, sale.Reservations{For: 15 * time.Minute, MaxExtension: 30 * time.Minute, Takes: stripe.Takes, HoldQuota: inventory.HoldQuotaOf(settings)})}
}

// pay orders what is selected.
func (c *checkout) pay(user string, by purchase.PaymentMethod, what inventory.Selection) (job.Job, job.Ref) {
	c.t.Helper()
	order := sale.Order{UserID: user, Selection: what, Payment: sale.Payment{Method: by}}
	if by == purchase.Card {
		order.Payment.PaymentMethod = "pm_card_authenticationRequired"
	}
	ref := fixture.Accept(c.t, c.db, fixture.PurchaseRequestOf(c.t, c.id, order))[0]
	if _, err := c.seller.Sell(c.t.Context(), []job.Ref{ref}, sale.WaitForCampaign); err != nil {
		c.t.Fatal(err)
	}
	return fixture.Job(c.t, c.db, ref.ID), ref
}

// reserve reserves what is selected by a card, and wants about so long for it.
func (c *checkout) reserve(user string, what inventory.Selection, want time.Duration) (payment.Payment, job.Ref) {
	c.t.Helper()
	j, ref := c.pay(user, purchase.Card, what)
	if j.PurchaseID == nil {
		c.t.Fatalf("not reserved: %+v", j.Problem)
	}
	p := fixture.Payment(c.t, c.db, *j.PurchaseID)
	if got := p.Deadline.Sub(p.CreatedAt); got > want || got < want-time.Minute || p.Latest.Sub(p.Deadline) != 30*time.Minute {
		c.t.Errorf("reserved for %s, want %s; then extended by %s at most", got, want, p.Latest.Sub(p.Deadline))
	}
	return p, ref
}

// refused wants a refusal, and that no payment has begun.
func (c *checkout) refused(user string, what inventory.Selection, want fault.Code) *job.Problem {
	c.t.Helper()
	j, _ := c.pay(user, purchase.Card, what)
	if j.PurchaseID != nil || j.Problem == nil || j.Problem.Code != want {
		c.t.Fatalf("purchase %v, problem %+v, want %s", j.PurchaseID, j.Problem, want)
	}
	return j.Problem
}

// neverPaid lets a reservation end without its buyer, after a while.
func (c *checkout) neverPaid(p payment.Payment, ref job.Ref, after time.Duration) {
	c.t.Helper()
	fixture.Advance(c.t, c.db, p.PurchaseID, payment.Confirming)
	fixture.Advance(c.t, c.db, p.PurchaseID, payment.Action)
	c.clock.MoveOn(after)
	if n, err := sale.ExpireReservations(c.t.Context(), c.db, 10); n == 0 || err != nil {
		c.t.Fatal(n, err)
	}
	c.ended(p, ref, payment.Expired)
}

// ended concludes a payment that the provider has ended.
func (c *checkout) ended(p payment.Payment, ref job.Ref, ending payment.Ending) {
	c.t.Helper()
	fixture.EndAs(c.t, c.db, p.PurchaseID, ending)
	fixture.Conclude(c.t, c.db, ref)
}

func (c *checkout) tryHold(user string, ttl time.Duration, positions ...shape.Position) (inventory.Hold, error) {
	c.t.Helper()
	r := fixture.HoldRequest(c.id, user, positions...)
	r.TTL = ttl
	return fixture.TryHold(c.t, c.holds, r)
}

func (c *checkout) hold(user string, ttl time.Duration, positions ...shape.Position) inventory.Hold {
	c.t.Helper()
	h, err := c.tryHold(user, ttl, positions...)
	if err != nil {
		c.t.Fatal(err)
	}
	return h
}

// keptFor returns how long a user has kept a position, as it is noted.
func (c *checkout) keptFor(user string, p shape.Position) (kept, pause time.Duration) {
	c.t.Helper()
	var k, w float64
	if err := c.db.QueryRow(c.t.Context(), `
		SELECT coalesce(sum(held_seconds), 0)::float8, coalesce(sum(pause_seconds), 0)::float8 FROM held_times WHERE campaign_id = $1 AND user_id = $2 AND layer = $3 AND col = $4`,
		c.id, user, p.Layer, p.Column).Scan(&k, &w); err != nil {
		c.t.Fatal(err)
	}
	return time.Duration(k * float64(time.Second)), time.Duration(w * float64(time.Second))
}

func (c *checkout) wantKept(user string, p shape.Position, want time.Duration) {
	c.t.Helper()
	if kept, _ := c.keptFor(user, p); kept < want || kept > want+time.Minute {
		c.t.Errorf("%s kept %d/%d for %s, want %s", user, p.Layer, p.Column, kept, want)
	}
}

func TestNobodyKeepsPositionsForEverByCardsThatAreNeverPaid(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	what := fixture.Chosen(at(3, 1), at(3, 2), at(3, 3))
	p, ref := c.reserve("a", what, 15*time.Minute)
	c.neverPaid(p, ref, 15*time.Minute)
	p, ref = c.reserve("a", what, 5*time.Minute)
	c.neverPaid(p, ref, 5*time.Minute)

	problem := c.refused("a", fixture.Chosen(at(1, 1), at(3, 1)), fault.HoldLimitExceeded)
	left := problem.RetryAt.Sub(time.Now().Add(c.clock.Ahead()))
	if len(problem.Fields) != 1 || problem.Fields[0].Pointer != "/selection/positions/1" || left < 9*time.Minute || left > 10*time.Minute {
		t.Errorf("it is told %+v, to come in %s", problem.Fields, left)
	}
	if _, err := c.tryHold("a", time.Minute, at(3, 1)); fault.CodeOf(err) != fault.HoldLimitExceeded {
		t.Errorf("it holds them instead: %v", err)
	}
	c.reserve("a", fixture.Chosen(at(1, 1)), 15*time.Minute) // this it has not kept
	c.reserve("b", fixture.Chosen(at(3, 1)), 15*time.Minute) // others are free to
	if j, _ := c.pay("a", purchase.External, fixture.Chosen(at(3, 2))); j.State != job.Succeeded {
		t.Errorf("who pays is not kept from buying: %+v", j.Problem)
	}
	c.clock.MoveOn(10 * time.Minute)
	p, ref = c.reserve("a", fixture.Chosen(at(3, 3)), 15*time.Minute) // it has left it to others long enough
	c.neverPaid(p, ref, 15*time.Minute)
	c.wantKept("a", at(3, 3), 15*time.Minute)
	fixture.Sound(t, c.db)
}

func TestHoldsAndUnpaidReservationsShareOneBound(t *testing.T) {
	t.Parallel()
	t.Run("a hold, then a card", func(t *testing.T) {
		t.Parallel()
		c := openCheckout(t)
		c.hold("a", 10*time.Minute, at(3, 1))
		c.clock.MoveOn(10*time.Minute + time.Second)
		p, ref := c.reserve("a", fixture.Chosen(at(3, 1)), 10*time.Minute)
		c.neverPaid(p, ref, 10*time.Minute)
		_, err := c.tryHold("a", time.Minute, at(3, 1))
		if fault.CodeOf(err) != fault.HoldLimitExceeded || fault.From(err).RetryAt.IsZero() {
			t.Errorf("it is held again: %v", err)
		}
		fixture.Sound(t, c.db)
	})
	t.Run("less than a buyer needs", func(t *testing.T) {
		t.Parallel()
		c := openCheckout(t)
		for range 2 {
			c.hold("a", 8*time.Minute+45*time.Second, at(3, 1))
			c.clock.MoveOn(8*time.Minute + 56*time.Second)
		}
		c.refused("a", fixture.Chosen(at(3, 1)), fault.HoldLimitExceeded)
		c.hold("a", time.Minute, at(3, 1)) // for this it is enough
		fixture.Sound(t, c.db)
	})
	t.Run("from a hold", func(t *testing.T) {
		t.Parallel()
		c := openCheckout(t)
		h := c.hold("a", 10*time.Minute, at(3, 1), at(3, 2))
		c.clock.MoveOn(9 * time.Minute)
		p, ref := c.reserve("a", fixture.FromHold(h.ID), 11*time.Minute)
		c.neverPaid(p, ref, 11*time.Minute)
		c.wantKept("a", at(3, 2), 20*time.Minute)
		c.refused("a", fixture.Chosen(at(3, 2)), fault.HoldLimitExceeded)
		fixture.Sound(t, c.db)
	})
}

// A buyer at the checkout has a moment to pay, even when its hold is as old as it can be.
// That is no way to keep a position: it cannot be held again.
func TestAHoldIsBoughtByCardInItsLastMomentButOnce(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	c.hold("a", 10*time.Minute, at(3, 1))
	c.clock.MoveOn(10*time.Minute + 11*time.Second)
	h := c.hold("a", 9*time.Minute+50*time.Second, at(3, 1))
	c.clock.MoveOn(9*time.Minute + 30*time.Second)
	p, ref := c.reserve("a", fixture.FromHold(h.ID), 3*time.Minute)
	c.neverPaid(p, ref, 3*time.Minute)
	c.wantKept("a", at(3, 1), 22*time.Minute+30*time.Second)
	if _, err := c.tryHold("a", time.Second, at(3, 1)); fault.CodeOf(err) != fault.HoldLimitExceeded {
		t.Errorf("it is held again: %v", err)
	}
	c.refused("a", fixture.Chosen(at(3, 1)), fault.HoldLimitExceeded)
	c.clock.MoveOn(10 * time.Minute)
	c.hold("a", 10*time.Minute, at(3, 1))
	fixture.Sound(t, c.db)
}

func TestTimeThatTheProviderCostsIsNotTheUsers(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	p, ref := c.reserve("a", fixture.Chosen(at(3, 1)), 15*time.Minute)
	p.Deadline = p.Deadline.Add(25 * time.Minute) // as a worker does whose calls are in vain
	if err := fixture.Lead(t, c.db, &p, payment.Always); err != nil {
		t.Fatal(err)
	}
	p.Deadline = p.Deadline.Add(25 * time.Minute) // beyond what is allowed
	p.Version++
	if err := fixture.Lead(t, c.db, &p, payment.Always); err != nil {
		t.Fatal(err)
	}
	c.neverPaid(p, ref, 45*time.Minute)
	c.wantKept("a", at(3, 1), 15*time.Minute)
	p, ref = c.reserve("a", fixture.Chosen(at(3, 1)), 5*time.Minute)
	c.clock.MoveOn(20 * time.Minute) // the provider does not say how it ended
	c.ended(p, ref, payment.Expired)
	c.wantKept("a", at(3, 1), 20*time.Minute)
	fixture.Sound(t, c.db)
}

func TestADeclinedCardCostsTheTimeThatItTook(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	p, ref := c.reserve("a", fixture.Chosen(at(3, 1)), 15*time.Minute)
	c.clock.MoveOn(5 * time.Minute)
	c.ended(p, ref, payment.Declined)
	if kept, pause := c.keptFor("a", at(3, 1)); kept < 5*time.Minute || kept > 6*time.Minute || pause < 5*time.Minute {
		t.Errorf("kept for %s, and a pause of %s", kept, pause)
	}
	p, ref = c.reserve("a", fixture.Chosen(at(3, 1)), 15*time.Minute) // by card at once, without the pause
	c.clock.MoveOn(time.Minute)
	takeBack(t, c.db, c.id, p.PurchaseID)
	c.ended(p, ref, payment.CancelledByBuyer)
	c.wantKept("a", at(3, 1), 6*time.Minute)
	fixture.Sound(t, c.db)
}

// The first free positions by rank are those that the user must leave to others.
func TestRandomPositionsByCardPassOverWhatTheUserMustLeaveToOthers(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	p, ref := c.reserve("a", fixture.Random(3, 2), 15*time.Minute)
	c.neverPaid(p, ref, 15*time.Minute)
	p, ref = c.reserve("a", fixture.Random(3, 2), 5*time.Minute)
	c.neverPaid(p, ref, 5*time.Minute)
	bought, err := purchase.Get(t.Context(), c.db, access.Everything(), p.PurchaseID)
	if err != nil {
		t.Fatal(err)
	}
	c.refused("a", fixture.Random(3, 2), fault.NoneAvailable)
	p, _ = c.reserve("a", fixture.Random(3, 1), 15*time.Minute)
	third, err := purchase.Get(t.Context(), c.db, access.Everything(), p.PurchaseID)
	if err != nil || third.Items[0].Position == bought.Items[0].Position || third.Items[0].Position == bought.Items[1].Position {
		t.Errorf("it has %v again, %v", third.Items, err)
	}
	c.reserve("b", fixture.Random(3, 2), 15*time.Minute)
	fixture.Sound(t, c.db)
}

func TestPaidPurchasesLeaveNoTimeBehind(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	h := c.hold("a", 10*time.Minute, at(3, 1))
	for i, what := range []inventory.Selection{fixture.FromHold(h.ID), fixture.Chosen(at(3, 2)), fixture.Chosen(at(3, 3))} {
		p, ref := c.reserve("a", what, 15*time.Minute)
		fixture.Advance(t, c.db, p.PurchaseID, payment.Captured)
		if i == 2 { // its money goes back
			takeBack(t, c.db, c.id, p.PurchaseID)
		}
		fixture.Conclude(t, c.db, ref)
		if kept, _ := c.keptFor("a", at(3, i+1)); kept != 0 {
			t.Errorf("position 3/%d was kept for %s", i+1, kept)
		}
	}
	fixture.Sound(t, c.db)
}

// Where the settings give a card more time than a hold, it has that, as often as not.
func TestAReservationThatIsLongerThanAnyHoldIsTheBound(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	c.seller = sale.NewSeller(c.db, time.Hour, sale.Reservations{For: time.Hour, MaxExtension: 30 * time.Minute, Takes: stripe.Takes,
		HoldQuota: inventory.HoldQuota{Max: 20 * time.Minute, Rest: 10 * time.Minute}})
	p, ref := c.reserve("a", fixture.Chosen(at(3, 1)), time.Hour)
	c.neverPaid(p, ref, time.Hour)
	c.refused("a", fixture.Chosen(at(3, 1)), fault.HoldLimitExceeded)
}
