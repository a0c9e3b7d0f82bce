//go:build failpoint

package sale_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// lastSale makes a campaign of which all but one position are sold, the order for that one, and a
// cancellation of two of the others.
func lastSale(t *testing.T, db *pgxpool.Pool, buyer, owner string) (id uuid.UUID, order, back job.Ref) {
	t.Helper()
	id = fixture.Campaign(t, db, fixture.Draft(3))
	bought := fixture.Buy(t, db, id, owner, 0, 2)
	fixture.Sell(t, db, id, 3)
	refs := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, buyer, 0, 1), fixture.CancelRequest(t, id, bought))
	return id, refs[0], refs[1]
}

// The one that comes second waits for the campaign, and must see it as the first leaves it.
func TestOfTheLastSaleAndACancellationOneComesFirst(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	seller := fixture.Seller(db)
	for _, commits := range []string{"sale", "cancellation", "the first of both", "the first of both, in the other order"} {
		buyer, owner := uuid.NewString(), uuid.NewString()
		id, order, back := lastSale(t, db, buyer, owner)
		sells, cancels := func() { sell(t, seller, order) }, func() { complete(t, seller, back) }
		var waits sync.WaitGroup
		meanwhile := func(do func()) func() { return func() { waits.Go(do); servers.AwaitBlocked(t, db, 1) } }
		switch commits {
		case "sale":
			unset := failpoint.Set("sale.commit", buyer, meanwhile(cancels))
			sells()
			unset()
		case "cancellation":
			unset := failpoint.Set("cancellation.commit", owner, meanwhile(sells))
			cancels()
			unset()
		default:
			unlock, race := fixture.LockCampaign(t, db, id), []func(){sells, cancels, sells}
			for i, do := range race[len(commits)%2:][:2] {
				waits.Go(do)
				servers.AwaitBlocked(t, db, i+1)
			}
			unlock()
		}
		waits.Wait()
		expectCodes(t, db, []job.Ref{order}, "") // there was a position in both cases
		switch c := campaignOf(t, db, id); {
		case c.State == campaign.Active && c.Counts.Sold == 4 && commits != "sale":
			expectCodes(t, db, []job.Ref{back}, "")
		case c.State == campaign.Drawing && c.Counts.Sold == 6 && commits != "cancellation":
			refused(t, "every position is sold", fixture.Job(t, db, back.ID), "drawing")
		default:
			t.Errorf("%s commits: the campaign is %s, %d are sold", commits, c.State, c.Counts.Sold)
		}
	}
	fixture.Sound(t, db)
}

func TestATransactionThatDiesBeforeItsCommitLeavesNothing(t *testing.T) {
	db, id := campaignOn(t, 4)
	dies := uuid.NewString()
	paid, payRef := fixture.Reserve(t, db, id, dies, 1, time.Hour)
	fixture.Advance(t, db, paid, payment.Captured)
	for point, c := range map[string]struct {
		operation string
		ref       job.Ref
	}{
		"sale.commit":         {"sell", fixture.Accept(t, db, fixture.PurchaseRequest(t, id, dies, 0, 2))[0]},
		"cancellation.commit": {"cancel", fixture.Accept(t, db, fixture.CancelRequest(t, id, fixture.Buy(t, db, id, dies, 0, 2)))[0]},
		"settlement.commit":   {"finalize", payRef},
	} {
		do := func() {
			if _, err := operations[c.operation](fixture.Seller(db), t.Context(), []job.Ref{c.ref}, forAll); err != nil {
				t.Error(err)
			}
		}
		changed := fixture.Watch(t, db)
		func() {
			defer func() { _ = recover() }()
			defer failpoint.Set(point, dies, func() { panic(errDies) })()
			do()
			t.Error("it lived")
		}()
		changed(``)
		do()
		expectCodes(t, db, []job.Ref{c.ref}, "")
	}
	fixture.Sound(t, db)
}
