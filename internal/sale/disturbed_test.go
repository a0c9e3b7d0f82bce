package sale_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// Each campaign of these tests has one job: an order of a hold, or of two positions; a cancellation of two
// positions; a payment of two that was captured, or has ended.
var disturbedJobs = map[string]func(t *testing.T, db *pgxpool.Pool, id uuid.UUID) job.Ref{
	"sell": func(t *testing.T, db *pgxpool.Pool, id uuid.UUID) job.Ref {
		return fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "a", 0, 2))[0]
	},
	"sell a hold": func(t *testing.T, db *pgxpool.Pool, id uuid.UUID) job.Ref {
		h := fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(id, "a", at(3, 1), at(4, 1)))
		return fixture.Accept(t, db, fixture.HeldRequest(t, id, "a", h.ID))[0]
	},
	"sell a hold that is over": func(t *testing.T, db *pgxpool.Pool, id uuid.UUID) job.Ref {
		h := fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(id, "a", at(3, 1), at(4, 1)))
		fixture.EndHold(t, db, h)
		return fixture.Accept(t, db, fixture.HeldRequest(t, id, "a", h.ID))[0]
	},
	"cancel": func(t *testing.T, db *pgxpool.Pool, id uuid.UUID) job.Ref {
		return fixture.Accept(t, db, fixture.CancelRequest(t, id, fixture.Buy(t, db, id, "a", 2, 2)))[0]
	},
	"finalize a captured payment": func(t *testing.T, db *pgxpool.Pool, id uuid.UUID) job.Ref {
		bought, ref := fixture.Reserve(t, db, id, "a", 2, time.Hour)
		fixture.Advance(t, db, bought, payment.Captured)
		return ref
	},
	"finalize an ended payment": func(t *testing.T, db *pgxpool.Pool, id uuid.UUID) job.Ref {
		bought, ref := fixture.Reserve(t, db, id, "a", 2, time.Hour)
		fixture.Advance(t, db, bought, payment.Confirming)
		fixture.Advance(t, db, bought, payment.Ended)
		return ref
	},
}

// A writer that changes rows without the campaign's lock breaks the rule of package campaign. The
// transaction must then fail as a whole.
func TestRowsThatMoveUnderTheLockRollTheTransactionBack(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	const cancelled = `UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test' WHERE id = $1`
	const final = `UPDATE jobs SET state = 'failed', problem = '{}', finished_at = clock_timestamp() WHERE campaign_id = $1 AND kind IN ('purchase', 'cancellation') AND state = 'queued'`
	const released = `UPDATE holds SET state = 'released', ended_at = clock_timestamp() WHERE campaign_id = $1`
	for _, c := range []struct {
		job     string
		disturb string
		batch   int // before which of its batches; 0: before the transaction
		want    error
	}{
		{"sell", `UPDATE positions SET version = version + 1 WHERE campaign_id = $1`, 3, postgres.ErrRows},
		{"sell", cancelled, 3, postgres.ErrRows},
		{"sell", final, 3, job.ErrFinal},
		{"sell a hold", `UPDATE positions SET state = 'available', user_id = NULL, hold_id = NULL, expires_at = NULL WHERE campaign_id = $1 AND layer = 3`, 0, postgres.ErrRows},
		{"sell a hold", `UPDATE positions SET hold_id = gen_random_uuid() WHERE campaign_id = $1 AND layer = 3 AND state = 'held'`, 0, postgres.ErrRows},
		{"sell a hold", released, 3, postgres.ErrRows},
		{"sell a hold that is over", `UPDATE positions SET state = 'available', user_id = NULL, hold_id = NULL, expires_at = NULL WHERE campaign_id = $1 AND layer = 3`, 0, postgres.ErrRows},
		{"sell a hold that is over", `UPDATE positions SET hold_id = gen_random_uuid() WHERE campaign_id = $1 AND layer = 3 AND state = 'held'`, 0, postgres.ErrRows},
		{"sell a hold that is over", released, 2, postgres.ErrRows},
		{"cancel", `UPDATE positions SET state = 'available', user_id = NULL, purchase_id = NULL, sold_at = NULL WHERE campaign_id = $1 AND (layer, col) = (2, 1)`, 3, postgres.ErrRows},
		{"cancel", `UPDATE purchases SET state = 'failed', failure = 'internal-error' WHERE campaign_id = $1`, 3, postgres.ErrRows},
		{"cancel", cancelled, 3, postgres.ErrRows},
		{"cancel", final, 3, job.ErrFinal},
		{"finalize a captured payment", `UPDATE positions SET state = 'available', user_id = NULL, purchase_id = NULL, expires_at = NULL WHERE campaign_id = $1 AND state = 'reserved'`, 3, postgres.ErrRows},
		{"finalize a captured payment", `UPDATE payments SET version = version + 1 WHERE campaign_id = $1`, 3, postgres.ErrRows},
		{"finalize a captured payment", `UPDATE payments SET phase = 'late', ending = 'expired' WHERE campaign_id = $1`, 3, postgres.ErrRows},
		{"finalize a captured payment", `UPDATE purchases SET state = 'completed', completed_at = now() WHERE campaign_id = $1`, 3, postgres.ErrRows},
		{"finalize a captured payment", `UPDATE campaigns SET state = 'drawing' WHERE id = $1`, 3, postgres.ErrRows},
		{"finalize a captured payment", cancelled, 3, postgres.ErrRows},
		{"finalize a captured payment", final, 3, job.ErrFinal},
		{"finalize an ended payment", `UPDATE positions SET purchase_id = gen_random_uuid() WHERE campaign_id = $1 AND state = 'reserved'`, 3, postgres.ErrRows},
		{"finalize an ended payment", `UPDATE positions SET state = 'sold', sold_at = now(), expires_at = NULL WHERE campaign_id = $1 AND state = 'reserved'`, 3, postgres.ErrRows},
		{"finalize an ended payment", `UPDATE purchases SET state = 'failed', failure = 'internal-error' WHERE campaign_id = $1`, 3, postgres.ErrRows},
		// What does not fit together is no case for a guess.
		{"finalize a captured payment", `UPDATE positions SET purchase_id = gen_random_uuid() WHERE (campaign_id, layer, col) = (SELECT campaign_id, layer, col FROM positions WHERE campaign_id = $1 AND purchase_id IS NOT NULL LIMIT 1)`, 0, postgres.ErrRows},
		{"finalize a captured payment", `DELETE FROM purchases WHERE campaign_id = $1`, 0, postgres.ErrRows},
		{"finalize a captured payment", `UPDATE purchases SET state = 'completed', completed_at = now() WHERE campaign_id = $1`, 0, postgres.ErrRows},
		{"finalize a captured payment", `UPDATE payments SET campaign_id = gen_random_uuid() WHERE campaign_id = $1`, 0, nil},
		{"cancel", `UPDATE purchases SET campaign_id = gen_random_uuid() WHERE campaign_id = $1`, 0, nil},
	} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		ref := disturbedJobs[c.job](t, db, id)
		if c.batch == 0 {
			servers.Exec(t, db, c.disturb, id)
		}
		changed := fixture.Watch(t, db)
		seller := sale.NewSeller(spied{Beginner: db, before: func(tx pgx.Tx, n int, _ *pgx.Batch) {
			if n == c.batch {
				servers.Exec(t, tx, c.disturb, id)
			}
		}}, time.Hour, fixture.Reservations)
		operation, _, _ := strings.Cut(c.job, " ")
		_, err := operations[operation](seller, t.Context(), []job.Ref{ref}, forAll)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || isFault(err) {
			t.Errorf("%s, %s: %v, want %v", c.job, c.disturb, err, c.want)
		}
		changed(``)
	}
}

func isFault(err error) bool {
	_, ok := errors.AsType[*fault.Error](err)
	return ok
}

// The first batch locks the campaigns, the last one writes. What another transaction has locked is Busy, with
// the jobs that need it, and no others.
func TestWhatIsLockedDelaysItsOwnJobsOnly(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	mina, otto := fixture.Wallet(t, db, "mina", 5000), fixture.Wallet(t, db, "otto", 5000)
	card := func(t *testing.T, id uuid.UUID, user string) (uuid.UUID, job.Ref) {
		t.Helper()
		bought, ref := fixture.Reserve(t, db, id, user, 1, time.Hour)
		fixture.Advance(t, db, bought, payment.Captured)
		return bought, ref
	}
	back := func(bought ...uuid.UUID) (refs []job.Ref) {
		for _, b := range bought {
			refs = append(refs, fixture.Accept(t, db, fixture.CancelRequest(t, purchaseOf(t, db, b).CampaignID, b))...)
		}
		return refs
	}
	aCampaign := func(id, _ uuid.UUID) func() { return fixture.LockCampaign(t, db, id) }
	aWallet := func(uuid.UUID, uuid.UUID) func() { return fixture.LockWallet(t, db, mina) }
	aPayment := func(_, bought uuid.UUID) func() {
		return fixture.LockRows(t, db, `payments WHERE purchase_id = $1`, bought)
	}
	for name, c := range map[string]struct {
		operation string
		lock      func(id, bought uuid.UUID) (unlock func())
		jobs      func(a, b uuid.UUID) (bought uuid.UUID, refs []job.Ref) // the first one needs what is locked; the campaigns may be one
	}{
		"sell in a campaign": {"sell", aCampaign, func(a, b uuid.UUID) (uuid.UUID, []job.Ref) {
			return uuid.Nil, fixture.Accept(t, db, fixture.PurchaseRequest(t, a, "a", 0, 1), fixture.PurchaseRequest(t, b, "a", 0, 1))
		}},
		"sell for a wallet": {"sell", aWallet, func(a, _ uuid.UUID) (uuid.UUID, []job.Ref) {
			return uuid.Nil, fixture.Accept(t, db, fixture.WalletRequest(t, a, "mina", 2, 1), fixture.WalletRequest(t, a, "otto", 2, 1), fixture.PurchaseRequest(t, a, "mina", 4, 1))
		}},
		"cancel in a campaign": {"cancel", aCampaign, func(a, b uuid.UUID) (uuid.UUID, []job.Ref) {
			return uuid.Nil, back(fixture.Buy(t, db, a, "a", 0, 1), fixture.Buy(t, db, b, "a", 0, 1))
		}},
		"cancel for a wallet": {"cancel", aWallet, func(a, _ uuid.UUID) (uuid.UUID, []job.Ref) {
			jobs := fixture.Complete(t, db, fixture.WalletRequest(t, a, "mina", 3, 1), fixture.WalletRequest(t, a, "otto", 3, 1))
			return uuid.Nil, back(resultOf(t, jobs[0]).PurchaseID, resultOf(t, jobs[1]).PurchaseID, fixture.Buy(t, db, a, "mina", 0, 1))
		}},
		"cancel what a card has paid": {"cancel", aPayment, func(a, _ uuid.UUID) (uuid.UUID, []job.Ref) { // such as while a dispute is recorded
			paid, _ := fixture.BuyByCard(t, db, a, "a", 0, 1)
			return paid, back(paid, fixture.Buy(t, db, a, "a", 0, 1))
		}},
		"finalize in a campaign": {"finalize", aCampaign, func(a, b uuid.UUID) (uuid.UUID, []job.Ref) {
			bought, ref := card(t, a, "a")
			_, other := card(t, b, "a")
			return bought, []job.Ref{ref, other}
		}},
		"finalize a payment": {"finalize", aPayment, func(a, _ uuid.UUID) (uuid.UUID, []job.Ref) {
			bought, ref := card(t, a, "a")
			_, other := card(t, a, "b")
			return bought, []job.Ref{ref, other}
		}},
	} {
		id, other := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Campaign(t, db, fixture.Draft(4))
		bought, refs := c.jobs(id, other)
		inCampaign := name == c.operation+" in a campaign"
		run := func(wait job.LockWait, refs ...job.Ref) sale.Report {
			t.Helper()
			report, err := operations[c.operation](fixture.Seller(db), context.WithoutCancel(t.Context()), refs, wait)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return report
		}
		unlock := c.lock(id, bought)
		changed := fixture.Watch(t, db)
		if r := run(job.LockWait{Campaign: 20 * time.Millisecond, Wallets: 20 * time.Millisecond}, refs...); !r.TimedOut || !slices.Equal(r.Busy, refs) || len(r.Outcomes)+r.Sold+len(r.Locked) != 0 {
			t.Errorf("%s, all wait and give up together: %+v", name, r)
		}
		if r := run(job.LockWait{Campaign: 20 * time.Millisecond}, refs[0]); r.TimedOut != inCampaign || !slices.Equal(r.Busy, refs[:1]) || len(r.Outcomes) != 0 || (len(r.Locked) == 1) != inCampaign {
			t.Errorf("%s, it waits for its campaign only: %+v", name, r)
		}
		changed(``)
		if r := run(job.SkipLocked, refs...); r.TimedOut || !slices.Equal(r.Busy, refs[:1]) || (len(r.Locked) == 1) != inCampaign || len(r.Outcomes) != len(refs)-1 {
			t.Errorf("%s, nobody waits: %+v", name, r)
		}
		expectCodes(t, db, refs[1:], make([]fault.Code, len(refs)-1)...)
		done := make(chan sale.Report)
		go func() { done <- run(forAll, refs...) }()
		servers.AwaitBlocked(t, db, 1)
		unlock()
		if r := <-done; len(r.Busy) != 0 || len(r.Outcomes) != 1 {
			t.Errorf("%s, when it is free: %+v", name, r)
		}
		expectCodes(t, db, refs, make([]fault.Code, len(refs))...)
	}
	for _, id := range []uuid.UUID{mina, otto} { // each has bought one for 200, and one that it gave back
		if got := fixture.Balance(t, db, id); got != 4800 {
			t.Errorf("a wallet has %d", got)
		}
	}
	fixture.Sound(t, db)
}

// A wallet whose balance is not what its events add up to pays nothing, and gets nothing back.
func TestABrokenWalletFailsItsOwnJobsOnly(t *testing.T) {
	db, id := campaignOn(t, 6)
	mina := fixture.Wallet(t, db, "mina", 5000)
	fixture.Wallet(t, db, "otto", 5000)
	orders := func() []job.Request {
		return []job.Request{fixture.WalletRequest(t, id, "mina", 6, 1), fixture.WalletRequest(t, id, "otto", 6, 1)}
	}
	bought := fixture.Complete(t, db, orders()...)
	for operation, requests := range map[string][]job.Request{
		"sell":   orders(),
		"cancel": {fixture.CancelRequest(t, id, resultOf(t, bought[0]).PurchaseID), fixture.CancelRequest(t, id, resultOf(t, bought[1]).PurchaseID)},
	} {
		refs := fixture.Accept(t, db, requests...)
		servers.Exec(t, db, `UPDATE wallets SET balance = balance + 1 WHERE id = $1`, mina)
		report, err := operations[operation](fixture.Seller(db), t.Context(), refs, job.SkipLocked)
		if err != nil || len(report.Broken) != 1 {
			t.Fatalf("%s: %+v, %v", operation, report, err)
		}
		servers.Exec(t, db, `UPDATE wallets SET balance = balance - 1 WHERE id = $1`, mina)
		expectCodes(t, db, refs, fault.InternalError, "")
	}
	expect(t, "when it is repaired", fixture.Complete(t, db, orders()[0]), "any 1")
	fixture.Sound(t, db)
}
