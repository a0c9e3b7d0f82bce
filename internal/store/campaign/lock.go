package campaign

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
)

// Lock takes the row of a campaign for the transaction, waiting for whoever has
// it. The statement locks and reads nothing else: what a statement reads can be
// older than its wait, so callers read in a later one. Not-found is an Error.
func Lock(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
	var locked bool
	err := tx.QueryRow(ctx, `SELECT true FROM campaigns WHERE id = $1 FOR NO KEY UPDATE`, id).Scan(&locked)
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.New(fault.NotFound, "there is no campaign %s", id)
	}
	if err != nil {
		return fmt.Errorf("campaign.Lock(%s): %w", id, err)
	}
	return nil
}

// LockFreeSQL takes the rows of those campaigns ($1 uuid[]) that nobody else has
// locked, in ascending order, without waiting; it returns their ids. It is sent
// in one pipeline with the statements that read afterwards.
const LockFreeSQL = `SELECT id FROM campaigns WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED`

// LockAllSQL is LockFreeSQL for a single campaign, but waits for its turn.
const LockAllSQL = `SELECT id FROM campaigns WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE`

// Sale is what a purchase is decided on.
type Sale struct {
	ID            uuid.UUID
	State         State
	Paused        bool
	Open          bool // the present moment lies in the sale window
	BaseLength    int
	Currency      string
	PurchaseLimit *int
	Counts        Counts
}

// OnSale returns nil while positions can be sold and held, or an Error that says
// why they cannot.
func (s Sale) OnSale() error {
	switch {
	case s.State != Active && s.Counts.Sold == s.Counts.Total:
		return fault.New(fault.SoldOut, "all %d positions are sold", s.Counts.Total)
	case s.State != Active:
		return fault.New(fault.CampaignNotActive, "the campaign is %s", s.State)
	case s.Paused:
		return fault.New(fault.CampaignPaused, "the operator has paused the sale")
	case !s.Open:
		return fault.New(fault.SaleNotOpen, "the sale has not begun or is over")
	}
	return nil
}

// SalesSQL reads what ScanSale scans for campaigns $1 uuid[].
const SalesSQL = `
	SELECT id, state, paused_at IS NOT NULL,
	       coalesce(sale_starts_at <= t.now, true) AND coalesce(t.now < sale_ends_at, true),
	       base_length, currency, purchase_limit, positions_total, positions_reserved, positions_sold
	FROM campaigns, (SELECT clock_timestamp() AS now) t
	WHERE id = ANY($1)`

// ScanSale scans one row of SalesSQL.
func ScanSale(row pgx.CollectableRow) (s Sale, err error) {
	err = row.Scan(&s.ID, &s.State, &s.Paused, &s.Open, &s.BaseLength, &s.Currency, &s.PurchaseLimit,
		&s.Counts.Total, &s.Counts.Reserved, &s.Counts.Sold)
	return s, err
}

// Change is by how much a transaction changes a campaign's counters.
type Change struct {
	ID       uuid.UUID
	Reserved int
	Sold     int
}

// QueueCount adds changes to the counters, in one statement; the caller checks
// that it touches as many rows as there are changes. Call it under the lock, once
// for every transaction that changes positions.
func QueueCount(b *pgx.Batch, changes []Change) *pgx.QueuedQuery {
	ids, reserved, sold := make([]uuid.UUID, len(changes)), make([]int, len(changes)), make([]int, len(changes))
	for i, c := range changes {
		ids[i], reserved[i], sold[i] = c.ID, c.Reserved, c.Sold
	}
	return b.Queue(`
		UPDATE campaigns c
		SET positions_reserved = c.positions_reserved + d.reserved, positions_sold = c.positions_sold + d.sold,
		    board_version = c.board_version + 1
		FROM unnest($1::uuid[], $2::int[], $3::int[]) AS d (id, reserved, sold)
		WHERE c.id = d.id AND c.state = 'active'`, ids, reserved, sold)
}
