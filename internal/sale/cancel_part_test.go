package sale_test

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// partOf asks to cancel positions of a purchase.
func partOf(t *testing.T, campaignID, bought uuid.UUID, positions ...shape.Position) job.Request {
	t.Helper()
	return fixture.CancelRequestOf(t, campaignID, sale.Cancellation{PurchaseID: bought, Positions: positions, By: "app:test", Reason: "a friend is ill"})
}

func purchaseOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID) purchase.Purchase {
	t.Helper()
	p, err := purchase.Get(t.Context(), db, access.Everything(), id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// positionsOf returns the positions that a purchase has.
func positionsOf(p purchase.Purchase) (all []shape.Position) {
	for _, item := range p.Items {
		all = append(all, item.Position)
	}
	return all
}

func cancelledOf(t *testing.T, j job.Job) (c sale.Result) {
	t.Helper()
	if err := json.Unmarshal(j.Result, &c); err != nil {
		t.Fatalf("%s: %v, %+v", j.State, err, j.Problem)
	}
	return c
}

func TestACancelledPartIsGivenBackAndTheRestIsKept(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft, limit := fixture.Draft(4), 3
	draft.PurchaseLimit = &limit
	id := fixture.Campaign(t, db, draft)
	wallet := fixture.Wallet(t, db, "a", 1000)
	bought := resultOf(t, fixture.Finalize(t, db, fixture.WalletRequest(t, id, "a", 3, 3))[0]).PurchaseID
	all := positionsOf(purchaseOf(t, db, bought))
	j := cancel(t, db, partOf(t, id, bought, all[1]))
	part := cancelledOf(t, j)
	p := purchaseOf(t, db, bought)
	if part.State != purchase.Completed || part.Amount != 300 || len(part.Positions) != 1 || part.Positions[0].Position != all[1] {
		t.Errorf("the job: %+v", part)
	}
	if p.State != purchase.Completed || p.Amount != 900 || p.Cancellation != nil || p.Rest() != 600 || len(p.Items) != 2 || len(p.Partial) != 1 {
		t.Fatalf("the purchase: %+v", p)
	}
	if got := p.Partial[0]; got.JobID != j.ID || got.By != "app:test" || got.Reason != "a friend is ill" || got.Amount != 300 || time.Since(got.At) > time.Hour || got.Items[0] != part.Positions[0] {
		t.Errorf("its partial cancellation: %+v", got)
	}
	if got := fixture.Balance(t, db, wallet); got != 400 {
		t.Errorf("the wallet has %d", got)
	}
	fixture.Buy(t, db, id, "a", 4, 1) // the limit counts the rest
	if j := fixture.Finalize(t, db, fixture.ChosenRequest(t, id, "b", all[1]))[0]; j.State != job.Succeeded {
		t.Errorf("another cannot have the position: %+v", j.Problem)
	}
	refused(t, "again", cancel(t, db, partOf(t, id, bought, all[0], all[1])), "cancelled already")
	whole := cancelledOf(t, cancel(t, db, partOf(t, id, bought, all[0], all[2]))) // all that is left
	if p = purchaseOf(t, db, bought); whole.State != purchase.Cancelled || whole.Amount != 600 || p.State != purchase.Cancelled || len(p.Partial) != 1 || len(p.Items) != 2 {
		t.Errorf("the whole: %+v, %+v", whole, p)
	}
	both := resultOf(t, fixture.Finalize(t, db, fixture.WalletRequest(t, id, "a", 2, 2))[0])
	refs := fixture.Accept(t, db, partOf(t, id, both.PurchaseID, both.Positions[0].Position), partOf(t, id, both.PurchaseID, both.Positions[1].Position))
	finalize(t, fixture.Seller(db), refs...) // in one transaction: the second has become the rest
	if p = purchaseOf(t, db, both.PurchaseID); p.State != purchase.Cancelled || len(p.Partial) != 1 {
		t.Errorf("part by part: %+v", p)
	}
	if got, sold := fixture.Balance(t, db, wallet), sold(t, db, id); got != 1000 || sold != 2 {
		t.Errorf("the wallet has %d, %d are sold", got, sold)
	}
	fixture.Sound(t, db)
}

// What an app owes its buyers is listed, and what a wallet got back has succeeded: of each part, and of the rest.
func TestEveryCancellationHasItsRefundHoweverItWasPaid(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	fixture.Wallet(t, db, "w", 5000)
	external := fixture.Buy(t, db, id, "e", 5, 4)
	byWallet := resultOf(t, fixture.Finalize(t, db, fixture.WalletRequest(t, id, "w", 6, 4))[0]).PurchaseID
	all, walls := positionsOf(purchaseOf(t, db, external)), positionsOf(purchaseOf(t, db, byWallet))
	refunds := func(bought uuid.UUID) (rows string) {
		t.Helper()
		err := db.QueryRow(t.Context(), `SELECT coalesce(string_agg(format('%s %s %s', number, amount, state), ', ' ORDER BY number), '') FROM refunds
			WHERE purchase_id = $1 AND reason = 'cancelled' AND due_at IS NULL AND (finished_at IS NOT NULL) = (state = 'succeeded')`, bought).Scan(&rows)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	cancel(t, db, partOf(t, id, external, all[0]))
	if got := refunds(external); got != "1 500 listed" {
		t.Errorf("after a part: %s", got)
	}
	fixture.Sound(t, db)
	refused(t, "again", cancel(t, db, partOf(t, id, external, all[0])), "cancelled already")
	refs := fixture.Accept(t, db, partOf(t, id, external, all[1], all[2]), partOf(t, id, byWallet, walls[0]), fixture.CancelRequest(t, id, external), partOf(t, id, byWallet, walls[1]))
	if report := finalize(t, fixture.Seller(db), refs...); len(report.Refunds) != 0 { // a worker has nothing to do
		t.Errorf("due are %v", report.Refunds)
	}
	if got := refunds(external); got != "1 500 listed, 2 1000 listed, 3 500 listed" {
		t.Errorf("after all: %s", got)
	}
	cancel(t, db, fixture.CancelRequest(t, id, byWallet))
	if got := refunds(byWallet); got != "1 600 succeeded, 2 600 succeeded, 3 1200 succeeded" {
		t.Errorf("by wallet: %s", got)
	}
	fixture.Sound(t, db)
}

// Parts by card are refunds of their own: with the whole, in one transaction, they are what was captured.
func TestPartsByCardAndTheRestAreRefundedOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	bought, _ := fixture.BuyByCard(t, db, id, "a", 5, 4)
	all := positionsOf(purchaseOf(t, db, bought))
	cancel(t, db, partOf(t, id, bought, all[0]))
	fixture.Sound(t, db)
	refs := fixture.Accept(t, db, partOf(t, id, bought, all[1]), partOf(t, id, bought, all[1], all[2]), fixture.CancelRequest(t, id, bought), partOf(t, id, bought, all[3]))
	finalize(t, fixture.Seller(db), refs...)
	if part, whole := cancelledOf(t, fixture.Job(t, db, refs[0].ID)), cancelledOf(t, fixture.Job(t, db, refs[2].ID)); part.Amount != 500 || whole.Amount != 1000 || whole.State != purchase.Refunding {
		t.Errorf("%+v, %+v", part, whole)
	}
	refused(t, "a position that is cancelled", fixture.Job(t, db, refs[1].ID), "cancelled already")
	refused(t, "after the whole", fixture.Job(t, db, refs[3].ID), "refunding already")
	of, err := payment.RefundsOfPurchases(t.Context(), db, []uuid.UUID{bought})
	var back money.Amount
	for _, r := range of[bought] {
		back += r.Amount
	}
	if err != nil || len(of[bought]) != 3 || back != 2000 {
		t.Errorf("%d refunds over %d, %v", len(of[bought]), back, err)
	}
	fixture.Sound(t, db)
}

func TestOfTwentyCancellationsOfAPositionAtOnceOneSucceeds(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	bought := fixture.Buy(t, db, id, "a", 4, 3)
	at := positionsOf(purchaseOf(t, db, bought))[0]
	var requests []job.Request
	for range 20 {
		requests = append(requests, partOf(t, id, bought, at))
	}
	refs := fixture.Accept(t, db, requests...)
	seller := fixture.Seller(db)
	var done sync.WaitGroup
	for _, ref := range append(refs, refs...) { // each is delivered twice
		done.Go(func() { finalize(t, seller, ref) })
	}
	done.Wait()
	succeeded := 0
	for _, ref := range refs {
		if j := fixture.Job(t, db, ref.ID); j.State == job.Succeeded {
			succeeded++
		} else {
			refused(t, "another", j, "cancelled already")
		}
	}
	if p := purchaseOf(t, db, bought); succeeded != 1 || len(p.Items) != 2 || len(p.Partial) != 1 {
		t.Errorf("%d succeeded, %+v", succeeded, p)
	}
	fixture.Sound(t, db)
}

func TestAPartThatCannotBeCancelledIsRefusedAndSaysWhy(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	pending, _ := fixture.Reserve(t, db, id, "a", 2, time.Hour)
	at := positionsOf(purchaseOf(t, db, pending))
	refused(t, "not paid yet", cancel(t, db, partOf(t, id, pending, at[0])), "the purchase is pending")
	bought := fixture.Buy(t, db, id, "b", 0, 2)
	refused(t, "of another purchase", cancel(t, db, partOf(t, id, bought, at[0])), "has no position")
	own := positionsOf(purchaseOf(t, db, bought))
	until := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	servers.Exec(t, db, `UPDATE campaigns SET policies = jsonb_set(policies, '{cancellation_until}', to_jsonb($2::text)) WHERE id = $1`, id, until)
	refused(t, "late", cancel(t, db, partOf(t, id, bought, own[0])), "could be cancelled until")

	frozen := fixture.Campaign(t, db, fixture.Draft(3))
	last := fixture.Buy(t, db, frozen, "c", 0, 6)
	refused(t, "after the freeze", cancel(t, db, partOf(t, frozen, last, fixture.At(1, 1))), "drawing")
	if c, err := campaign.Get(t.Context(), db, id); err != nil || c.Counts.Sold != 2 || c.Counts.Reserved != 2 {
		t.Errorf("%+v, %v", c.Counts, err)
	}
	fixture.Sound(t, db)
}

// The statements refuse what a decision by an old state would write.
func TestTheStatementsOfAPartialCancellationRefuseWhatIsNotThere(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(6))
	bought, _ := fixture.BuyByCard(t, db, id, "a", 5, 2)
	p := purchaseOf(t, db, bought)
	part := func(items ...purchase.Item) map[uuid.UUID][]purchase.PartialCancellation {
		return map[uuid.UUID][]purchase.PartialCancellation{bought: {{JobID: uuidv7.New(), By: "app:test", Items: items, Amount: purchase.PriceOf(items)}}}
	}
	other := p.Items[0]
	other.Layer = 6
	back := payment.Refund{ID: uuidv7.New(), PurchaseID: bought, CampaignID: id, UserID: "a", Method: payment.RefundToCard, Amount: 1001, Currency: "JPY", Reason: payment.RefundPurchaseCancelled}
	owed := back
	owed.PurchaseID, owed.Method = fixture.Buy(t, db, id, "b", 4, 1), payment.RefundExternal
	for what, queue := range map[string]func(b *pgx.Batch) error{
		"a position that it has not": func(b *pgx.Batch) error { return purchase.QueueCancelPart(b, part(other)) },
		"all positions":              func(b *pgx.Batch) error { return purchase.QueueCancelPart(b, part(p.Items...)) },
		"a purchase that is cancelled": func(b *pgx.Batch) error {
			purchase.QueueCancel(b, []purchase.End{{ID: bought, State: purchase.Refunding, By: "app:test"}})
			return purchase.QueueCancelPart(b, part(p.Items[0]))
		},
		"more than was captured": func(b *pgx.Batch) error { payment.QueueInsertRefunds(b, []payment.Refund{back}); return nil },
		"more than was paid":     func(b *pgx.Batch) error { payment.QueueInsertRefunds(b, []payment.Refund{owed}); return nil },
	} {
		err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
			var b pgx.Batch
			if err := queue(&b); err != nil {
				return err
			}
			return tx.SendBatch(t.Context(), &b).Close()
		})
		if !errors.Is(err, postgres.ErrRows) {
			t.Errorf("%s: %v", what, err)
		}
	}
	fixture.Sound(t, db)
}
