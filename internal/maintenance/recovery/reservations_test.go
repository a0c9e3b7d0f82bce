package recovery_test

import (
	"sync"
	"testing"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/service/sale"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
	"triprize/internal/testkit/fixture"
)

func TestAnExpiredReservationFreesEverythingItHeld(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	draft := fixture.Draft(4)
	limit := 2
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, p.db, draft)
	expiredPurchase, expired := fixture.Reserve(t, p.db, id, "late", 2, -time.Second)
	_, fresh := fixture.Reserve(t, p.db, id, "in time", 1, time.Hour)

	refused := fixture.Accept(t, p.db, fixture.PurchaseRequest(t, id, "late", 0, 1))
	seller := fixture.Seller(p.db)
	if _, err := seller.Sell(t.Context(), refused, sale.SkipLocked); err != nil {
		t.Fatal(err)
	}
	if j := fixture.Job(t, p.db, refused[0].ID); j.Problem == nil || j.Problem.Code != fault.PurchaseLimitExceeded {
		t.Errorf("a reservation does not count for the limit: %+v", j)
	}

	if got := p.sweep("expired-reservations"); got["found"] != 1 || got["expired"] != 1 || got["failed"] != 0 {
		t.Errorf("got %v", got)
	}
	if j := fixture.Job(t, p.db, expired.ID); j.State != job.Failed || j.Problem.Code != fault.ReservationExpired {
		t.Errorf("its job is %s, %+v", j.State, j.Problem)
	}
	if got, err := purchase.Get(t.Context(), p.db, expiredPurchase); err != nil || got.State != purchase.Failed || *got.Failure != fault.ReservationExpired {
		t.Errorf("its purchase is %+v, %v", got, err)
	}
	if j := fixture.Job(t, p.db, fresh.ID); j.State != job.AwaitingAction {
		t.Errorf("the job of a fresh reservation is %s", j.State)
	}
	c, err := campaign.Get(t.Context(), p.db, id)
	if err != nil || c.Counts.Reserved != 1 || c.Counts.Available() != 9 {
		t.Errorf("counters %+v, %v", c.Counts, err)
	}
	again := fixture.Accept(t, p.db, fixture.PurchaseRequest(t, id, "late", 0, 2))
	if _, err := seller.Sell(t.Context(), again, sale.SkipLocked); err != nil {
		t.Fatal(err)
	}
	if j := fixture.Job(t, p.db, again[0].ID); j.State != job.Succeeded {
		t.Errorf("the limit is not free again: %+v", j.Problem)
	}
	fixture.Sound(t, p.db)
}

func TestAReservedPositionIsNotSoldOut(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(4))
	fixture.Reserve(t, p.db, id, "undecided", 1, time.Hour)
	fixture.Sell(t, p.db, id, 9)
	refs := fixture.Accept(t, p.db, fixture.PurchaseRequest(t, id, "a", 0, 1), fixture.PurchaseRequest(t, id, "a", 0, 3))
	if _, err := fixture.Seller(p.db).Sell(t.Context(), refs, sale.SkipLocked); err != nil {
		t.Fatal(err)
	}
	for _, ref := range refs {
		if j := fixture.Job(t, p.db, ref.ID); j.Problem == nil || j.Problem.Code != fault.NoneAvailable {
			t.Errorf("got %+v", j.Problem)
		}
	}
	if c, _ := campaign.Get(t.Context(), p.db, id); c.State != campaign.Active {
		t.Errorf("the campaign is %s: a reservation counted as sold", c.State)
	}
}

func TestTwoSweepsExpireAReservationOnce(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(20))
	const n = 60
	for range n {
		fixture.Reserve(t, p.db, id, "late", 2, -time.Second)
	}
	expired := make([]int, 3)
	var sweeps sync.WaitGroup
	for i := range expired {
		sweeps.Go(func() { expired[i] = p.sweep("expired-reservations")["expired"] })
	}
	sweeps.Wait()
	if total := expired[0] + expired[1] + expired[2]; total != n {
		t.Errorf("%d of %d reservations were expired: %v", total, n, expired)
	}
	if c, _ := campaign.Get(t.Context(), p.db, id); c.Counts.Reserved != 0 {
		t.Errorf("counters %+v", c.Counts)
	}
	fixture.Sound(t, p.db)
}
