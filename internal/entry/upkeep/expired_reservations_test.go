package upkeep_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// The sweep gives the payment up. What the provider then says frees what it held.
func TestAnExpiredReservationFreesEverythingItHeldWhenItsPaymentHasEnded(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	draft := fixture.Draft(4)
	limit := 2
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, p.db, draft)
	expiredPurchase, expired := fixture.Reserve(t, p.db, id, "late", 2, -time.Second)
	fixture.Advance(t, p.db, expiredPurchase, payment.Action)
	inTime, fresh := fixture.Reserve(t, p.db, id, "in time", 1, time.Hour)

	refused := fixture.Accept(t, p.db, fixture.PurchaseRequest(t, id, "late", 0, 1))
	seller := fixture.Seller(p.db)
	if _, err := seller.Sell(t.Context(), refused, sale.SkipLocked); err != nil {
		t.Fatal(err)
	}
	if j := fixture.Job(t, p.db, refused[0].ID); j.Problem == nil || j.Problem.Code != fault.PurchaseLimitExceeded {
		t.Errorf("a reservation does not count for the limit: %+v", j)
	}

	if got := p.sweep("expired-reservations"); got["found"] != 1 || got["expired"] != 1 {
		t.Errorf("got %v", got)
	}
	now := fixture.Payment(t, p.db, expiredPurchase)
	if now.Phase != payment.Expiring || *now.Ending != payment.Expired || now.NextAction != nil || now.LeaseUntil != nil || now.DueAt == nil {
		t.Errorf("its payment is %+v", now)
	}
	if j := fixture.Job(t, p.db, expired.ID); j.State != job.Queued || j.Progress != nil {
		t.Errorf("its job is %s, %+v", j.State, j.Progress)
	}
	if other := fixture.Payment(t, p.db, inTime); other.Phase != payment.Reserved || fixture.Job(t, p.db, fresh.ID).State != job.Queued {
		t.Errorf("the payment of a fresh reservation is %s", other.Phase)
	}
	if c, err := campaign.Get(t.Context(), p.db, id); err != nil || c.Counts.Reserved != 3 {
		t.Errorf("freed before the provider said so: %+v, %v", c.Counts, err)
	}
	if steps, err := payment.StepsOf(t.Context(), p.db, []uuid.UUID{expiredPurchase}); err != nil || len(steps) != 2 || steps[1].Event != payment.StepExpired {
		t.Errorf("steps %+v, %v", steps, err)
	}
	fixture.Sound(t, p.db)

	fixture.Advance(t, p.db, expiredPurchase, payment.Ended)
	fixture.Conclude(t, p.db, expired)
	if got, err := purchase.Get(t.Context(), p.db, access.Everything(), expiredPurchase); err != nil || got.State != purchase.Failed || *got.Failure != fault.ReservationExpired {
		t.Errorf("its purchase is %+v, %v", got, err)
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

// A payment that somebody has, or whose money is being taken, is nobody else's to end.
func TestTheSweepLeavesPaymentsAloneThatAreLookedAt(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(8))
	claimed, _ := fixture.Reserve(t, p.db, id, "claimed", 1, -time.Second)
	if _, ok, err := payment.Claim(t.Context(), p.db, lease.Item{ID: claimed}, time.Hour); err != nil || !ok {
		t.Fatal(ok, err)
	}
	phases := []payment.Phase{payment.Capturing, payment.Captured, payment.Expiring, payment.Ended}
	for _, phase := range phases {
		bought, _ := fixture.Reserve(t, p.db, id, string(phase), 1, -time.Second)
		fixture.Advance(t, p.db, bought, phase)
	}
	if got := p.sweep("expired-reservations"); got["expired"] != 0 {
		t.Errorf("got %v", got)
	}
	servers.Exec(t, p.db, `UPDATE payments SET lease_until = clock_timestamp() WHERE purchase_id = $1`, claimed)
	if got := p.sweep("expired-reservations"); got["expired"] != 1 || fixture.Payment(t, p.db, claimed).Phase != payment.Expiring {
		t.Errorf("after its lease: %v", got)
	}
	fixture.Sound(t, p.db)
}

func TestTwoSweepsExpireAReservationOnce(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(20))
	const n = 60
	for i := range n {
		fixture.Reserve(t, p.db, id, fmt.Sprint("late-", i), 2, -time.Second)
	}
	expired := make([]int, 3)
	var sweeps sync.WaitGroup
	for i := range expired {
		sweeps.Go(func() { expired[i] = p.sweep("expired-reservations")["expired"] })
	}
	sweeps.Wait()
	last := p.sweep("expired-reservations")["expired"] // they skip what another has at the moment
	if total := expired[0] + expired[1] + expired[2] + last; total != n {
		t.Errorf("%d of %d reservations were expired: %v", total, n, expired)
	}
	fixture.Sound(t, p.db)
}
