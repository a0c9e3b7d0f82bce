package sale_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// expectCodes wants jobs to be final, with these codes; an empty one is a success.
func expectCodes(t *testing.T, db *pgxpool.Pool, refs []job.Ref, want ...fault.Code) {
	t.Helper()
	for i, ref := range refs {
		j := fixture.Job(t, db, ref.ID)
		var got fault.Code
		if j.Problem != nil {
			got = j.Problem.Code
		}
		if !j.State.Final() || got != want[i] {
			t.Errorf("order %d: %s, %q; want %q", i, j.State, got, want[i])
		}
	}
}

// whileLocked does something while another transaction has a wallet locked.
func whileLocked(t *testing.T, db *pgxpool.Pool, walletID uuid.UUID, do func()) {
	t.Helper()
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SELECT FROM wallets WHERE id = $1 FOR NO KEY UPDATE`, walletID)
		if err == nil {
			do()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPurchasesOfABatchSeeWhatThoseBeforeThemHaveSpent(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	mina, otto := fixture.Wallet(t, db, "mina", 899), fixture.Wallet(t, db, "otto", 100)
	refs := fixture.Accept(t, db,
		fixture.WalletRequest(t, id, "mina", 4, 1),
		fixture.WalletRequest(t, id, "otto", 1, 1),
		fixture.WalletRequest(t, id, "mina", 6, 1), // 600 of 499
		fixture.WalletRequest(t, id, "nobody", 4, 1),
		fixture.WalletRequest(t, id, "mina", 4, 1), // 400: 99 are left
		fixture.WalletRequest(t, id, "mina", 4, 1),
		fixture.PurchaseRequest(t, id, "mina", 4, 1), // the app has the money
	)
	report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.SkipLocked)
	if err != nil || report.Sold != 4 || len(report.Finalized) != len(refs) || len(report.Busy) != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	expectCodes(t, db, refs, "", "", fault.InsufficientFunds, fault.InsufficientFunds, "", fault.InsufficientFunds, "")
	if a, b := fixture.Balance(t, db, mina), fixture.Balance(t, db, otto); a != 99 || b != 0 {
		t.Errorf("%d and %d are left", a, b)
	}
	fixture.Sound(t, db)
}

// Positions that a wallet cannot pay for go to the next order of the same batch that
// wants them.
func TestWhatIsNotPaidIsSoldToTheNext(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft, limit := fixture.Draft(4), 1
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, db, draft)
	fixture.Wallet(t, db, "poor", 99)
	fixture.Wallet(t, db, "rich", 1000)
	top := []shape.Position{{Layer: 1, Column: 1}}
	named := func(user string) job.Request {
		return fixture.PurchaseRequestOf(t, id, sale.Order{UserID: user, Selection: fixture.Chosen(top...), Payment: sale.Payment{Method: purchase.Wallet}})
	}
	refs := fixture.Accept(t, db, named("poor"), named("rich"), named("late"),
		fixture.WalletRequest(t, id, "rich", 4, 1),   // rich has one, and may have one
		fixture.PurchaseRequest(t, id, "poor", 0, 1)) // the refusal has used up no limit
	if _, err := fixture.Seller(db).Sell(t.Context(), refs, sale.SkipLocked); err != nil {
		t.Fatal(err)
	}
	expectCodes(t, db, refs, fault.InsufficientFunds, "", fault.PositionTaken, fault.PurchaseLimitExceeded, "")
	fixture.Sound(t, db)
}

func TestABusyWalletPutsOffItsOwnOrdersOnly(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	mina := fixture.Wallet(t, db, "mina", 1000)
	fixture.Wallet(t, db, "otto", 1000)
	refs := fixture.Accept(t, db, fixture.WalletRequest(t, id, "mina", 2, 1), fixture.WalletRequest(t, id, "otto", 2, 1),
		fixture.WalletRequest(t, id, "mina", 3, 1), fixture.PurchaseRequest(t, id, "mina", 4, 1))
	seller := fixture.Seller(db)
	for _, wait := range []sale.LockWait{sale.SkipLocked, sale.WaitForCampaign} {
		whileLocked(t, db, mina, func() { // one that waited would wait for ever
			report, err := seller.Sell(t.Context(), refs, wait)
			if err != nil || len(report.Busy) != 2 || report.Busy[0] != refs[0] || report.Busy[1] != refs[2] {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
	expectCodes(t, db, []job.Ref{refs[1], refs[3]}, "", "")
	if report, err := seller.Sell(t.Context(), refs, sale.SkipLocked); err != nil || report.Sold != 2 {
		t.Errorf("when it is free: %+v, %v", report, err)
	}
	expectCodes(t, db, refs, "", "", "", "")
	if left := fixture.Balance(t, db, mina); left != 500 {
		t.Errorf("%d are left", left)
	}
	fixture.Sound(t, db)
}

func TestOrdersWaitForTheirWalletsSoLongAndGiveUpTogether(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	mina := fixture.Wallet(t, db, "mina", 1000)
	fixture.Wallet(t, db, "otto", 1000)
	refs := fixture.Accept(t, db, fixture.WalletRequest(t, id, "mina", 2, 1), fixture.WalletRequest(t, id, "otto", 2, 1))
	seller := fixture.Seller(db)
	whileLocked(t, db, mina, func() {
		report, err := seller.Sell(t.Context(), refs, sale.LockWait{Campaign: time.Minute, Wallets: 50 * time.Millisecond})
		if err != nil || len(report.Busy) != 2 || len(report.Finalized) != 0 || report.Sold != 0 {
			t.Errorf("%+v, %v", report, err)
		}
		if n := purchases(t, db, id); n != 0 {
			t.Errorf("%d purchases", n)
		}
	})
	done := make(chan sale.Report, 1)
	whileLocked(t, db, mina, func() {
		go func() {
			report, err := seller.Sell(t.Context(), refs, sale.LockWait{Campaign: time.Minute, Wallets: walletWait})
			if err != nil {
				t.Error(err)
			}
			done <- report
		}()
		servers.AwaitBlocked(t, db, 1)
	})
	if report := <-done; report.Sold != 2 {
		t.Errorf("it did not wait: %+v", report)
	}
	fixture.Sound(t, db)
}

// A wallet whose balance is not what its events add up to pays nothing. Orders of
// others go on.
func TestABrokenWalletFailsItsOwnOrdersOnly(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	broken := fixture.Wallet(t, db, "mina", 1000)
	fixture.Wallet(t, db, "otto", 1000)
	disagree := func(by int) {
		servers.Exec(t, db, `UPDATE wallets SET balance = balance + $2 WHERE id = $1`, broken, by)
	}
	disagree(1)
	refs := fixture.Accept(t, db, fixture.WalletRequest(t, id, "mina", 1, 1), fixture.WalletRequest(t, id, "otto", 1, 1))
	if _, err := fixture.Seller(db).Sell(t.Context(), refs, sale.SkipLocked); err != nil {
		t.Fatal(err)
	}
	expectCodes(t, db, refs, fault.InternalError, "")
	disagree(-1)
	fixture.Sound(t, db)
}

// The sale does not look for an earlier payment of its job, as there can be none: the ledger
// refuses it.
func TestAJobIsPaidOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	mina := fixture.Wallet(t, db, "mina", 1000)
	refs := fixture.Accept(t, db, fixture.WalletRequest(t, id, "mina", 1, 1))
	pay(t, db, mina, wallet.Movement{Amount: 300, Reference: wallet.Reference{Text: "purchase:" + refs[0].ID.String()}, PurchaseID: uuid.New()})
	if report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.SkipLocked); !wallet.Lost(err) || report.Sold != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if left, n := fixture.Balance(t, db, mina), purchases(t, db, id); left != 700 || n != 0 {
		t.Errorf("%d are left, %d purchases", left, n)
	}
}

// pay takes money from a wallet, for a purchase.
func pay(t *testing.T, db *pgxpool.Pool, id uuid.UUID, m wallet.Movement) {
	t.Helper()
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		unit, err := wallet.Open(t.Context(), tx, wallet.Wanted{Wallets: []uuid.UUID{id}}, postgres.WaitForLocks)
		if err != nil {
			return err
		}
		if _, err := unit.Pay(id, m); err != nil {
			return err
		}
		return unit.Write(t.Context(), tx)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheLastPositionPaidByWalletFreezesTheCampaign(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	fixture.Sell(t, db, id, 9)
	fixture.Wallet(t, db, "rich", 1000)
	refs := fixture.Accept(t, db, fixture.WalletRequest(t, id, "none", 0, 1), fixture.WalletRequest(t, id, "rich", 0, 1), fixture.WalletRequest(t, id, "rich", 0, 1))
	report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.SkipLocked)
	if err != nil || report.Sold != 1 || len(report.Messages) != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	expectCodes(t, db, refs, fault.InsufficientFunds, "", fault.SoldOut)
	if c, err := campaign.Get(t.Context(), db, id); err != nil || c.State != campaign.Drawing {
		t.Errorf("%s, %v", c.State, err)
	}
	fixture.Sound(t, db)
}
