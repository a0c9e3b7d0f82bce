package sale_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// Of cancellations of any campaigns, paid in any way, possible or not, several times
// the same: each has the outcome that it would have had by itself, in one transaction.
func TestManyCancellationsAreSettledTogetherAndEachByItself(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	a, b, closed := fixture.Campaign(t, db, fixture.Draft(6)), fixture.Campaign(t, db, fixture.Draft(6)), fixture.Campaign(t, db, fixture.Draft(3))
	mina, otto := fixture.Wallet(t, db, "mina", 5000), fixture.Wallet(t, db, "otto", 5000)
	jobs := fixture.Finalize(t, db, fixture.WalletRequest(t, a, "mina", 2, 2), fixture.WalletRequest(t, b, "mina", 3, 1), fixture.WalletRequest(t, b, "otto", 3, 1))
	var byWallet []uuid.UUID
	for _, j := range jobs {
		byWallet = append(byWallet, resultOf(t, j).PurchaseID)
	}
	external, drawn := fixture.Buy(t, db, a, "carl", 0, 3), fixture.Buy(t, db, closed, "carl", 0, 6)
	kept := fixture.Buy(t, db, b, "dora", 0, 2)
	want := []struct {
		campaignID, purchaseID uuid.UUID
		code                   fault.Code
	}{
		{a, byWallet[0], ""},
		{a, external, ""},
		{b, byWallet[1], ""},
		{a, byWallet[0], fault.StateConflict}, // a second time
		{closed, drawn, fault.StateConflict},
		{b, uuid.New(), fault.NotFound},
		{b, byWallet[2], ""},
		{a, external, fault.StateConflict}, // a second time, and a third
		{a, external, fault.StateConflict},
	}
	var requests []job.Request
	for _, c := range want {
		requests = append(requests, fixture.CancelRequest(t, c.campaignID, c.purchaseID))
	}
	refs := fixture.Accept(t, db, requests...)
	mixed := slices.Clone(refs)
	slices.Reverse(mixed) // they are decided in the order of arrival, not of delivery
	report, err := fixture.Seller(db).Cancel(t.Context(), mixed, sale.SkipLocked)
	if err != nil || len(report.Finalized) != len(refs) || len(report.Busy)+len(report.Broken) != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	for i, c := range want {
		j := fixture.Job(t, db, refs[i].ID)
		if (j.State == job.Succeeded) != (c.code == "") || j.Problem != nil && j.Problem.Code != c.code {
			t.Errorf("cancellation %d is %s, %+v", i, j.State, j.Problem)
		}
	}
	for id, balance := range map[uuid.UUID]int64{mina: 5000, otto: 5000} {
		if now := fixture.Balance(t, db, id); int64(now) != balance {
			t.Errorf("a wallet has %d", now)
		}
	}
	for id, n := range map[uuid.UUID]int{a: 0, b: 2, closed: 6} {
		if c, err := campaign.Get(t.Context(), db, id); err != nil || c.Counts.Sold != n || sold(t, db, id) != n {
			t.Errorf("%d and %d positions are sold of %d, %v", c.Counts.Sold, sold(t, db, id), n, err)
		}
	}
	if p, err := purchase.Get(t.Context(), db, access.Everything(), kept); err != nil || p.State != purchase.Completed {
		t.Errorf("nobody cancelled it: %s, %v", p.State, err)
	}
	fixture.Sound(t, db)
}

// A campaign or a wallet that another transaction has locked puts off its own
// cancellations only, and those of one purchase together.
func TestWhatIsLockedPutsOffItsOwnCancellationsOnly(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	locked, free := fixture.Campaign(t, db, fixture.Draft(6)), fixture.Campaign(t, db, fixture.Draft(6))
	mina, otto := fixture.Wallet(t, db, "mina", 5000), fixture.Wallet(t, db, "otto", 5000)
	jobs := fixture.Finalize(t, db, fixture.WalletRequest(t, free, "mina", 2, 2), fixture.WalletRequest(t, free, "otto", 3, 1))
	minas, ottos := resultOf(t, jobs[0]).PurchaseID, resultOf(t, jobs[1]).PurchaseID
	external, elsewhere := fixture.Buy(t, db, free, "carl", 0, 1), fixture.Buy(t, db, locked, "carl", 0, 1)
	refs := fixture.Accept(t, db, fixture.CancelRequest(t, free, minas), fixture.CancelRequest(t, locked, elsewhere), fixture.CancelRequest(t, free, external),
		fixture.CancelRequest(t, free, minas), fixture.CancelRequest(t, free, ottos))
	seller := fixture.Seller(db)
	unlockWallet, unlockCampaign := fixture.LockWallet(t, db, mina), fixture.LockCampaign(t, db, locked)
	report, err := seller.Cancel(t.Context(), refs, sale.SkipLocked) // one that waited would wait for ever
	if err != nil || report.TimedOut || len(report.Finalized) != 2 || len(report.Busy) != 3 {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, wait := range []sale.LockWait{{Campaign: time.Millisecond}, {Campaign: time.Millisecond, Wallets: time.Millisecond}} {
		for _, ref := range []job.Ref{refs[0], refs[1]} {
			report, err := seller.Cancel(t.Context(), []job.Ref{ref}, wait)
			if err != nil || len(report.Finalized) != 0 || !slices.Equal(report.Busy, []job.Ref{ref}) || report.TimedOut != (wait.Wallets > 0 || ref == refs[1]) {
				t.Errorf("%+v, %v", report, err)
			}
		}
	}
	expectCodes(t, db, []job.Ref{refs[2], refs[4]}, "", "")
	unlockWallet()
	unlockCampaign()
	if report, err = seller.Cancel(t.Context(), refs, sale.SkipLocked); err != nil || len(report.Finalized) != 3 {
		t.Errorf("when they are free: %+v, %v", report, err)
	}
	expectCodes(t, db, refs, "", "", "", fault.StateConflict, "")
	for _, id := range []uuid.UUID{mina, otto} {
		if now := fixture.Balance(t, db, id); now != 5000 {
			t.Errorf("a wallet has %d", now)
		}
	}
	fixture.Sound(t, db)
}

func TestABrokenWalletFailsItsOwnCancellationsOnly(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	mina := fixture.Wallet(t, db, "mina", 5000)
	fixture.Wallet(t, db, "otto", 5000)
	jobs := fixture.Finalize(t, db, fixture.WalletRequest(t, id, "mina", 2, 1), fixture.WalletRequest(t, id, "otto", 3, 1))
	refs := fixture.Accept(t, db, fixture.CancelRequest(t, id, resultOf(t, jobs[0]).PurchaseID), fixture.CancelRequest(t, id, resultOf(t, jobs[1]).PurchaseID))
	disagree := func(by int) {
		t.Helper()
		servers.Exec(t, db, `UPDATE wallets SET balance = balance + $2 WHERE id = $1`, mina, by)
	}
	disagree(1)
	report, err := fixture.Seller(db).Cancel(t.Context(), refs, sale.SkipLocked)
	if err != nil || len(report.Broken) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	expectCodes(t, db, refs, fault.InternalError, "")
	disagree(-1)
	if n := sold(t, db, id); n != 1 {
		t.Errorf("%d positions are sold", n)
	}
	fixture.Sound(t, db)
}

// resultOf returns the result of a purchase job.
func resultOf(t *testing.T, bought job.Job) (r sale.Result) {
	t.Helper()
	if err := json.Unmarshal(bought.Result, &r); err != nil {
		t.Error(err)
	}
	return r
}
