package lifecycle_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/money"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
)

func holdsOf(t *testing.T, db *pgxpool.Pool) *inventory.Holds {
	t.Helper()
	return fixture.Holds(t, db, nil, nil)
}

func hold(t *testing.T, db *pgxpool.Pool, campaignID uuid.UUID, user string) inventory.Hold {
	t.Helper()
	return fixture.Hold(t, holdsOf(t, db), fixture.HoldAnyRequest(campaignID, user, 0, 1))
}

// mixed is what buyers have paid by wallet, and where.
type mixed struct {
	wallets map[string]uuid.UUID
	n       int
}

const funds = 1_000_000

// mixedPurchases sells a campaign to n buyers, a third of them by wallet, by card and
// external. There are ten wallets.
func mixedPurchases(t *testing.T, db *pgxpool.Pool, id uuid.UUID, n int) mixed {
	t.Helper()
	m := mixed{wallets: make(map[string]uuid.UUID), n: n}
	for i := range 10 {
		user := fmt.Sprint("wallet-", i)
		m.wallets[user] = fixture.Wallet(t, db, user, money.Amount(funds))
	}
	var requests, cards []job.Request
	for i := range n {
		user, quantity := fmt.Sprint("buyer-", i), 1+i%4
		switch i % 3 {
		case 0:
			requests = append(requests, fixture.WalletRequest(t, id, fmt.Sprint("wallet-", i%10), 0, quantity))
		case 1:
			cards = append(cards, fixture.CardRequest(t, id, user, 0, quantity))
		default:
			requests = append(requests, fixture.PurchaseRequest(t, id, user, 0, quantity))
		}
	}
	for _, j := range fixture.Finalize(t, db, requests...) {
		if j.State != job.Succeeded {
			t.Fatalf("not sold: %+v", j.Problem)
		}
	}
	refs := fixture.Accept(t, db, cards...)
	report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign)
	if err != nil || len(report.Payments) != len(refs) {
		t.Fatalf("%d reserved of %d, %v", len(report.Payments), len(refs), err)
	}
	for _, p := range report.Payments {
		fixture.Advance(t, db, p.PurchaseID, payment.Captured)
	}
	fixture.Conclude(t, db, refs...)
	return m
}

// check checks that every purchase was given back once, to the yen.
func (m mixed) check(t *testing.T, db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	for user, w := range m.wallets {
		if got := fixture.Balance(t, db, w); got != funds {
			t.Errorf("%s has %d", user, got)
		}
	}
	seen := make(map[uuid.UUID]bool)
	for after := uuid.Nil; ; {
		page, err := payment.RefundsOfCampaign(t.Context(), db, access.Everything(), id, "", after, 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			seen[r.PurchaseID], after = true, r.ID
		}
		if len(page) < 64 {
			break
		}
	}
	if len(seen) != m.n {
		t.Errorf("%d purchases have a refund of %d", len(seen), m.n)
	}
	if c := campaignOf(t, db, id); c.State != campaign.Cancelled || c.Counts.Sold+c.Counts.Reserved != 0 {
		t.Errorf("got %+v", c)
	}
}
