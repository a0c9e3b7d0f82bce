//go:build failpoint

package sale_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/sale"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
	"triprize/internal/testkit/fixture"
)

// lastSale is a campaign of which all but one position are sold, the order for
// that one, and a cancellation of one of the others.
type lastSale struct {
	campaignID   uuid.UUID
	buyer, owner string
	order, back  job.Ref
	bought       uuid.UUID
}

func newLastSale(t *testing.T, db *pgxpool.Pool) lastSale {
	t.Helper()
	l := lastSale{campaignID: fixture.Campaign(t, db, fixture.Draft(3)), buyer: uuid.NewString(), owner: uuid.NewString()}
	l.bought = fixture.Buy(t, db, l.campaignID, l.owner, 0, 2)
	fixture.Sell(t, db, l.campaignID, 3)
	refs := fixture.Accept(t, db, fixture.PurchaseRequest(t, l.campaignID, l.buyer, 0, 1), fixture.CancelRequest(t, l.campaignID, l.bought))
	l.order, l.back = refs[0], refs[1]
	return l
}

// expect checks that one of the two came first, and that everything follows from
// it. It tells whether the freeze won.
func (l lastSale) expect(t *testing.T, db *pgxpool.Pool) (frozen bool) {
	t.Helper()
	c, err := campaign.Get(t.Context(), db, l.campaignID)
	if err != nil {
		t.Fatal(err)
	}
	if order := fixture.Job(t, db, l.order.ID); order.State != job.Succeeded { // there was a position in both cases
		t.Errorf("the order: %s, %+v", order.State, order.Problem)
	}
	back := fixture.Job(t, db, l.back.ID)
	if c.State == campaign.Active {
		if back.State != job.Succeeded || c.Counts.Sold != 4 {
			t.Errorf("active with %d sold, and the cancellation is %s, %+v", c.Counts.Sold, back.State, back.Problem)
		}
		return false
	}
	refused(t, "the list is frozen", back, "drawing")
	root, err := campaign.FrozenRoot(t.Context(), db, l.campaignID)
	if err != nil {
		t.Fatal(err)
	}
	list, err := purchase.SoldList(t.Context(), db, l.campaignID)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := fairdraw.Root(list); err != nil || now != root || len(list) != 6 {
		t.Errorf("%d positions are sold, with the root %x; frozen was %x, %v", len(list), now, root, err)
	}
	return true
}

// The cancellation waits for the campaign while the last sale is about to commit:
// it must see what that has made of the campaign.
func TestASettledLastSaleWinsOverTheCancellationThatWaitsForIt(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	l := newLastSale(t, db)
	seller := fixture.Seller(db)
	var waits sync.WaitGroup
	defer failpoint.Set("sale.commit", l.buyer, func() {
		waits.Go(func() {
			if _, err := seller.Cancel(t.Context(), l.back, walletWait); err != nil {
				t.Error(err)
			}
		})
		awaitLock(t, db)
	})()
	if _, err := seller.Sell(t.Context(), []job.Ref{l.order}, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	waits.Wait()
	if !l.expect(t, db) {
		t.Error("the campaign is not frozen")
	}
	fixture.Sound(t, db)
}

// And the other way round: the sale of what was the last position does not freeze.
func TestASettledCancellationWinsOverTheLastSaleThatWaitsForIt(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	l := newLastSale(t, db)
	seller := fixture.Seller(db)
	var waits sync.WaitGroup
	defer failpoint.Set("cancellation.commit", l.owner, func() {
		waits.Go(func() {
			if _, err := seller.Sell(t.Context(), []job.Ref{l.order}, sale.WaitForCampaign); err != nil {
				t.Error(err)
			}
		})
		awaitLock(t, db)
	})()
	if _, err := seller.Cancel(t.Context(), l.back, walletWait); err != nil {
		t.Fatal(err)
	}
	waits.Wait()
	if l.expect(t, db) {
		t.Error("the campaign is frozen with positions left")
	}
	fixture.Sound(t, db)
}

// awaitLock waits until a connection of the test's database waits for a lock.
func awaitLock(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var waiting bool
		err := db.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting)
		if err != nil || waiting {
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
	t.Error("nobody waits for the campaign")
}

func TestTheLastSaleAndACancellationRaceAndOneComesFirst(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	seller := fixture.Seller(db)
	froze, rounds := 0, 60
	for round := range rounds {
		l := newLastSale(t, db)
		var both sync.WaitGroup
		head := time.Duration(rand.IntN(4)) * time.Millisecond
		both.Go(func() {
			if round%2 == 0 {
				time.Sleep(head)
			}
			if _, err := seller.Sell(t.Context(), []job.Ref{l.order}, sale.WaitForCampaign); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			if round%2 == 1 {
				time.Sleep(head)
			}
			if _, err := seller.Cancel(t.Context(), l.back, walletWait); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if l.expect(t, db) {
			froze++
		}
	}
	t.Logf("the freeze won %d of %d rounds", froze, rounds)
	if froze == 0 || froze == rounds {
		t.Error("one of them always wins: the test does not test")
	}
	fixture.Sound(t, db)
}

func TestACancellationThatDiesBeforeItsCommitLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, owner := fixture.Campaign(t, db, fixture.Draft(3)), uuid.NewString()
	bought := fixture.Buy(t, db, id, owner, 0, 2)
	ref := fixture.Accept(t, db, fixture.CancelRequest(t, id, bought))[0]
	seller := fixture.Seller(db)
	func() {
		defer func() { _ = recover() }()
		defer failpoint.Set("cancellation.commit", owner, func() { panic(errDies) })()
		_, _ = seller.Cancel(t.Context(), ref, walletWait)
		t.Error("it lived")
	}()
	if p, err := purchase.Get(t.Context(), db, bought); err != nil || p.State != purchase.Completed || sold(t, db, id) != 2 || fixture.Job(t, db, ref.ID).State != job.Queued {
		t.Errorf("after the death: %+v, %v", p, err)
	}
	fixture.Sound(t, db)
	if _, err := seller.Cancel(t.Context(), ref, walletWait); err != nil {
		t.Fatal(err)
	}
	fixture.Sound(t, db)
}

// Crowds on one campaign: what some give back, others buy.
func TestCrowdsOfPurchasesAndCancellationsNeverDeadlockAndEndSound(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	draft, limit := fixture.Draft(12), 8
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, db, draft)
	seller := fixture.Seller(db)
	var mu sync.Mutex
	counts := make(map[string]int)
	note := func(what string, ref job.Ref) job.Job {
		j := fixture.Job(t, db, ref.ID)
		mu.Lock()
		defer mu.Unlock()
		if counts[what+" "+string(j.State)]++; j.Problem != nil {
			counts[what+" "+string(j.Problem.Code)]++
		}
		return j
	}
	settle := func(what string, ref job.Ref, do func() error) job.Job {
		err := do()
		for postgres.IsTransient(err) && !isDeadlock(err) {
			err = do()
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return note(what, ref)
	}
	var crowd sync.WaitGroup
	for person := range 12 {
		crowd.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(person)))
			for range 12 {
				ref := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, fmt.Sprint(person%8), 0, 1+random.IntN(2)))[0]
				bought := settle("purchase", ref, func() error { _, err := seller.Sell(t.Context(), []job.Ref{ref}, sale.WaitForCampaign); return err })
				if bought.State != job.Succeeded || random.IntN(4) == 0 {
					continue
				}
				request := fixture.CancelRequest(t, id, resultOf(t, bought).PurchaseID)
				for range 1 + random.IntN(2) { // some ask twice
					again := request
					again.ID = uuidv7.New()
					again.Key = again.ID.String()
					back := fixture.Accept(t, db, again)[0]
					settle("cancellation", back, func() error { _, err := seller.Cancel(t.Context(), back, walletWait); return err })
				}
			}
		})
	}
	crowd.Wait()
	t.Log(counts)
	if counts["cancellation succeeded"] < 20 || counts["cancellation "+string(fault.StateConflict)] < 5 || counts["purchase succeeded"] < 40 {
		t.Error("too little happened: the test does not test")
	}
	fixture.Sound(t, db)
}

func isDeadlock(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "40P01"
}

func resultOf(t *testing.T, bought job.Job) (r sale.Result) {
	t.Helper()
	if err := json.Unmarshal(bought.Result, &r); err != nil {
		t.Error(err)
	}
	return r
}
