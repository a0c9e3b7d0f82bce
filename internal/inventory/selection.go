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

// Selection is the positions that a request wants, all or nothing: chosen positions, a number of
// free ones, random or side by side, or those of a hold.
type Selection struct {
	Layer     int              `json:"layer,omitempty"` // 0: anywhere in the campaign
	Quantity  int              `json:"quantity,omitempty"`
	Adjacent  bool             `json:"adjacent,omitempty"`
	Positions []shape.Position `json:"positions,omitempty"`
	Numbers   []int            `json:"numbers,omitempty"` // by which positions were chosen, if any was; 0: by layer and column
	HoldID    uuid.UUID        `json:"hold_id,omitzero"`
}

// MaxAdjacentLayer bounds the layers in which positions are found side by side: a layer is
// read as a whole, under the lock of its campaign.
const MaxAdjacentLayer = 10_000

// Size is the number of positions that the selection wants.
func (s Selection) Size() int { return max(s.Quantity, len(s.Positions)) }

// Check returns an invalid-request Error when a campaign of this shape can never give the
// selection. at is the JSON pointer of the selection in the request.
func (s Selection) Check(form shape.Shape, at string) error {
	invalid := func(pointer, format string, args ...any) error {
		return fault.Invalid(fault.Field{Pointer: at + pointer, Detail: fmt.Sprintf(format, args...)})
	}
	var missing []fault.Field
	for i, p := range s.Positions {
		if why := Missing(form, p); why != "" {
			missing = append(missing, fault.Field{Pointer: fmt.Sprintf("%s/positions/%d", at, i), Detail: why})
		} else if i < len(s.Numbers) && s.Numbers[i] != 0 && s.Numbers[i] != form.Number(p) { // the draft was reshaped since
			missing = append(missing, fault.Field{Pointer: fmt.Sprintf("%s/positions/%d/number", at, i),
				Detail: fmt.Sprintf("%d was another position when it was chosen: the layers of the campaign have changed since", s.Numbers[i])})
		}
	}
	switch {
	case len(missing) > 0:
		return fault.Invalid(missing...)
	case len(s.Positions) > 0:
		return nil
	case s.Layer < 0 || s.Layer > form.Layers():
		return invalid("/layer", "the campaign has layers 1 to %d", form.Layers())
	case s.Quantity < 1:
		return invalid("/quantity", "must be at least 1")
	case s.Layer > 0 && s.Quantity > form.InLayer(s.Layer):
		return invalid("/quantity", "%s has no more than %d in all", form.LayerName(s.Layer), form.InLayer(s.Layer))
	case s.Quantity > form.Count():
		return invalid("/quantity", "the campaign has no more than %d in all", form.Count())
	case s.Adjacent && form.LargestLayer(s.Layer) > MaxAdjacentLayer:
		return invalid("/adjacent", "goes with layers of %d positions at most; one of %s has %d", MaxAdjacentLayer, s.where(), form.LargestLayer(s.Layer))
	case s.Adjacent && s.Quantity > form.LongestRun(s.Layer):
		return invalid("/quantity", "no more than %d positions of %s are side by side", form.LongestRun(s.Layer), s.where())
	}
	return nil
}

// where names the part of the campaign that the positions come from.
func (s Selection) where() string {
	if s.Layer == 0 {
		return "the campaign"
	}
	return fmt.Sprintf("layer %d", s.Layer)
}

// TakenField says that a chosen position is taken: the i-th of the selection at a
// JSON pointer.
func TakenField(at string, i int, p shape.Position, form shape.Shape) fault.Field {
	return fault.Field{Pointer: fmt.Sprintf("%s/positions/%d", at, i), Detail: fmt.Sprintf("position %s is taken", form.Name(p))}
}

// Missing says that a campaign of this shape has no such position; empty: it has.
func Missing(form shape.Shape, p shape.Position) string {
	switch n := form.InLayer(p.Layer); {
	case n == 0:
		return fmt.Sprintf("there is no position %d/%d; the campaign has layers 1 to %d", p.Layer, p.Column, form.Layers())
	case !form.Has(p):
		return fmt.Sprintf("there is no position %d/%d; %s has columns 1 to %d", p.Layer, p.Column, form.LayerName(p.Layer), n)
	}
	return ""
}

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
	err := postgres.Send(ctx, tx, &b)
	return found, fault.At(err, "inventory.findFree")
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
