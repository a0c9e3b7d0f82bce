package sale_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
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

	hold     inventory.Hold  // the last one
	payment  payment.Payment // the last one, and its job
	ref      job.Ref
	reserved map[string][]shape.Position // by user
	refusal  *fault.Error                // the last one
}

func openCheckout(t *testing.T) *checkout {
	t.Helper()
	db, clock := servers.DBWithClock(t)
	turns := func(s *config.Holds) { s.MaxTTL = 10 * time.Minute }
	settings := servers.Defaults(t).Holds
	turns(&settings)
	return &checkout{t: t, db: db, clock: clock, id: fixture.Campaign(t, db, fixture.Draft(4)), holds: fixture.Holds(t, db, nil, turns), reserved: make(map[string][]shape.Position),
		seller: sale.NewSeller(db, time.Hour, sale.Reservations{For: 15 * time.Minute, MaxExtension: 30 * time.Minute, Takes: stripe.Takes, HoldQuota: inventory.HoldQuotaOf(settings)})}
}

// run does the steps of a script. What a user takes is positions (3/1,3/2), some of a layer (2of3), or
// what it holds (hold); behind "!" is the code of a refusal.
//
//	hold USER WHAT TTL                 reserve USER WHAT TIME: by card, which gives it so much time
//	buy USER WHAT                      wait TIME
//	expire TIME: so long nothing is paid, and the reservation is given up
//	capture, cancel, finalize, end AS  of the last payment
//	kept USER POSITION TIME [PAUSE]    is noted
//	again TIME [POINTER]               is what the last refusal says
func (c *checkout) run(script string) {
	c.t.Helper()
	for step := range strings.FieldsFuncSeq(script, func(r rune) bool { return r == ';' || r == '\n' }) {
		if words := strings.Fields(step); len(words) > 0 {
			c.step(words)
		}
	}
}

func (c *checkout) step(words []string) {
	c.t.Helper()
	var d time.Duration
	for _, word := range words { // the first that is one
		if n, err := time.ParseDuration(word); err == nil && d == 0 {
			d = n
		}
	}
	switch words[0] {
	case "hold":
		r := fixture.HoldRequest(c.id, words[1], c.selected(words[2]).Positions...)
		r.TTL = d
		h, err := fixture.TryHold(c.t, c.holds, r)
		if c.hold = h; !c.decided(words, err) {
			c.hold = inventory.Hold{}
		}
	case "reserve":
		c.reserve(words, d)
	case "buy":
		c.decided(words, c.order(words[1], purchase.External, c.selected(words[2])))
	case "wait":
		c.clock.MoveOn(d)
	case "extend": // as a worker does whose calls are in vain
		c.payment.Deadline = c.payment.Deadline.Add(d)
		servers.NoError(c.t, fixture.Lead(c.t, c.db, &c.payment, payment.Always))
		c.payment.Version++
	case "expire":
		fixture.Advance(c.t, c.db, c.payment.PurchaseID, payment.Confirming)
		fixture.Advance(c.t, c.db, c.payment.PurchaseID, payment.Action)
		c.clock.MoveOn(d)
		if n, err := sale.ExpireReservations(c.t.Context(), c.db, 10); n == 0 || err != nil {
			c.t.Fatal(words, n, err)
		}
		c.step([]string{"end", "expired"})
	case "capture":
		fixture.Advance(c.t, c.db, c.payment.PurchaseID, payment.Captured)
	case "cancel":
		takeBack(c.t, c.db, c.id, c.payment.PurchaseID)
	case "end":
		fixture.EndAs(c.t, c.db, c.payment.PurchaseID, payment.Ending(words[1]))
		fixture.SettlePayments(c.t, c.db, c.ref)
	case "finalize":
		fixture.SettlePayments(c.t, c.db, c.ref)
	case "kept":
		c.kept(words, d)
	case "again":
		left := c.refusal.RetryAt.Sub(time.Now().Add(c.clock.Ahead()))
		if left <= d-time.Minute || left > d || len(words) == 3 && (len(c.refusal.Fields) != 1 || c.refusal.Fields[0].Pointer != words[2]) {
			c.t.Errorf("%s: it is told %+v, to come again in %s", words, c.refusal.Fields, left)
		}
	default:
		c.t.Fatalf("what is %s?", words)
	}
}

func (c *checkout) selected(what string) (s inventory.Selection) {
	if what == "hold" {
		return fixture.FromHold(c.hold.ID)
	}
	if n, _ := fmt.Sscanf(what, "%dof%d", &s.Quantity, &s.Layer); n == 2 {
		return s
	}
	for text := range strings.SplitSeq(what, ",") {
		var p shape.Position
		if _, err := fmt.Sscanf(text, "%d/%d", &p.Layer, &p.Column); err != nil {
			c.t.Fatal(what, err)
		}
		s.Positions = append(s.Positions, p)
	}
	return fixture.Chosen(s.Positions...)
}

// decided compares how a step was refused with what its last word says, and tells whether it was not.
func (c *checkout) decided(words []string, err error) bool {
	c.t.Helper()
	want, refused := strings.CutPrefix(words[len(words)-1], "!")
	if code := string(fault.CodeOf(err)); refused && code != want || !refused && err != nil {
		c.t.Fatalf("%s: %v", words, err)
	}
	if refused {
		c.refusal = fault.From(err)
	}
	return !refused
}

// order orders what is selected, and remembers its payment, if one has begun.
func (c *checkout) order(user string, by purchase.PaymentMethod, what inventory.Selection) error {
	c.t.Helper()
	order := sale.Order{UserID: user, Selection: what, Payment: sale.Payment{Method: by}}
	if by == purchase.Card {
		order.Payment.PaymentMethod = "pm_card_authenticationRequired"
	}
	c.ref = fixture.Accept(c.t, c.db, fixture.PurchaseRequestOf(c.t, c.id, order))[0]
	sell(c.t, c.seller, c.ref)
	j := fixture.Job(c.t, c.db, c.ref.ID)
	if j.Problem != nil {
		return j.Problem.Err()
	}
	if by == purchase.Card {
		c.payment = fixture.Payment(c.t, c.db, *j.PurchaseID)
	}
	return nil
}

// reserve reserves by card. Positions of a layer must be others than those that its user had before.
func (c *checkout) reserve(words []string, want time.Duration) {
	c.t.Helper()
	user, what := words[1], c.selected(words[2])
	if !c.decided(words, c.order(user, purchase.Card, what)) {
		return
	}
	p := c.payment
	if got := p.Deadline.Sub(p.CreatedAt); got > want || got < want-time.Minute || p.Latest.Sub(p.Deadline) != 30*time.Minute {
		c.t.Errorf("%s: reserved for %s, then extended by %s at most", words, got, p.Latest.Sub(p.Deadline))
	}
	has := positionsOf(purchaseOf(c.t, c.db, p.PurchaseID))
	if again := func(p shape.Position) bool { return slices.Contains(c.reserved[user], p) }; want == 15*time.Minute && what.Quantity > 0 && slices.ContainsFunc(has, again) {
		c.t.Errorf("%s: it has %v again", words, has)
	}
	c.reserved[user] = append(c.reserved[user], has...)
}

// kept compares how long a user has kept a position, as it is noted.
func (c *checkout) kept(words []string, want time.Duration) {
	c.t.Helper()
	at := c.selected(words[2]).Positions[0]
	var kept, pause float64
	if err := c.db.QueryRow(c.t.Context(), `
		SELECT coalesce(sum(held_seconds), 0)::float8, coalesce(sum(pause_seconds), 0)::float8 FROM held_times WHERE campaign_id = $1 AND user_id = $2 AND layer = $3 AND col = $4`,
		c.id, words[1], at.Layer, at.Column).Scan(&kept, &pause); err != nil {
		c.t.Fatal(err)
	}
	var least time.Duration
	if len(words) == 5 {
		least, _ = time.ParseDuration(words[4])
	}
	if kept < want.Seconds() || kept > want.Seconds()+60 || want == 0 && kept != 0 || pause < least.Seconds() {
		c.t.Errorf("%s: for %.0f s, and a pause of %.0f s", words, kept, pause)
	}
}

// The longest that anybody keeps a position by what is not paid is the time of two holds, in which a card may
// begin: a buyer at the checkout has a moment to pay, even when its hold is as old as it can be.
func TestHoldsAndUnpaidReservationsShareOneBound(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"cards that are never paid": `
			reserve a 3/1,3/2,3/3 15m; expire 15m
			reserve a 3/1,3/2,3/3 5m; expire 5m
			reserve a 1/1,3/1 !hold-limit-exceeded; again 10m /selection/positions/1
			hold a 3/1 1m !hold-limit-exceeded
			reserve a 1/1 15m; reserve b 3/1 15m; buy a 3/2
			wait 10m
			reserve a 3/3 15m; expire 15m; kept a 3/3 15m`,
		"a hold, then a card": `
			hold a 3/1 10m; wait 10m1s
			reserve a 3/1 10m; expire 10m
			hold a 3/1 1m !hold-limit-exceeded; again 10m`,
		"holds": `
			hold a 3/1 10m; wait 10m11s; hold a 3/1 10m; wait 10m11s
			hold a 1/1,3/1 1m !hold-limit-exceeded; again 10m /positions/1
			hold a 1/1 10m; buy a 3/1`,
		"less than a buyer needs is left": `
			hold a 3/1 8m45s; wait 8m56s; hold a 3/1 8m45s; wait 8m56s
			reserve a 3/1 !hold-limit-exceeded
			hold a 3/1 1m`,
		"a hold is bought by card": `
			hold a 3/1,3/2 10m; wait 9m
			reserve a hold 11m; expire 11m; kept a 3/2 20m
			reserve a 3/2 !hold-limit-exceeded`,
		"and in its last moment, once": `
			hold a 3/1 10m; wait 10m11s
			hold a 3/1 9m50s; wait 8m30s
			reserve a hold 3m; expire 3m; kept a 3/1 21m30s
			hold a 3/1 1s !hold-limit-exceeded; reserve a 3/1 !hold-limit-exceeded
			wait 10m; hold a 3/1 10m`,
		"another card for a hold is no way around it": `
			hold a 3/1 10m; wait 8m
			reserve a hold 12m; end declined; reserve a hold 12m; end declined
			reserve a hold 12m; expire 12m; kept a 3/1 20m
			hold a 3/1 1s !hold-limit-exceeded; reserve a 3/1 !hold-limit-exceeded`,
		"a declined card costs the time that it took, and a cancelled one": `
			reserve a 3/1 15m; wait 5m; end declined; kept a 3/1 5m 5m
			reserve a 3/1 15m; wait 1m; cancel; end cancelled; kept a 3/1 6m`, // by card at once, without the pause
		"random positions are not those that the user must leave to others": `
			reserve a 2of3 15m; expire 15m; reserve a 2of3 5m; expire 5m
			reserve a 2of3 !none-available; reserve a 1of3 15m
			reserve b 2of3 15m`,
		"what is paid leaves no time behind": `
			hold a 3/1 10m; reserve a hold 15m; capture; finalize; kept a 3/1 0
			reserve a 3/2 15m; capture; finalize; kept a 3/2 0
			reserve a 3/3 15m; capture; cancel; finalize; kept a 3/3 0`, // its money goes back
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := openCheckout(t)
			c.run(script)
			fixture.Sound(t, c.db)
		})
	}
}

func TestTimeThatTheProviderCostsIsNotTheUsers(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	c.run(`
		reserve a 3/1 15m; extend 25m; extend 25m
		expire 45m; kept a 3/1 15m
		reserve a 3/1 5m; wait 20m
		end expired; kept a 3/1 20m`) // no more is allowed than 30 minutes; and it does not say at once how it ended
	fixture.Sound(t, c.db)
}

// Where the settings give a card more time than a hold, it has that, as often as not.
func TestAReservationThatIsLongerThanAnyHoldIsTheBound(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	c.seller = sale.NewSeller(c.db, time.Hour, sale.Reservations{For: time.Hour, MaxExtension: 30 * time.Minute, Takes: stripe.Takes,
		HoldQuota: inventory.HoldQuota{Max: 20 * time.Minute, Rest: 10 * time.Minute}})
	c.run(`reserve a 3/1 1h; expire 1h; reserve a 3/1 !hold-limit-exceeded`)
}

// A hold of ten minutes is bought after five, the card is declined after one more, and no other
// comes: four minutes are left, and they are the buyer's.
func TestADeclinedCardLeavesTheRestOfTheHold(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	c.run(`hold a 3/1,3/2 10m; wait 2m; reserve a hold 15m; wait 1m`)
	changed := fixture.Watch(t, c.db)
	c.run(`end declined`)
	changed(`
		~ campaign 1: board_version=2 → board_version=3
		~ position 3,1: reserved → held; purchase → hold; v2 board_version=2 expires_at=44m → v3 board_version=3 expires_at=7m
		~ position 3,2: reserved → held; purchase → hold; v2 board_version=2 expires_at=44m → v3 board_version=3 expires_at=7m
		~ job 2: queued → failed; → problem={about: {id: hold 1, kind: hold}, code: payment-declined, detail: the payment did not succeed; retry with a new request and a fresh key}
		+ refused job 2
		~ hold 1: used → active; purchase 1 →
		~ purchase 1: pending → failed; → failure=payment-declined
		~ payment of purchase 1: reserved → cancelled; due_at=past → v2; → ending=declined
		+ step of purchase 1 held-again`)
	c.run(`
		wait 2m; reserve a hold 15m; wait 1m; end declined
		hold b 3/2 1m !position-taken
		kept a 3/1 0
		wait 5m; hold b 3/2 1m; kept a 3/1 10m`) // the hold counts once, when it ends
	fixture.Sound(t, c.db)
}

func TestAHoldKeepsNothingAgainThatIsOverOrCancelled(t *testing.T) {
	t.Parallel()
	for what, script := range map[string]string{
		"the hold is over":          `wait 5m; end declined`,
		"the buyer has cancelled":   `cancel; end cancelled`,
		"the sale has ended":        `end declined`,
		"the campaign is cancelled": `end campaign-cancelled`,
	} {
		c := openCheckout(t)
		c.run(`hold a 3/1 10m; wait 6m; reserve a hold 14m`)
		switch what {
		case "the sale has ended":
			servers.Exec(t, c.db, `UPDATE campaigns SET sale_ends_at = clock_timestamp() WHERE id = $1`, c.id)
		case "the campaign is cancelled":
			endCampaign(t, c.db, c.id)
		}
		c.run(script)
		if h, steps := fixture.HoldNow(t, c.db, c.hold.ID), stepsOf(t, c.db, c.payment.PurchaseID); h.State != inventory.HoldUsed || !strings.HasSuffix(steps, " released") {
			t.Errorf("%s: the hold is %s, steps %s", what, h.State, steps)
		}
		fixture.Sound(t, c.db)
	}
}

// The statement names the state: a position that was paid meanwhile stays sold.
func TestAHoldKeepsNoSoldPositionAgain(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	c.run(`hold a 3/1 10m; reserve a hold 15m; capture; finalize`)
	err := postgres.InTx(t.Context(), c.db, func(tx pgx.Tx) error {
		var b pgx.Batch
		inventory.QueueRestoreHolds(&b, []inventory.Allocation{{HoldID: c.hold.ID, PurchaseID: c.payment.PurchaseID, Items: c.hold.Positions}})
		return tx.SendBatch(t.Context(), &b).Close()
	})
	if !errors.Is(err, postgres.ErrRows) {
		t.Error(err)
	}
	fixture.Sound(t, c.db)
}

func TestAUserWithTenDeclinesPaysByNoCardForAnHour(t *testing.T) {
	t.Parallel()
	c := openCheckout(t)
	c.run(`reserve a 1/1 15m; end declined`)
	declined := c.payment.PurchaseID
	decline := func(n int, user string) {
		servers.Exec(t, c.db, `INSERT INTO payment_steps (purchase_id, event, declined_client, declined_user, at) SELECT $1, 'declined', 'test', $2, clock_timestamp() FROM generate_series(1, $3)`,
			declined, user, n)
	}
	decline(9, "a")
	decline(20, "c")
	c.run(`reserve a 2/1 15m`)
	decline(1, "a")
	c.run(`reserve a 2/2 !decline-limit-exceeded; again 1h`)
	orders := fixture.Accept(t, c.db, fixture.CardRequest(t, c.id, "a", 4, 1), fixture.PurchaseRequest(t, c.id, "a", 4, 1))
	sell(t, c.seller, orders...)
	expect(t, "by card and otherwise", jobsOf(t, c.db, orders), "decline-limit-exceeded", "any 1")
	c.run(`reserve b 3/1 15m; wait 1h; reserve a 3/2 15m`)
}
