package sale_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func free(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (places []shape.Position) {
	t.Helper()
	all, err := inventory.All(t.Context(), db, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.State == inventory.Available {
			places = append(places, p.Position)
		}
	}
	return places
}

func TestAHoldIsBoughtBesideOthersWhoWantTheSamePositions(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1), at(3, 2)))
	jobs := fixture.Finalize(t, db,
		fixture.ChosenRequest(t, id, "b", at(1, 1), at(3, 1)),
		fixture.PurchaseRequest(t, id, "c", 3, 2),
		fixture.HeldRequest(t, id, "b", h.ID),
		fixture.HeldRequest(t, id, "a", h.ID),
		fixture.HeldRequest(t, id, "a", h.ID),
		fixture.PurchaseRequest(t, id, "d", 3, 1),
		fixture.ChosenRequest(t, id, "a", at(3, 2)),
		fixture.HeldRequest(t, id, "a", uuid.New()),
	)
	expectGone(t, "chosen by another", jobs[0], 1)
	expect(t, "random ones", jobs[1], fault.NoneAvailable)
	expect(t, "another's hold", jobs[2], fault.NotFound)
	expect(t, "the hold", jobs[3], "", at(3, 1), at(3, 2))
	expect(t, "the hold again", jobs[4], fault.StateConflict)
	expect(t, "a random one", jobs[5], "", at(3, 3))
	expectGone(t, "what it bought already", jobs[6], 0)
	expect(t, "no such hold", jobs[7], fault.NotFound)
	if now := fixture.HoldNow(t, db, h.ID); now.State != inventory.HoldUsed || now.PurchaseID == nil || now.EndedAt == nil {
		t.Errorf("the hold is %+v", now)
	}
	expect(t, "in a later batch", fixture.Finalize(t, db, fixture.HeldRequest(t, id, "a", h.ID))[0], fault.StateConflict)
	fixture.Sound(t, db)
}

func TestHoldsOfOneBatchAreEachUsedByTheirOwnPurchase(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(6)), fixture.Holds(t, db, nil, nil)
	var holds []inventory.Hold
	var requests []job.Request
	for i := range 8 {
		user := fmt.Sprint("buyer-", i)
		holds = append(holds, fixture.Hold(t, service, fixture.HoldAnyRequest(id, user, 0, 2)))
		requests = append(requests, fixture.HeldRequest(t, id, user, holds[i].ID))
	}
	for i, j := range fixture.Finalize(t, db, requests...) {
		var result sale.Result
		if err := json.Unmarshal(j.Result, &result); err != nil {
			t.Fatal(err)
		}
		if now := fixture.HoldNow(t, db, holds[i].ID); now.PurchaseID == nil || *now.PurchaseID != result.PurchaseID {
			t.Errorf("hold %d was used by %v, its purchase is %s", i, now.PurchaseID, result.PurchaseID)
		}
	}
	fixture.Sound(t, db)
}

func TestAHoldIsOfItsUserAndOfItsCampaign(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Campaign(t, db, fixture.Draft(4))
	h := fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(id, "a", at(3, 1)))
	jobs := fixture.Finalize(t, db, fixture.HeldRequest(t, other, "a", h.ID), fixture.HeldRequest(t, id, "b", h.ID))
	expect(t, "in another campaign", jobs[0], fault.NotFound)
	expect(t, "by another user", jobs[1], fault.NotFound)
	if now := fixture.HoldNow(t, db, h.ID); now.State != inventory.HoldActive {
		t.Errorf("it is %+v", now)
	}
	servers.Exec(t, db, `UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, id)
	expect(t, "in a pause", fixture.Finalize(t, db, fixture.HeldRequest(t, id, "a", h.ID))[0], fault.CampaignPaused)
	if now := fixture.HoldNow(t, db, h.ID); now.State != inventory.HoldActive {
		t.Errorf("after a refusal it is %+v", now)
	}
	fixture.Sound(t, db)
}

func TestOfManyPurchasesFromOneHoldOneWins(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	h := fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(id, "a", at(3, 1), at(4, 1)))
	jobs := make([]job.Job, 12)
	var buyers sync.WaitGroup
	for i := range jobs { // each in a batch of its own
		request := fixture.HeldRequest(t, id, "a", h.ID)
		buyers.Go(func() { jobs[i] = fixture.Finalize(t, db, request)[0] })
	}
	buyers.Wait()
	won := 0
	for _, j := range jobs {
		if j.Problem == nil {
			won++
			expect(t, "the winner", j, "", at(3, 1), at(4, 1))
		} else {
			expect(t, "a loser", j, fault.StateConflict)
		}
	}
	if won != 1 {
		t.Errorf("%d purchases of one hold", won)
	}
	fixture.Sound(t, db)
}

func TestHoldsOfABusyCampaignAreLeftAlone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	busy, idle := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Campaign(t, db, fixture.Draft(4))
	service := fixture.Holds(t, db, nil, nil)
	theirs, ours := fixture.Hold(t, service, fixture.HoldRequest(busy, "a", at(1, 1))), fixture.Hold(t, service, fixture.HoldRequest(idle, "a", at(1, 1)))
	fixture.EndHold(t, db, theirs)
	fixture.EndHold(t, db, ours)
	refs := fixture.Accept(t, db, fixture.ChosenRequest(t, busy, "b", at(1, 1)), fixture.ChosenRequest(t, idle, "b", at(1, 1)))
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		if err := campaign.Lock(t.Context(), tx, busy); err != nil {
			return err
		}
		report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.SkipLocked)
		if err != nil || len(report.Busy) != 1 || report.Busy[0] != refs[0] || report.HoldsReclaimed != 1 || report.Sold != 1 {
			t.Errorf("got %+v, %v", report, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if now := fixture.HoldNow(t, db, theirs.ID); now.EndedAt != nil {
		t.Errorf("that of the busy one is %+v", now)
	}
	if now := fixture.HoldNow(t, db, ours.ID); now.EndedAt == nil {
		t.Errorf("that of the other is %+v", now)
	}
	if report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign); err != nil || report.HoldsReclaimed != 1 || report.Sold != 1 {
		t.Errorf("afterwards: %+v, %v", report, err)
	}
	fixture.Sound(t, db)
}

// The last positions go from a hold, by choice and at random, all at once.
func TestASaleThatEndsWithHoldsFreezesAndDrawsOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(5)), fixture.Holds(t, db, nil, nil)
	h := fixture.Hold(t, service, fixture.HoldRequest(id, "holder", at(1, 1), at(5, 5)))
	late := fixture.Hold(t, service, fixture.HoldRequest(id, "late", at(4, 4)))
	fixture.EndHold(t, db, late)
	requests := []job.Request{fixture.HeldRequest(t, id, "holder", h.ID), fixture.ChosenRequest(t, id, "chooser", at(3, 3), at(4, 4))}
	for i := range 14 { // 11 are left for them
		requests = append(requests, fixture.PurchaseRequest(t, id, fmt.Sprint("buyer-", i), 0, 1))
	}
	refs := fixture.Accept(t, db, requests...)
	fixture.Finalize(t, db, requests[2]) // fifteen positions, one is gone
	var workers sync.WaitGroup
	var mu sync.Mutex
	draws := 0
	for w := range 4 {
		workers.Go(func() {
			for i := range refs {
				report, err := fixture.Seller(db).Sell(t.Context(), refs[(i+w*4)%len(refs):min((i+w*4)%len(refs)+3, len(refs))], sale.WaitForCampaign)
				if err != nil && !postgres.IsTransient(err) {
					t.Error(err)
				}
				mu.Lock()
				draws += len(report.Messages)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	expect(t, "the holder", fixture.Job(t, db, refs[0].ID), "", at(1, 1), at(5, 5))
	c, err := campaign.Get(t.Context(), db, id)
	if err != nil || c.State != campaign.Drawing || c.Counts.Sold != 15 || c.Counts.Reserved != 0 || draws != 1 {
		t.Errorf("it is %s, %+v, with %d draws (%v)", c.State, c.Counts, draws, err)
	}
	fixture.Sound(t, db)
}

// A writer has changed positions without the lock: a batch sells no part of a hold.
func TestAHoldWhosePositionsMovedStopsTheBatch(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, move := range map[string]string{
		"one is free":      `UPDATE positions SET state = 'available', user_id = NULL, hold_id = NULL, expires_at = NULL WHERE campaign_id = $1 AND layer = 3`,
		"one is another's": `UPDATE positions SET hold_id = gen_random_uuid() WHERE campaign_id = $1 AND layer = 3 AND state = 'held'`,
	} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		h := fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(id, "a", at(3, 1), at(4, 1)))
		servers.Exec(t, db, move, id)
		refs := fixture.Accept(t, db, fixture.HeldRequest(t, id, "a", h.ID))
		if _, err := fixture.Seller(db).Sell(t.Context(), refs, sale.SkipLocked); !errors.Is(err, postgres.ErrRows) {
			t.Errorf("%s: %v", name, err)
		}
		fixture.EndHold(t, db, h)
		if _, err := fixture.Seller(db).Sell(t.Context(), refs, sale.SkipLocked); err == nil {
			t.Errorf("%s: it was ended", name)
		}
		if n := purchases(t, db, id); n != 0 {
			t.Errorf("%s: %d purchases", name, n)
		}
	}
}
