package inventory_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/payment"
	"triprize/internal/platform/config"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestChosenPositionsAreHeldTogetherOrNone(t *testing.T) {
	db, id := campaignOn(t, 4)
	service := fixture.Holds(t, db, nil, nil)
	changed := fixture.Watch(t, db)
	fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(4, 2), at(1, 1), at(3, 3)))
	changed(`
		~ campaign 1: free=1,2,3,4 → free=0,2,2,3 positions_reserved=3 board_version=1
		+ position 1,1 held a hold 1 v1 board_version=1 expires_at=10m
		+ position 3,3 held a hold 1 v1 board_version=1 expires_at=10m
		+ position 4,2 held a hold 1 v1 board_version=1 expires_at=10m
		+ job 1 hold-create a succeeded result={CampaignID: campaign 1, Client: test, Currency: JPY, EndsBy: 48h, ExpiresAt: 10m, Extensions: 0, ID: hold 1, Positions: 1,1@100 3,3@300 4,2@400, State: active, UserID: a} attempts=1
		+ hold 1 a 1,1@100 3,3@300 4,2@400 active expires_at=10m ends_by=48h`)
	fixture.Complete(t, db, fixture.ChosenRequest(t, id, "b", at(4, 4)))
	_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "c", at(2, 1), at(1, 1), at(3, 1), at(4, 4)))
	expectTaken(t, "one held, one sold", err, "/positions/1", "/positions/3")
	_, err = fixture.TryHold(t, service, fixture.HoldRequest(id, "a", at(1, 1)))
	expectTaken(t, "its own", err, "/positions/0")
	fixture.Hold(t, service, fixture.HoldRequest(id, "c", at(2, 1), at(3, 1))) // free, and of one that was not held
	own, err := inventory.OfUser(t.Context(), db, id, "test", "a")
	if err != nil || len(own) != 3 || own[0].State != inventory.Held {
		t.Errorf("the board says %+v, %v", own, err)
	}
	expectCounts(t, db, id, 5, 1)
	fixture.Sound(t, db)
}

func TestAHoldAndItsPositionsChangeTogether(t *testing.T) {
	db, id := campaignOn(t, 4)
	service := fixture.Holds(t, db, nil, nil)
	h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(1, 1), at(3, 1)))
	fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 2)))
	changed := fixture.Watch(t, db)
	if _, err := extendAt(t, service, h.ID, 20*time.Minute); err != nil {
		t.Fatal(err)
	}
	changed(`
		~ campaign 1: board_version=2 → board_version=3
		~ position 1,1: v1 board_version=1 expires_at=10m → v2 board_version=3 expires_at=30m
		~ position 3,1: v1 board_version=1 expires_at=10m → v2 board_version=3 expires_at=30m
		+ job 3 hold-extend succeeded result={CampaignID: campaign 1, Client: test, Currency: JPY, EndsBy: 48h, ExpiresAt: 30m, Extensions: 1, ID: hold 1, Positions: 1,1@100 3,1@300, State: active, UserID: a} attempts=1
		~ hold 1: expires_at=10m → extensions=1 expires_at=30m`)
	if _, err := releaseAt(t, service, h.ID); err != nil {
		t.Fatal(err)
	}
	changed(`
		~ campaign 1: positions_reserved=3 board_version=3 → positions_reserved=1 board_version=4
		~ position 1,1: held a hold 1 v2 board_version=3 expires_at=30m → free v3 board_version=4
		~ position 3,1: held a hold 1 v2 board_version=3 expires_at=30m → free v3 board_version=4
		~ hold 1: active → released
		+ held a 1,1
		+ held a 3,1`)
	fixture.Sound(t, db)
}

func TestWhatCannotBeHeldIsRefused(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	one := 1
	limited := fixture.Draft(4)
	limited.PurchaseLimit = &one
	id, few := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Campaign(t, db, limited)
	paused, soon, over, cancelled := fixture.Campaign(t, db, limited), fixture.Campaign(t, db, limited), fixture.Campaign(t, db, limited), fixture.Campaign(t, db, limited)
	for campaignID, change := range map[uuid.UUID]string{
		paused:    `paused_at = clock_timestamp()`,
		soon:      `sale_starts_at = clock_timestamp() + interval '1 h'`,
		over:      `sale_ends_at = clock_timestamp()`,
		cancelled: `state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test'`,
	} {
		servers.Exec(t, db, `UPDATE campaigns SET `+change+` WHERE id = $1`, campaignID)
	}
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.MaxPositionsPerUser = 11 })
	// Those of two positions are over the limit of one as well, but that is not why they are refused.
	for what, c := range map[string]struct {
		request inventory.HoldRequest
		want    fault.Code
	}{
		"an unknown campaign":        {fixture.HoldRequest(uuid.New(), "a", at(1, 1)), fault.NotFound},
		"outside the triangle":       {fixture.HoldRequest(id, "a", at(1, 1), at(5, 1)), fault.InvalidRequest},
		"beyond the layer":           {fixture.HoldRequest(few, "a", at(2, 1), at(2, 3)), fault.InvalidRequest},
		"no such layer":              {fixture.HoldAnyRequest(id, "a", 5, 1), fault.InvalidRequest},
		"more than the layer has":    {fixture.HoldAnyRequest(few, "a", 2, 3), fault.InvalidRequest},
		"more than the triangle has": {fixture.HoldAnyRequest(id, "a", 0, 11), fault.InvalidRequest},
		"paused":                     {fixture.HoldAnyRequest(paused, "a", 0, 2), fault.CampaignPaused},
		"not open yet":               {fixture.HoldAnyRequest(soon, "a", 0, 2), fault.SaleNotOpen},
		"over":                       {fixture.HoldAnyRequest(over, "a", 0, 2), fault.SaleNotOpen},
		"cancelled":                  {fixture.HoldAnyRequest(cancelled, "a", 0, 2), fault.CampaignNotActive},
		"more than the limit":        {fixture.HoldAnyRequest(few, "a", 0, 2), fault.PurchaseLimitExceeded},
	} {
		_, err := fixture.TryHold(t, service, c.request)
		expectCode(t, what, err, c.want)
	}
	all := fixture.HoldAnyRequest(id, "a", 0, 10)
	if made := fixture.Hold(t, service, all); len(made.Positions) != 10 {
		t.Errorf("all there are: %+v", made)
	}
	fixture.Sound(t, db)
}

// A campaign that is no longer on sale may still have holds. Requests and purchases
// do not end them.
func TestHoldsOfACampaignThatIsNotOnSaleAreLeftAlone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1)))
	fixture.EndHold(t, db, h)
	refs := fixture.Accept(t, db, fixture.ChosenRequest(t, id, "b", at(3, 1)), fixture.HeldRequest(t, id, "a", h.ID), fixture.ChosenRequest(t, other, "b", at(3, 1)))
	servers.Exec(t, db, `UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test' WHERE id = $1`, id)
	_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(3, 1)))
	expectCode(t, "hold", err, fault.CampaignNotActive)
	if _, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	for i, want := range []fault.Code{fault.CampaignNotActive, fault.CampaignNotActive, ""} {
		expectCode(t, "buy", problem(fixture.Job(t, db, refs[i].ID)), want)
	}
}

func TestAHoldThatIsNotThereIsNotFound(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	service := fixture.Holds(t, db, nil, nil)
	_, err := extendAt(t, service, uuid.New(), time.Hour)
	expectCode(t, "extend", err, fault.NotFound)
	released, err := releaseAt(t, service, uuid.New())
	if expectCode(t, "release", err, fault.NotFound); released {
		t.Error("it is released")
	}
	h := fixture.Hold(t, service, fixture.HoldRequest(fixture.Campaign(t, db, fixture.Draft(4)), "a", at(1, 1)))
	_, err = service.Release(t.Context(), fixture.Campaign(t, db, fixture.Draft(4)), h.ID)
	expectCode(t, "in another campaign", err, fault.NotFound)
}

// It is about the user's own hold, then about the unpaid purchase that has used it, and others hear of
// neither. One service remembers that the positions are taken.
func TestAPositionThatIsTakenIsAboutTheUsersOwnHoldOrPurchase(t *testing.T) {
	db, id := campaignOn(t, 4)
	services := []*inventory.Holds{fixture.Holds(t, db, nil, nil), fixture.Holds(t, db, open, nil)}
	own, paid := fixture.Hold(t, services[0], fixture.HoldRequest(id, "a", at(3, 1))), fixture.Hold(t, services[0], fixture.HoldRequest(id, "a", at(4, 1)))
	about := func(what string, want fault.About) {
		t.Helper()
		for user, want := range map[string]fault.About{"a": want, "b": {}} {
			for i := range 4 { // the second time they are remembered
				_, err := fixture.TryHold(t, services[i%2], fixture.HoldRequest(id, user, at(2, 1), at(3, 1)))
				if expectCode(t, what, err, fault.PositionTaken); fault.From(err).About != want {
					t.Errorf("%s: a hold of %s is refused about %+v, want %+v", what, user, fault.From(err).About, want)
				}
			}
			if p := fixture.Complete(t, db, fixture.ChosenRequest(t, id, user, at(3, 1)))[0].Problem; p == nil || p.Code != fault.PositionTaken || p.About != want {
				t.Errorf("%s: a purchase of %s is refused with %+v, want it about %+v", what, user, p, want)
			}
		}
	}
	about("held", fault.About{Kind: fault.AboutHold, ID: own.ID.String()})
	bought, ref := fixture.ReserveFor(t, db, fixture.PurchaseRequestOf(t, id, sale.Order{UserID: "a", Selection: fixture.FromHold(own.ID), Payment: sale.Payment{Method: purchase.Card, PaymentMethod: "pm_1"}}), time.Hour)
	about("reserved", fault.About{Kind: fault.AboutPurchase, ID: bought.String(), JobID: ref.ID.String()})
	fixture.Advance(t, db, bought, payment.Captured)
	fixture.SettlePayments(t, db, ref)
	about("sold", fault.About{})
	fixture.Complete(t, db, fixture.HeldRequest(t, id, "a", paid.ID))
	_, err := extendAt(t, services[0], paid.ID, time.Minute)
	expectCode(t, "of a hold that was used", err, fault.StateConflict)
	if h := fixture.HoldNow(t, db, paid.ID); fault.From(err).About != (fault.About{Kind: fault.AboutPurchase, ID: h.PurchaseID.String()}) {
		t.Errorf("about %+v, and purchase %s has used it", fault.From(err).About, h.PurchaseID)
	}
}

// All of them have seen an active hold and wait for the campaign. The position has a new owner when another comes late.
func TestOfManyReleasesOneFrees(t *testing.T) {
	db, id := campaignOn(t, 4)
	service := fixture.Holds(t, db, nil, nil)
	h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1)))
	unlock := fixture.LockCampaign(t, db, id)
	var wins atomic.Int32
	var releases sync.WaitGroup
	for i := range 3 {
		releases.Go(func() {
			released, err := releaseAt(t, fixture.Holds(t, db, nil, nil), h.ID)
			if err != nil {
				t.Error(err)
			}
			if released {
				wins.Add(1)
			}
		})
		servers.AwaitBlocked(t, db, i+1)
	}
	unlock()
	releases.Wait()
	fixture.Hold(t, service, fixture.HoldRequest(id, "c", at(3, 1)))
	if released, err := releaseAt(t, service, h.ID); released || err != nil || wins.Load() != 1 {
		t.Errorf("%d releases, and a late one: %t, %v", wins.Load(), released, err)
	}
	expectCounts(t, db, id, 1, 0)
	fixture.Sound(t, db)
}

// What is sold at the end is drawn: nothing is held then. A hold that could last longer is
// cut, and can be extended to that moment once it ends earlier.
func TestNoHoldOutlastsASaleThatIsDrawnAtItsEnd(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := fixture.Campaign(t, db, fixture.DrawnAtEnd(4, 24*time.Hour)), fixture.Campaign(t, db, fixture.Draft(4))
	c, err := campaign.Get(t.Context(), db, id)
	if err != nil || c.DrawsAt == nil {
		t.Fatal(c, err)
	}
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.MaxTTL = 100 * time.Hour })
	request := fixture.HoldRequest(id, "a", at(4, 1))
	request.TTL = 25 * time.Hour
	cut := fixture.Hold(t, service, request)
	if !cut.ExpiresAt.Equal(*c.DrawsAt) || cut.EndsBy.After(*c.DrawsAt) {
		t.Errorf("it lasts until %s, or %s at most; the sale until %s", cut.ExpiresAt, cut.EndsBy, c.DrawsAt)
	}
	if _, err := extendAt(t, service, cut.ID, 26*time.Hour); fault.CodeOf(err) != fault.HoldLimitExceeded {
		t.Errorf("beyond the end: %v", err)
	}
	request = fixture.HoldRequest(id, "b", at(4, 2))
	request.TTL = time.Hour
	short := fixture.Hold(t, service, request)
	if h, err := extendAt(t, service, short.ID, 26*time.Hour); err != nil || !h.ExpiresAt.Equal(*c.DrawsAt) {
		t.Errorf("up to the end: %+v, %v", h, err)
	}
	request = fixture.HoldRequest(other, "a", at(4, 1))
	request.TTL = 25 * time.Hour
	if h := fixture.Hold(t, service, request); h.ExpiresAt.Before(*c.DrawsAt) {
		t.Errorf("in another campaign: %+v", h)
	}
	fixture.Sound(t, db)
}

// Each limit alone, and how much of it one user gets that asks for two positions at a time.
var limits = map[string]struct {
	change func(*config.Holds)
	limit  bool
	want   int // positions
	code   fault.Code
}{
	"holds":          {func(s *config.Holds) { s.MaxPerUser = 4 }, false, 8, fault.HoldLimitExceeded},
	"positions":      {func(s *config.Holds) { s.MaxPerUser, s.MaxPositionsPerUser = 100, 11 }, false, 10, fault.HoldLimitExceeded},
	"purchase limit": {func(s *config.Holds) { s.MaxPerUser = 100 }, true, 6, fault.PurchaseLimitExceeded},
}

func limitedDraft(limited bool) campaign.Draft {
	draft, limit := fixture.Draft(8), 6
	if limited {
		draft.PurchaseLimit = &limit
	}
	return draft
}

func TestLimitsAreExactWhenOneUserAsksFromAllSides(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for what, c := range limits {
		id := fixture.Campaign(t, db, limitedDraft(c.limit))
		services := []*inventory.Holds{fixture.Holds(t, db, nil, c.change), fixture.Holds(t, db, open, c.change)}
		var requests []inventory.HoldRequest
		for i := range 15 {
			requests = append(requests, fixture.HoldAnyRequest(id, "a", 0, 2), fixture.HoldRequest(id, "a", at(8, i%4+1), at(7, i%4+1)))
		}
		_, refused := together(t, services, requests)
		for i, err := range refused {
			if err != nil && fault.CodeOf(err) != c.code && fault.CodeOf(err) != fault.PositionTaken {
				t.Errorf("%s: request %d: %v", what, i, err)
			}
		}
		expectCounts(t, db, id, c.want, 0)
	}
	fixture.Sound(t, db)
}

func TestLimitsAreExactWithinOneTransaction(t *testing.T) {
	t.Parallel()
	for what, c := range limits {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			db := servers.DB(t)
			id := fixture.Campaign(t, db, limitedDraft(c.limit))
			var requests []inventory.HoldRequest
			for range 12 {
				requests = append(requests, fixture.HoldAnyRequest(id, "a", 0, 2))
			}
			_, refused := inOneBatch(t, db, fixture.Holds(t, db, nil, c.change), id, requests)
			for _, err := range refused {
				if err != nil {
					expectCode(t, what, err, c.code)
				}
			}
			expectCounts(t, db, id, c.want, 0)
			fixture.Sound(t, db)
		})
	}
}

// Random positions of a batch are found together: enough for all requests, also when
// others choose before them, and when some of them must not have one again.
func TestInOneTransactionNobodyIsRefusedForWhatOthersTook(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(7)) // 28 positions
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.MaxPerUser = 20 })
	lapsed := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "cooling", 0, 4)) // the first by rank
	fixture.MoveDeadline(t, db, lapsed, -time.Millisecond)
	fixture.Hold(t, service, fixture.HoldAnyRequest(id, "cooling", 0, 1))
	requests := []inventory.HoldRequest{fixture.HoldRequest(id, "chooser", fixture.Free(t, db, id)[0], fixture.Free(t, db, id)[20]), fixture.HoldAnyRequest(id, "cooling", 0, 9)}
	for i := range 5 {
		requests = append(requests, fixture.HoldAnyRequest(id, fmt.Sprint("user-", i), 0, 2))
	}
	made, refused := inOneBatch(t, db, service, id, requests)
	for i, err := range refused {
		// The chooser may come late, and so may the one that cannot have all.
		if err != nil && (i > 1 || fault.CodeOf(err) != fault.PositionTaken && fault.CodeOf(err) != fault.NoneAvailable) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	for _, p := range placesOf(made[1]) {
		if slices.Contains(placesOf(lapsed), p) {
			t.Errorf("it got %v again", p)
		}
	}
	fixture.Sound(t, db)
}

func TestWhatAUserLetExpireItCannotHoldAgainAtOnce(t *testing.T) {
	db, id := campaignOn(t, 4)
	service := fixture.Holds(t, db, nil, nil)
	hot := []shape.Position{at(3, 1), at(3, 2)}
	lapsed := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(4, 1)))
	fixture.MoveDeadline(t, db, lapsed, -time.Millisecond)
	fixture.Hold(t, service, fixture.HoldRequest(id, "b", at(4, 1))) // what another has let expire, and no sweep has ended
	lapsed = fixture.Hold(t, service, fixture.HoldRequest(id, "a", hot...))
	fixture.MoveDeadline(t, db, lapsed, -time.Millisecond)
	for range 2 { // the first time it has not been tidied up yet
		_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "a", at(1, 1), hot[1]))
		expectCode(t, "what it let expire", err, fault.HoldLimitExceeded)
		if n, _, err := inventory.ExpireHolds(t.Context(), db, id, 10); err != nil {
			t.Fatal(n, err)
		}
	}
	random := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 3, 1))
	if random.Positions[0].Position != at(3, 3) {
		t.Errorf("a random one is %v", random.Positions[0])
	}
	_, err := fixture.TryHold(t, service, fixture.HoldAnyRequest(id, "a", 3, 1))
	expectCode(t, "only those it let expire are left", err, fault.NoneAvailable)
	if everything := fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 6)); len(everything.Positions) != 6 {
		t.Errorf("anywhere: %v", everything.Positions)
	}
	fixture.EndHold(t, db, fixture.Hold(t, service, fixture.HoldRequest(id, "c", hot[0]))) // for another user it is like any
	fixture.Hold(t, service, fixture.HoldRequest(id, "c", hot[0]))                         // its cool-down has ended
	if jobs := fixture.Complete(t, db, fixture.ChosenRequest(t, id, "a", hot[1])); jobs[0].Problem != nil {
		t.Errorf("buying is not holding: %+v", jobs[0].Problem)
	}
	fixture.Sound(t, db)
}

// turns are settings by which a user keeps a position for 20 minutes at most, and then
// leaves it to others for 10.
func turns(s *config.Holds) {
	s.MaxTTL = 10 * time.Minute
}

// keeper is a user who wants to keep position 3/1 for ever.
type keeper struct {
	t       *testing.T
	clock   *servers.Clock
	id      uuid.UUID
	service *inventory.Holds

	has          *inventory.Hold
	since, ended time.Duration // by the clock: of this hold, and of the one before
	kept         time.Duration // by those before, since a rest
	refused      int
}

// over ends the hold that it has, if its time is over or it is released.
func (k *keeper) over(released bool) {
	if k.has == nil {
		return
	}
	if deadline := k.since + k.has.ExpiresAt.Sub(k.has.CreatedAt); released || deadline <= k.clock.Ahead() {
		k.ended = min(deadline, k.clock.Ahead())
		k.kept, k.has = k.kept+k.ended-k.since, nil
	}
}

func (k *keeper) got(h inventory.Hold, err error) bool {
	k.t.Helper()
	if err != nil {
		if code := fault.CodeOf(err); code != fault.HoldLimitExceeded && code != fault.NoneAvailable && code != fault.PositionTaken && code != fault.HoldExpired {
			k.t.Error(err)
		}
		k.refused++
		return false
	}
	k.has = &h
	if all := k.kept + h.ExpiresAt.Sub(h.CreatedAt); all > 20*time.Minute+time.Second {
		k.t.Errorf("kept for %s", all)
	}
	return true
}

func (k *keeper) hold(r inventory.HoldRequest) {
	k.t.Helper()
	k.over(false)
	r.TTL = 5 * time.Minute
	if made, err := fixture.TryHold(k.t, k.service, r); err != nil {
		k.got(made, err)
	} else {
		if k.since = k.clock.Ahead(); k.since >= k.ended+10*time.Minute {
			k.kept = 0
		}
		k.got(made, nil)
	}
}

// holdAgain lets some time pass, releases the hold, and after the cool-down makes another.
func (k *keeper) holdAgain(r inventory.HoldRequest) {
	k.t.Helper()
	k.clock.MoveOn(4 * time.Minute)
	if k.over(false); k.has != nil {
		if _, err := releaseAt(k.t, k.service, k.has.ID); err != nil {
			k.t.Error(err)
		}
		k.over(true)
	}
	k.clock.MoveOn(11 * time.Second)
	k.hold(r)
}

func TestNobodyKeepsAPositionForEver(t *testing.T) {
	t.Parallel()
	for name, tries := range map[string]func(k *keeper, round int){
		"extend": func(k *keeper, _ int) {
			k.clock.MoveOn(9 * time.Minute / 2)
			if k.has == nil || !k.got(extendAt(k.t, k.service, k.has.ID, 10*time.Minute)) {
				k.hold(fixture.HoldRequest(k.id, "a", at(3, 1)))
			}
		},
		"release and hold again": func(k *keeper, _ int) { k.holdAgain(fixture.HoldRequest(k.id, "a", at(3, 1))) },
		"let expire and hold again": func(k *keeper, _ int) {
			k.clock.MoveOn(5*time.Minute + 11*time.Second)
			k.hold(fixture.HoldRequest(k.id, "a", at(3, 1)))
		},
		"any that are free": func(k *keeper, _ int) { k.holdAgain(fixture.HoldAnyRequest(k.id, "a", 3, 1)) }, // the others of the layer are sold
		"alternate with a bundle": func(k *keeper, round int) {
			k.holdAgain(fixture.HoldRequest(k.id, "a", at(3, 1), at(4, 1+round%2)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, clock := servers.DBWithClock(t)
			k := &keeper{t: t, clock: clock, id: fixture.Campaign(t, db, fixture.Draft(4)), service: fixture.Holds(t, db, nil, turns)}
			fixture.Complete(t, db, fixture.ChosenRequest(t, k.id, "z", at(3, 2), at(3, 3)))
			for round := range 12 {
				tries(k, round)
				if held, _, err := inventory.ExpireHolds(t.Context(), db, k.id, 100); err != nil {
					t.Fatal(held, err)
				}
			}
			if k.refused == 0 {
				t.Error("it was never refused")
			}
			fixture.Hold(t, k.service, fixture.HoldRequest(k.id, "b", at(4, 4))) // others are not affected
			fixture.Sound(t, db)
		})
	}
}

func TestAnExtensionGetsWhatTheBoundsLeave(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, turns)
	hold := func(position shape.Position, ttl time.Duration) inventory.Hold {
		r := fixture.HoldRequest(id, "a", position)
		r.TTL = ttl
		return fixture.Hold(t, service, r)
	}
	extend := func(h inventory.Hold, least, most time.Duration) {
		t.Helper()
		longer, err := extendAt(t, service, h.ID, 10*time.Minute)
		if lasts := longer.ExpiresAt.Sub(h.CreatedAt); err != nil || lasts < least || lasts > most || longer.ExpiresAt.After(longer.EndsBy) {
			t.Errorf("it lasts %s, want at least %s and at most %s: %v", lasts, least, most, err)
		}
	}
	for range 2 {
		hold(at(3, 1), 8*time.Minute)
		clock.MoveOn(8*time.Minute + 11*time.Second)
	}
	extend(hold(at(3, 1), 3*time.Minute), 3*time.Minute, 4*time.Minute) // 16 minutes of 20 were used
	whole := hold(at(4, 1), 10*time.Minute)
	clock.MoveOn(4 * time.Minute)
	extend(whole, 13*time.Minute, 15*time.Minute) // no hold has more than 10 minutes left
	for range 2 {                                 // after a rest it is as the first time
		again := hold(at(2, 1), 10*time.Minute)
		clock.MoveOn(9 * time.Minute)
		extend(again, 18*time.Minute, 20*time.Minute)
		clock.MoveOn(21 * time.Minute)
	}
	fixture.Sound(t, db)
}

// One transaction has a release, then its user's new hold of the same position, then
// that of somebody else. It was released to others.
func TestWhoReleasesAPositionHasNoHeadStartForIt(t *testing.T) {
	t.Parallel()
	settings, clock := servers.NewClock(t, servers.Patient(servers.Settings(t)))
	db, elsewhere := servers.Pool(t, settings), servers.Pool(t, settings)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	service := fixture.Holds(t, db, nil, turns)
	h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1)))
	clock.MoveOn(time.Minute)
	queue, letGo := queueing(t, elsewhere, service, id)
	var mine, others error
	queue(func() { _, _ = service.Release(t.Context(), id, h.ID) })
	queue(func() { _, mine = fixture.TryHold(t, service, fixture.HoldRequest(id, "a", at(3, 1))) })
	queue(func() { _, others = fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(3, 1))) })
	letGo()
	if mine == nil || others != nil {
		t.Errorf("the one who released it: %v; another: %v", mine, others)
	}
	fixture.Sound(t, db)
}
