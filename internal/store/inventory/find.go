package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// PositionID identifies a position of a campaign.
type PositionID struct {
	CampaignID uuid.UUID
	shape.Position
}

// Pool is the part of a campaign that random positions come from: one layer, or
// with layer 0 all layers.
type Pool struct {
	CampaignID uuid.UUID
	Layer      int
}

// Free is one free position that a transaction has locked.
type Free struct {
	PositionID
	Rank    int
	Price   money.Amount
	Version int
	taken   bool // out of its stock
}

// Found is a position as it was read.
type Found struct {
	Free
	State      State
	HoldID     *uuid.UUID
	PurchaseID *uuid.UUID    // of one that is reserved
	JobID      *uuid.UUID    // of that purchase
	UserID     string        // whose it is; empty: nobody's
	Client     string        // of what keeps it; empty: it is not kept
	Remaining  time.Duration // until its hold ends, or its payment is given up; negative: it has ended
}

// need is how many free positions a transaction may need from a pool.
type need struct {
	Pool
	Count int
}

// findFree locks and returns, for each need, the first free positions by rank, or
// all of them when there are not enough. Several needs can find the same position.
// It skips rows that another transaction has locked. Under the campaign's lock
// that happens only when some code breaks the rule; still, too few positions do
// not prove that the pool is sold out.
func findFree(ctx context.Context, tx pgx.Tx, needs []need) ([]Free, error) {
	var anywhere, inLayer []need
	for _, n := range needs {
		if n.Layer == 0 {
			anywhere = append(anywhere, n)
		} else {
			inLayer = append(inLayer, n)
		}
	}
	var b pgx.Batch
	var found []Free
	collect := func(rows pgx.Rows) error {
		free, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f Free, err error) {
			err = row.Scan(&f.CampaignID, &f.Layer, &f.Column, &f.Rank, &f.Price, &f.Version)
			return f, err
		})
		found = append(found, free...)
		return err
	}
	// One index scan per need, in rank order and no further than needed. Only the
	// rows returned are locked.
	if len(anywhere) > 0 {
		ids, _, counts := columns(anywhere)
		b.Queue(`
			SELECT n.campaign_id, p.layer, p.col, p.rank, p.price, p.version
			FROM unnest($1::uuid[], $2::int[]) AS n (campaign_id, count)
			CROSS JOIN LATERAL (
				SELECT layer, col, rank, price, version FROM positions
				WHERE campaign_id = n.campaign_id AND state = 'available'
				ORDER BY rank LIMIT n.count FOR UPDATE SKIP LOCKED) p`, ids, counts).Query(collect)
	}
	if len(inLayer) > 0 {
		ids, layers, counts := columns(inLayer)
		b.Queue(`
			SELECT n.campaign_id, p.layer, p.col, p.rank, p.price, p.version
			FROM unnest($1::uuid[], $2::int[], $3::int[]) AS n (campaign_id, layer, count)
			CROSS JOIN LATERAL (
				SELECT layer, col, rank, price, version FROM positions
				WHERE campaign_id = n.campaign_id AND layer = n.layer AND state = 'available'
				ORDER BY rank LIMIT n.count FOR UPDATE SKIP LOCKED) p`, ids, layers, counts).Query(collect)
	}
	if b.Len() == 0 {
		return nil, nil
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("inventory.findFree: %w", err)
	}
	return found, nil
}

func columns(needs []need) (ids []uuid.UUID, layers, counts []int) {
	for _, n := range needs {
		ids, layers, counts = append(ids, n.CampaignID), append(layers, n.Layer), append(counts, n.Count)
	}
	return ids, layers, counts
}

// Find returns positions as they are and leaves out those that do not exist. It
// locks nothing: the campaign's lock is enough, and a writer that goes without it
// fails at the version.
func Find(ctx context.Context, db postgres.DB, chosen []PositionID) ([]Found, error) {
	if len(chosen) == 0 {
		return nil, nil
	}
	n := len(chosen)
	campaigns, layers, cols := make([]uuid.UUID, n), make([]int, n), make([]int, n)
	for i, c := range chosen {
		campaigns[i], layers[i], cols[i] = c.CampaignID, c.Layer, c.Column
	}
	found, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (f Found, err error) {
		var seconds float64
		err = row.Scan(&f.CampaignID, &f.Layer, &f.Column, &f.Rank, &f.Price, &f.Version, &f.State, &f.HoldID, &f.PurchaseID, &f.JobID, &f.UserID, &f.Client, &seconds)
		f.Remaining = time.Duration(seconds * float64(time.Second))
		return f, err
	}, `
		SELECT c.campaign_id, c.layer, c.col, p.rank, p.price, p.version, p.state, p.hold_id, CASE p.state WHEN 'reserved' THEN p.purchase_id END,
		       y.job_id, coalesce(p.user_id, ''), coalesce((SELECT client FROM holds WHERE id = p.hold_id), (SELECT client FROM purchases WHERE p.state = 'reserved' AND id = p.purchase_id), ''),
		       coalesce(extract(epoch FROM coalesce(y.over_at, p.expires_at) - clock_timestamp()), 0)::float8
		FROM unnest($1::uuid[], $2::int[], $3::int[]) AS c (campaign_id, layer, col)
		CROSS JOIN LATERAL (SELECT * FROM positions WHERE campaign_id = c.campaign_id AND layer = c.layer AND col = c.col) p
		LEFT JOIN LATERAL (SELECT job_id, over_at FROM payments WHERE p.state = 'reserved' AND purchase_id = p.purchase_id) y ON true`,
		campaigns, layers, cols)
	return found, fault.At(err, "inventory.Find")
}

// countGone counts the positions in the layer of each need that are sold or blocked:
// counts[i] is for needs[i].
func countGone(ctx context.Context, db postgres.DB, needs []need) (counts []int, err error) {
	if len(needs) == 0 {
		return nil, nil
	}
	campaigns, layers, _ := columns(needs)
	counts, err = postgres.Collect(ctx, db, pgx.RowTo[int], `
		SELECT (SELECT count(*) FROM positions WHERE campaign_id = l.campaign_id AND layer = l.layer AND state IN ('sold', 'blocked'))
		FROM unnest($1::uuid[], $2::int[]) WITH ORDINALITY AS l (campaign_id, layer, i) ORDER BY l.i`, campaigns, layers)
	return counts, fault.At(err, "inventory.countGone")
}
