//go:build failpoint

package lifecycle_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/failpoint"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

var errDies = errors.New("the worker dies")

// The worker dies at each point, in each chunk; the next one finishes what it has begun.
func TestAWorkerThatDiesAnywhereLeavesNothingHalfAndNothingIsGivenBackTwice(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]lifecycle.CancelOrder{"a cancellation": byOps, "a void": voided} {
		t.Run(name, func(t *testing.T) { diesAnywhere(t, o) })
	}
}

func diesAnywhere(t *testing.T, o lifecycle.CancelOrder) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(40))
	sum := mixedPurchases(t, db, id, 240)
	if o.Void {
		servers.Exec(t, db, `UPDATE campaigns SET state = 'drawing', draw_started_at = now() - interval '24 hours' WHERE id = $1`, id)
	}
	ref := order(t, db, id, o)
	die := func(point string) {
		defer func() { _ = recover() }()
		defer failpoint.Set(point, id.String(), func() { panic(errDies) })()
		_, err := canceller(t, db).Run(t.Context(), ref)
		t.Errorf("it lived through %s: %v", point, err)
	}
	for _, point := range []string{"lifecycle.begun", "lifecycle.chunk", "lifecycle.chunked", "lifecycle.begun", "lifecycle.chunk", "lifecycle.chunked"} {
		die(point)
		fixture.Sound(t, db)
	}
	waits(t, canceller(t, db), ref)
	sum.check(t, db, id)
	succeedRefunds(t, db, id)
	die("lifecycle.finalize")
	if j := fixture.Job(t, db, ref.ID); j.State != job.Queued {
		t.Errorf("the job is %s", j.State)
	}
	ends(t, canceller(t, db), ref)
	fixture.Sound(t, db)
}

// Two workers have the same job, because Redis has forgotten whose it is.
func TestTwoWorkersWithOneJobGiveEachPurchaseBackOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(40))
	sum := mixedPurchases(t, db, id, 240)
	ref := order(t, db, id, byOps)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if _, err := canceller(t, db).Run(t.Context(), ref); !errors.Is(err, lifecycle.ErrSnoozed) {
				t.Errorf("got %v", err)
			}
		})
	}
	both.Wait()
	sum.check(t, db, id)
	fixture.Sound(t, db)
}

// Whoever is about to commit lets the other one wait for the campaign: a sale or a hold, and the end of it.
func TestTheEndOfACampaignTakesTurnsWithSalesAndHolds(t *testing.T) {
	t.Parallel()
	sells := func(db *pgxpool.Pool, id uuid.UUID, user string) func(t *testing.T) {
		refs := fixture.Accept(t, db, fixture.ChosenRequest(t, id, user, fixture.At(1, 1)))
		return func(t *testing.T) {
			if _, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign); err != nil {
				t.Error(err)
			}
		}
	}
	cancels := func(db *pgxpool.Pool, id uuid.UUID, _ string) func(t *testing.T) {
		ref := order(t, db, id, byOps)
		return func(t *testing.T) {
			if _, err := canceller(t, db).Run(t.Context(), ref); err != nil {
				t.Error(err)
			}
		}
	}
	holds := func(db *pgxpool.Pool, id uuid.UUID, user string) func(t *testing.T) {
		return func(t *testing.T) {
			fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(id, user, fixture.At(1, 1)))
		}
	}
	for point, c := range map[string]struct {
		first, other func(db *pgxpool.Pool, id uuid.UUID, user string) func(t *testing.T)
		want         string
	}{
		"lifecycle.chunk": {cancels, sells, "campaign-not-active"}, // under the lock, and the campaign is cancelled
		"sale.commit":     {sells, cancels, "cancelled external"},
		"holds.commit":    {holds, cancels, "released"},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			db, user := servers.DB(t), uuid.NewString()
			id := fixture.Campaign(t, db, fixture.Draft(6))
			fixture.Complete(t, db, fixture.PurchaseRequest(t, id, "before", 6, 3))
			first, other := c.first(db, id, user), c.other(db, id, user)
			var others sync.WaitGroup
			begin := sync.OnceFunc(func() {
				others.Go(func() { other(t) })
				servers.AwaitBlocked(t, db, 1)
			})
			for _, key := range []string{id.String(), user} {
				defer failpoint.Set(point, key, begin)()
			}
			first(t)
			others.Wait()
			got := servers.Value[string](t, db, `SELECT concat((SELECT problem ->> 'code' FROM jobs WHERE user_id = $1 AND problem IS NOT NULL),
				(SELECT p.state || ' ' || r.method FROM purchases p JOIN refunds r ON r.purchase_id = p.id WHERE p.user_id = $1), (SELECT state FROM holds WHERE user_id = $1))`, user)
			if now := campaignOf(t, db, id); got != c.want || now.State != campaign.Cancelled || now.Counts.Sold+now.Counts.Reserved != 0 {
				t.Errorf("it is %q in %+v", got, now)
			}
			fixture.Sound(t, db)
		})
	}
}
