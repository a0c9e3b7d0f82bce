package lifecycle_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

func newService(t *testing.T, db *pgxpool.Pool) *lifecycle.Service {
	t.Helper()
	return lifecycle.New(fixture.Gate(db), fixture.Key(t), shape.MaxPositions, nil, func(lifecycle.Details) any { return nil })
}

// pending stores a draft.
func pending(t *testing.T, db *pgxpool.Pool, d campaign.Draft) uuid.UUID {
	t.Helper()
	id := uuidv7.New()
	servers.NoError(t, postgres.InTx(t.Context(), db, func(tx pgx.Tx) error { return campaign.Create(t.Context(), tx, id, d) }))
	return id
}

// request returns a request of an operator about a campaign.
func request(kind job.Kind, id uuid.UUID) job.Request {
	r := job.Request{ID: uuidv7.New(), Client: "ops", Kind: kind, CampaignID: id, Retention: time.Hour}
	r.Key = r.ID.String()
	return r
}

// order accepts a job that cancels a campaign.
func order(t *testing.T, db *pgxpool.Pool, campaignID uuid.UUID, o lifecycle.CancelOrder) job.Ref {
	t.Helper()
	payload, err := json.Marshal(o)
	servers.NoError(t, err)
	r := request(job.KindCampaignCancellation, campaignID)
	r.Payload = payload
	return fixture.Accept(t, db, r)[0]
}

func canceller(t *testing.T, db *pgxpool.Pool) *lifecycle.Canceller {
	t.Helper()
	return lifecycle.NewCanceller(db, lifecycle.Observer{}, servers.Logger(t))
}

var byOps = lifecycle.CancelOrder{By: "operator:ops", Reason: "the organiser is ill"}

// ends runs a job that succeeds.
func ends(t *testing.T, c *lifecycle.Canceller, ref job.Ref) (r lifecycle.CancelResult) {
	t.Helper()
	outcome, err := c.Run(t.Context(), ref)
	if err != nil || outcome.Problem != nil {
		t.Fatalf("%+v, %v", outcome.Problem, err)
	}
	servers.NoError(t, json.Unmarshal(outcome.Result, &r))
	return r
}

// waits runs a job that must wait, and returns what it shows meanwhile; nil: nothing.
func waits(t *testing.T, c *lifecycle.Canceller, ref job.Ref) lifecycle.CancelSnoozed {
	t.Helper()
	outcome, err := c.Run(t.Context(), ref)
	if !errors.Is(err, lifecycle.ErrSnoozed) {
		t.Fatalf("it does not wait: %+v, %v", outcome, err)
	}
	if wait, ok := errors.AsType[*lifecycle.CancelSnoozed](err); ok {
		return *wait
	}
	return lifecycle.CancelSnoozed{}
}

// refused checks that a job failed with a code.
func refused(t *testing.T, db *pgxpool.Pool, ref job.Ref, code fault.Code) {
	t.Helper()
	outcome, err := canceller(t, db).Run(t.Context(), ref)
	if err != nil || outcome.Problem == nil || outcome.Problem.Code != code {
		t.Errorf("got %+v, %v; wanted %s", outcome, err, code)
	}
	if j := fixture.Job(t, db, ref.ID); j.State != job.Failed {
		t.Errorf("the job is %s", j.State)
	}
}

func campaignOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID) campaign.Campaign {
	t.Helper()
	c, err := campaign.Get(t.Context(), db, id)
	servers.NoError(t, err)
	return c
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
	for _, j := range fixture.Complete(t, db, requests...) {
		if j.State != job.Succeeded {
			t.Fatalf("not sold: %+v", j.Problem)
		}
	}
	refs := fixture.Accept(t, db, cards...)
	report, err := fixture.Seller(db).Sell(t.Context(), refs, sale.WaitForCampaign)
	if err != nil || len(report.Due) != len(refs) {
		t.Fatalf("%d reserved of %d, %v", len(report.Due), len(refs), err)
	}
	for _, p := range report.Due {
		fixture.Advance(t, db, p.ID, payment.Captured)
	}
	fixture.SettlePayments(t, db, refs...)
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
		servers.NoError(t, err)
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
