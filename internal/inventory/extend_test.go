package inventory_test

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// extend extends a hold where most extensions are allowed.
func extend(t *testing.T, db *pgxpool.Pool, id uuid.UUID, ttl time.Duration, most int) (inventory.Hold, error) {
	t.Helper()
	return extendAt(t, fixture.Holds(t, db, nil, func(s *config.Holds) { s.MaxExtensions = most }), id, ttl)
}

// extendAt extends a hold at a service.
func extendAt(t *testing.T, service *inventory.Holds, id uuid.UUID, ttl time.Duration) (h inventory.Hold, err error) {
	t.Helper()
	done, err := service.Extend(t.Context(), inventory.HoldRequest{Job: extendRequest(t, service, id), TTL: ttl}, id)
	if err := fixture.Refused(job.Done{Accepted: done}, err); err != nil {
		return h, err
	}
	return h, json.Unmarshal(done.Job.Result, &h)
}

func extendRequest(t *testing.T, service *inventory.Holds, id uuid.UUID) job.Request {
	t.Helper()
	key := uuidv7.New()
	return job.Request{ID: key, Client: "test", Key: key.String(), Kind: job.KindHoldExtend, Keep: time.Hour, CampaignID: campaignOf(t, service.DB(), id)}
}

// campaignOf returns the campaign of a hold, or none.
func campaignOf(t *testing.T, db postgres.DB, hold uuid.UUID) uuid.UUID {
	t.Helper()
	h, err := inventory.GetHold(t.Context(), db, access.Everything(), hold)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		t.Fatal(err)
	}
	return h.CampaignID
}

// release releases a hold, as another process does.
func release(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (released bool, err error) {
	t.Helper()
	return releaseAt(t, fixture.Holds(t, db, nil, nil), id)
}

// releaseAt releases a hold at a service.
func releaseAt(t *testing.T, service *inventory.Holds, id uuid.UUID) (released bool, err error) {
	t.Helper()
	return service.Release(t.Context(), campaignOf(t, service.DB(), id), id)
}

func TestAnExtensionAddsToWhatIsLeftAndIsCounted(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1), at(4, 4)))
	later, err := extend(t, db, h.ID, 20*time.Minute, 1)
	if err != nil || later.Extensions != 1 || later.ExpiresAt.Sub(h.ExpiresAt) != 20*time.Minute {
		t.Fatalf("extended: %+v, %v", later, err)
	}
	if p, err := inventory.Get(t.Context(), db, id, at(4, 4)); err != nil || !p.ExpiresAt.Equal(later.ExpiresAt) {
		t.Errorf("its position ends at %v, the hold at %s (%v)", p.ExpiresAt, later.ExpiresAt, err)
	}
	_, err = extend(t, db, h.ID, time.Hour, 1)
	expectCode(t, "a second extension", err, fault.HoldLimitExceeded)
	_, err = extend(t, db, h.ID, time.Hour, 0)
	expectCode(t, "where none is allowed", err, fault.HoldLimitExceeded)
	if later, err = extend(t, db, h.ID, time.Second, 2); err != nil || later.ExpiresAt.Sub(h.ExpiresAt) != 20*time.Minute+time.Second || later.Extensions != 2 {
		t.Errorf("by a second: %+v, %v", later, err)
	}
	if stored := fixture.HoldNow(t, db, h.ID); !stored.ExpiresAt.Equal(later.ExpiresAt) || stored.Extensions != 2 || stored.State != inventory.HoldActive {
		t.Errorf("stored is %+v", stored)
	}
	fixture.Sound(t, db)
	fixture.EndHold(t, db, h)
	_, err = extend(t, db, h.ID, time.Hour, 9)
	expectCode(t, "after its end", err, fault.HoldExpired)
	_, err = extend(t, db, uuid.New(), time.Hour, 9)
	expectCode(t, "one that is not there", err, fault.NotFound)
	expectCounts(t, db, id, 0, 0)
}

// A hold of the longest time can get nothing yet, and what is refused is not counted.
func TestAnExtensionLeavesNoMoreThanTheLongestHold(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.MaxTTL, s.MaxExtensions = time.Hour, 1 })
	id := fixture.Campaign(t, db, fixture.Draft(4))
	request := fixture.HoldRequest(id, "a", at(3, 1))
	request.TTL = time.Hour
	whole := fixture.Hold(t, service, request)
	passes(t, db, id, 20*time.Minute)
	before := fixture.HoldNow(t, db, whole.ID)
	longer, err := extendAt(t, service, whole.ID, time.Hour)
	if err != nil || !longer.ExpiresAt.After(before.ExpiresAt.Add(19*time.Minute)) {
		t.Fatalf("it had an hour, 20 minutes ago: %+v, %v", longer, err)
	}
	var left time.Duration
	if err := db.QueryRow(t.Context(), `SELECT $1::timestamptz - clock_timestamp()`, longer.ExpiresAt).Scan(&left); err != nil || left > time.Hour {
		t.Errorf("%s are left: %v", left, err)
	}
	fixture.Sound(t, db)
}

func TestAPositionThatIsTakenIsAboutTheUsersOwnHold(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	remembering := fixture.Holds(t, db, open, nil)
	own := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1), at(3, 2)))
	about := func(what string, err error) fault.About {
		t.Helper()
		expectCode(t, what, err, fault.PositionTaken)
		return fault.From(err).About
	}
	for range 2 { // the second time the service remembers that they are taken
		for _, s := range []*inventory.Holds{service, remembering} {
			_, err := fixture.TryHold(t, s, fixture.HoldRequest(id, "a", at(2, 1), at(3, 2)))
			if got := about("its own", err); got != (fault.About{Kind: fault.AboutHold, ID: own.ID.String()}) {
				t.Errorf("about %+v, and not its hold %s", got, own.ID)
			}
			_, err = fixture.TryHold(t, s, fixture.HoldRequest(id, "b", at(3, 1)))
			if got := about("another user's", err); got != (fault.About{}) {
				t.Errorf("another user hears of %+v", got)
			}
		}
	}
	chosen := func(user string) *job.Problem {
		return fixture.Finalize(t, db, fixture.PurchaseRequestOf(t, id, sale.Order{UserID: user, Selection: fixture.Chosen(at(3, 1)), Payment: sale.Payment{Method: purchase.External}}))[0].Problem
	}
	if p := chosen("a"); p == nil || p.Code != fault.PositionTaken || p.About != (fault.About{Kind: fault.AboutHold, ID: own.ID.String()}) {
		t.Errorf("its purchase: %+v", p)
	}
	if p := chosen("b"); p == nil || p.Code != fault.PositionTaken || p.About != (fault.About{}) {
		t.Errorf("another user's purchase: %+v", p)
	}
	used := fixture.Finalize(t, db, fixture.HeldRequest(t, id, "a", own.ID))[0]
	_, err := extendAt(t, service, own.ID, time.Minute)
	expectCode(t, "of a hold that was used", err, fault.StateConflict)
	if h := fixture.HoldNow(t, db, own.ID); used.Problem != nil || fault.From(err).About != (fault.About{Kind: fault.AboutPurchase, ID: h.PurchaseID.String()}) {
		t.Errorf("about %+v, and purchase %s has used it", fault.From(err).About, h.PurchaseID)
	}
	if p := chosen("a"); p == nil || p.About != (fault.About{}) {
		t.Errorf("of what it has bought: %+v", p)
	}
}

// Its hold is used, and its card is not charged yet: the purchase can still be paid. One process
// remembers the hold.
func TestAPositionThatIsTakenIsAboutTheUsersOwnUnpaidPurchase(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, remembering := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, open, nil)
	own := fixture.Hold(t, remembering, fixture.HoldRequest(id, "a", at(3, 1)))
	byCard := fixture.PurchaseRequestOf(t, id, sale.Order{UserID: "a", Selection: fixture.FromHold(own.ID), Payment: sale.Payment{Method: purchase.Card, PaymentMethod: "pm_1"}})
	bought, ref := fixture.ReserveFor(t, db, byCard, time.Hour)
	want := fault.About{Kind: fault.AboutPurchase, ID: bought.String(), JobID: ref.ID.String()}
	_, err := fixture.TryHold(t, remembering, fixture.HoldRequest(id, "a", at(2, 1), at(3, 1)))
	expectCode(t, "its own", err, fault.PositionTaken)
	if got := fault.From(err).About; got != want {
		t.Errorf("a hold is refused about %+v, want %+v", got, want)
	}
	again := sale.Order{UserID: "a", Selection: fixture.Chosen(at(3, 1)), Payment: sale.Payment{Method: purchase.External}}
	if p := fixture.Finalize(t, db, fixture.PurchaseRequestOf(t, id, again))[0].Problem; p == nil || p.About != want {
		t.Errorf("a purchase is refused with %+v, want it about %+v", p, want)
	}
	again.UserID = "b"
	if p := fixture.Finalize(t, db, fixture.PurchaseRequestOf(t, id, again))[0].Problem; p == nil || p.About != (fault.About{}) {
		t.Errorf("another user hears of %+v", p)
	}
}

func TestAReleaseFreesAtOnceAndASecondOneNothing(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1), at(4, 4)))
	others := fixture.Hold(t, service, fixture.HoldRequest(id, "b", at(1, 1)))
	var wins int
	var mu sync.Mutex
	var releases sync.WaitGroup
	for range 6 {
		releases.Go(func() {
			released, err := release(t, db, h.ID)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if released {
				wins++
			}
		})
	}
	releases.Wait()
	if got := fixture.HoldNow(t, db, h.ID); wins != 1 || got.State != inventory.HoldReleased || got.EndedAt == nil {
		t.Errorf("%d releases, and it is %+v", wins, got)
	}
	expectCounts(t, db, id, 1, 0)
	fixture.Hold(t, service, fixture.HoldRequest(id, "c", at(4, 4), at(3, 1))) // has a new owner
	if released, err := release(t, db, h.ID); released || err != nil {
		t.Errorf("a late release: %t, %v", released, err)
	}
	_, err := extend(t, db, h.ID, time.Minute, 1)
	expectCode(t, "extending what was released", err, fault.HoldExpired)
	jobs := fixture.Finalize(t, db, fixture.HeldRequest(t, id, "a", h.ID), fixture.HeldRequest(t, id, "b", others.ID))
	if jobs[0].Problem == nil || jobs[0].Problem.Code != fault.HoldExpired || jobs[1].Problem != nil {
		t.Errorf("bought: %+v, %+v", jobs[0].Problem, jobs[1].Problem)
	}
	_, err = release(t, db, others.ID)
	expectCode(t, "releasing what was bought", err, fault.StateConflict)
	_, err = extend(t, db, others.ID, time.Minute, 1)
	expectCode(t, "extending what was bought", err, fault.StateConflict)
	_, err = release(t, db, uuid.New())
	expectCode(t, "releasing what is not there", err, fault.NotFound)
	expectCounts(t, db, id, 2, 1)
	fixture.Sound(t, db)
}

// All of them have seen an active hold and wait for the campaign.
func TestReleasesThatWaitedForTheCampaignLookAgain(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1)))
	locked, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := campaign.Lock(t.Context(), locked, id); err != nil {
		t.Fatal(err)
	}
	var wins atomic.Int32
	var releases sync.WaitGroup
	for range 3 {
		releases.Go(func() {
			released, err := release(t, db, h.ID)
			if err != nil {
				t.Error(err)
			}
			if released {
				wins.Add(1)
			}
		})
	}
	servers.AwaitBlocked(t, db, 3)
	if err := locked.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	releases.Wait()
	if n := wins.Load(); n != 1 {
		t.Errorf("%d releases", n)
	}
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
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.MaxTTL, s.MaxExtensions = 100*time.Hour, 9 })
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
