package sale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/board"
	"triprize/internal/store/campaign"
	"triprize/internal/store/hold"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
)

// Report tells what became of a batch.
type Report struct {
	Settled []job.Outcome // jobs made final by this batch
	Busy    []job.Ref     // jobs whose campaign or wallet somebody else has locked: try again
	Rings   []job.Ring    // draws to be rung for
	Sold    int           // positions
	Broken  []error       // of jobs that failed because the books of their wallet disagree: somebody must see to them

	HoldsUsed      int // by purchases of this batch
	HoldsReclaimed int // that were over and not tidied up yet
}

// Keep is how long the jobs that a sale makes are kept.
type Keep struct{ Draws time.Duration }

// Seller settles purchase jobs.
type Seller struct {
	db   postgres.Beginner
	keep Keep
}

// NewSeller returns a Seller.
func NewSeller(db postgres.Beginner, keep Keep) *Seller { return &Seller{db: db, keep: keep} }

// ErrMoved means that a statement did not touch the rows it meant: somebody
// changes positions, counters or jobs without the campaign's lock.
var ErrMoved = errors.New("sale: rows moved under the campaign's lock")

// Sell settles the given jobs in one transaction. Jobs that are final already,
// or do not exist, are passed over. Without wait, jobs of campaigns that another
// transaction has locked are returned as Busy; with wait, which is for jobs of a
// single campaign, Sell takes its turn. Jobs whose wallet somebody else has are
// Busy in either case: nobody else waits for it.
func (s *Seller) Sell(ctx context.Context, refs []job.Ref, wait bool) (Report, error) {
	return s.sell(ctx, refs, wait, false)
}

// SellOverdue is Sell for jobs of a single campaign that were Busy too often: it
// waits for their wallets too, a moment, before all are Busy again.
func (s *Seller) SellOverdue(ctx context.Context, refs []job.Ref) (Report, error) {
	report, err := s.sell(ctx, refs, true, true)
	if postgres.IsLockTimeout(err) {
		return Report{Busy: refs}, nil
	}
	return report, err
}

func (s *Seller) sell(ctx context.Context, refs []job.Ref, wait, waitForWallets bool) (Report, error) {
	var report Report
	err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		report = Report{} // a commit that failed reports nothing
		b, err := read(ctx, tx, refs, wait)
		if err != nil {
			return err
		}
		if err := b.meetHolds(ctx, tx); err != nil {
			return err
		}
		b.decide()
		if err := b.allocate(ctx, tx, waitForWallets); err != nil {
			return err
		}
		report.Busy, report.Broken = b.busy, b.broken
		if err := b.write(ctx, tx); err != nil {
			return err
		}
		if report.Rings, err = b.freeze(ctx, tx, s.keep); err != nil {
			return err
		}
		report.Settled, report.Sold = b.outcomes, len(b.sales)
		report.HoldsUsed, report.HoldsReclaimed = len(b.used), b.reclaimed
		failpoint.Hit("sale.commit", b.users)
		return nil
	})
	if err != nil {
		return Report{}, fmt.Errorf("sale.Sell: %w", err)
	}
	failpoint.Hit("sale.committed", nil)
	return report, nil
}

// batch is the state of one transaction.
type batch struct {
	sales     []board.Sale
	purchases []purchase.Purchase
	outcomes  []job.Outcome
	used      map[uuid.UUID]uuid.UUID // holds, and the purchases that used them
	changes   map[uuid.UUID]*campaign.Change

	busy      []job.Ref
	broken    []error
	campaigns map[uuid.UUID]*campaign.Sale
	orders    []order       // in the order of arrival
	wanted    []*order      // orders that passed every rule but the last two: the limit, and is there a position
	owned     map[owner]int // positions that limited users have, this batch included
	sold      map[place]int // positions sold by this batch; for layers that are short, all that are sold
	due       []hold.Due    // holds that are over, until meetHolds has ended them
	reclaimed int
	holds     map[uuid.UUID]hold.Hold // that orders name, as they are
	till      till
}

type owner struct {
	campaignID uuid.UUID
	userID     string
}

func (b *batch) users() []string {
	var users []string
	for _, o := range b.orders {
		users = append(users, o.UserID)
	}
	return users
}

// read locks the campaigns and reads everything that does not depend on the
// orders' content, in one round trip. The lock is a statement of its own; those
// after it see what was committed before the lock was granted.
func read(ctx context.Context, tx pgx.Tx, refs []job.Ref, wait bool) (*batch, error) {
	b := &batch{campaigns: make(map[uuid.UUID]*campaign.Sale), owned: make(map[owner]int), sold: make(map[place]int),
		used: make(map[uuid.UUID]uuid.UUID), changes: make(map[uuid.UUID]*campaign.Change), holds: make(map[uuid.UUID]hold.Hold)}
	jobs, campaigns := make([]uuid.UUID, len(refs)), make([]uuid.UUID, 0, 1)
	for i, r := range refs {
		jobs[i] = r.ID
		if !slices.Contains(campaigns, r.CampaignID) {
			campaigns = append(campaigns, r.CampaignID)
		}
	}
	lockSQL := campaign.LockFreeSQL
	if wait {
		lockSQL = campaign.LockAllSQL
	}
	var locked []uuid.UUID
	var p pgx.Batch
	p.Queue(lockSQL, campaigns).Query(func(rows pgx.Rows) (err error) {
		locked, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		return err
	})
	p.Queue(campaign.SalesSQL, campaigns).Query(func(rows pgx.Rows) error {
		sales, err := pgx.CollectRows(rows, campaign.ScanSale)
		for _, c := range sales {
			b.campaigns[c.ID] = &c
		}
		return err
	})
	p.Queue(hold.DueSQL, campaigns).Query(func(rows pgx.Rows) (err error) {
		b.due, err = pgx.CollectRows(rows, hold.ScanDue)
		return err
	})
	p.Queue(queuedSQL, jobs).Query(b.scanOrders)
	p.Queue(ownedSQL, jobs).Query(b.scanOwned)
	if err := tx.SendBatch(ctx, &p).Close(); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	b.setAsideBusy(locked)
	return b, nil
}

// queuedSQL reads the payloads of those of the jobs $1 uuid[] that are queued, by arrival.
const queuedSQL = `
	SELECT j.id, j.campaign_id, j.payload FROM unnest($1::uuid[]) AS i (id)
	CROSS JOIN LATERAL (SELECT * FROM jobs WHERE id = i.id) j
	WHERE j.state = 'queued' ORDER BY j.accepted_at, j.id`

// ownedSQL counts what the users behind the jobs $1 uuid[] have in their
// campaigns, where the campaign has a limit. "user_id = ANY" would filter the
// whole campaign; this asks the index once per user.
const ownedSQL = `
	SELECT u.campaign_id, u.user_id, p.n
	FROM (SELECT DISTINCT j.campaign_id, j.user_id FROM unnest($1::uuid[]) AS i (id)
	      CROSS JOIN LATERAL (SELECT campaign_id, user_id, state FROM jobs WHERE id = i.id) j
	      JOIN campaigns c ON c.id = j.campaign_id
	      WHERE j.state = 'queued' AND c.purchase_limit IS NOT NULL) u
	CROSS JOIN LATERAL (SELECT count(*) AS n FROM positions p WHERE p.campaign_id = u.campaign_id AND p.user_id = u.user_id) p`

func (b *batch) scanOrders(rows pgx.Rows) error {
	var jobID, campaignID uuid.UUID
	var payload []byte
	_, err := pgx.ForEachRow(rows, []any{&jobID, &campaignID, &payload}, func() error {
		o, err := parseOrder(jobID, campaignID, payload)
		b.orders = append(b.orders, o)
		return err
	})
	return err
}

func (b *batch) scanOwned(rows pgx.Rows) error {
	var o owner
	var n int
	_, err := pgx.ForEachRow(rows, []any{&o.campaignID, &o.userID, &n}, func() error {
		b.owned[o] = n
		return nil
	})
	return err
}

// setAsideBusy keeps only orders whose campaign this transaction has locked, or
// that has no campaign at all: those are refused. Holds of busy campaigns are not
// ours to end.
func (b *batch) setAsideBusy(locked []uuid.UUID) {
	b.orders = slices.DeleteFunc(b.orders, func(o order) bool {
		busy := b.campaigns[o.campaignID] != nil && !slices.Contains(locked, o.campaignID)
		if busy {
			b.busy = append(b.busy, job.Ref{ID: o.jobID, CampaignID: o.campaignID})
		}
		return busy
	})
	b.due = slices.DeleteFunc(b.due, func(d hold.Due) bool {
		return !slices.Contains(locked, d.CampaignID) || b.campaigns[d.CampaignID] == nil || b.campaigns[d.CampaignID].State != campaign.Active
	})
}

// exactly returns a check that a statement touches n rows.
func exactly(n int, what string) func(tag pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return fmt.Errorf("%w: %d of %d %s", ErrMoved, tag.RowsAffected(), n, what)
		}
		return nil
	}
}
