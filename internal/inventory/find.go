package inventory

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// Request is a request for positions that a Stock has to serve.
type Request struct {
	CampaignID uuid.UUID
	Shape      shape.Shape // of the campaign
	Gone       int         // its positions that are sold or blocked
	Selection
	Hold  []shape.Item // instead of a selection: the positions of a hold
	Avoid int          // how many random positions Select may have to skip for it
}

// FindStock reads what requests could get, and locks the free positions it finds:
// enough of each pool for all requests together, and the positions that requests
// name.
func FindStock(ctx context.Context, tx pgx.Tx, requests []Request) (*Stock, error) {
	needs, named := wanted(requests)
	free, err := findFree(ctx, tx, needs)
	if err != nil {
		return nil, err
	}
	found, err := find(ctx, tx, named)
	if err != nil {
		return nil, err
	}
	sought := runsWanted(requests)
	layers, err := findRuns(ctx, tx, sought)
	if err != nil {
		return nil, err
	}
	s := &Stock{free: make(map[PositionID]*FreePosition, len(free)), named: make(map[PositionID]*StoredPosition, len(found)),
		pools: make(map[Pool][]*FreePosition), runs: make(map[Pool]*layerRuns), forms: make(map[uuid.UUID]shape.Shape), holders: make(map[PositionID]Holder), gone: make(map[Pool]int)}
	for i := range free {
		f := &free[i]
		if s.free[f.PositionID] != nil { // found twice
			continue
		}
		s.free[f.PositionID] = f
		for _, p := range []Pool{{f.CampaignID, 0}, {f.CampaignID, f.Layer}} {
			s.pools[p] = append(s.pools[p], f)
		}
	}
	for _, p := range s.pools {
		slices.SortFunc(p, func(x, y *FreePosition) int { return x.Rank - y.Rank })
	}
	for i := range found {
		f := &found[i]
		s.named[f.PositionID] = f
		if f.State == Available && s.free[f.PositionID] == nil {
			s.free[f.PositionID] = &f.FreePosition
		}
	}
	for _, l := range layers {
		s.addRuns(l)
	}
	for _, r := range requests {
		s.forms[r.CampaignID], s.gone[Pool{r.CampaignID, 0}] = r.Shape, r.Gone
	}
	// When a layer has too few, a refusal must say whether it is sold out.
	short := slices.DeleteFunc(needs, func(n need) bool { return n.Layer == 0 || len(s.pools[n.Pool]) >= n.Count })
	for _, n := range sought {
		if r := s.runs[n.Pool]; n.Layer != 0 && (r == nil || len(r.seats) < n.Count) {
			short = append(short, n.need)
		}
	}
	gone, err := countGone(ctx, tx, short)
	for i, n := range gone {
		s.gone[short[i].Pool] = n
	}
	return s, err
}

// wanted lists what requests need: from each pool as many positions as all requests
// in its campaign could take. Chosen positions count too, because they may be among
// those that are found by rank.
func wanted(requests []Request) (needs []need, named []PositionID) {
	counts, pools, seen := make(map[uuid.UUID]int), make(map[Pool]bool), make(map[PositionID]bool)
	name := func(id uuid.UUID, p shape.Position) {
		if at := (PositionID{id, p}); !seen[at] {
			seen[at] = true
			named = append(named, at)
		}
	}
	for _, r := range requests {
		counts[r.CampaignID] += r.Size() + r.Avoid
		for _, p := range r.Positions {
			name(r.CampaignID, p)
		}
		for _, p := range r.Hold {
			name(r.CampaignID, p.Position)
		}
	}
	for _, r := range requests {
		if pool := (Pool{r.CampaignID, r.Layer}); r.Quantity > 0 && !r.Adjacent && !pools[pool] {
			pools[pool] = true
			needs = append(needs, need{Pool: pool, Count: counts[r.CampaignID]})
		}
	}
	return needs, named
}

type need struct {
	Pool
	Count int
}

// findFree locks and returns, for each need, the first free positions by rank, or
// all of them when there are not enough. Several needs can find the same position.
// It skips rows that another transaction has locked. Under the campaign's lock
// that happens only when some code breaks the rule; still, too few positions do
// not prove that the pool is sold out.
func findFree(ctx context.Context, tx pgx.Tx, needs []need) ([]FreePosition, error) {
	var b pgx.Batch
	var found []FreePosition
	collect := func(rows pgx.Rows) error {
		free, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f FreePosition, err error) {
			err = row.Scan(&f.CampaignID, &f.Layer, &f.Column, &f.Rank, &f.Price, &f.Version)
			return f, err
		})
		found = append(found, free...)
		return err
	}
	// One index scan per need, in rank order and no further than needed. Only the rows
	// returned are locked. Each of the two statements fits another index.
	for _, inLayer := range []bool{false, true} {
		some := slices.DeleteFunc(slices.Clone(needs), func(n need) bool { return (n.Layer > 0) != inLayer })
		if len(some) == 0 {
			continue
		}
		condition := ``
		if inLayer {
			condition = ` AND layer = n.layer`
		}
		ids, layers, counts := columns(some)
		b.Queue(`
			SELECT n.campaign_id, p.layer, p.col, p.rank, p.price, p.version
			FROM unnest($1::uuid[], $2::int[], $3::int[]) AS n (campaign_id, layer, count)
			CROSS JOIN LATERAL (
				SELECT layer, col, rank, price, version FROM positions
				WHERE campaign_id = n.campaign_id`+condition+` AND state = 'available'
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

// find returns positions as they are and leaves out those that do not exist. It
// locks nothing: the campaign's lock is enough, and a writer that goes without it
// fails at the version.
func find(ctx context.Context, db postgres.DB, chosen []PositionID) ([]StoredPosition, error) {
	if len(chosen) == 0 {
		return nil, nil
	}
	n := len(chosen)
	campaigns, layers, cols := make([]uuid.UUID, n), make([]int, n), make([]int, n)
	for i, c := range chosen {
		campaigns[i], layers[i], cols[i] = c.CampaignID, c.Layer, c.Column
	}
	found, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (f StoredPosition, err error) {
		var seconds float64
		err = row.Scan(&f.CampaignID, &f.Layer, &f.Column, &f.Rank, &f.Price, &f.Version, &f.State, &f.HoldID, &f.PurchaseID, &f.UserID, &f.Client, &seconds)
		f.Remaining = time.Duration(seconds * float64(time.Second))
		return f, err
	}, `
		SELECT c.campaign_id, c.layer, c.col, p.rank, p.price, p.version, p.state, p.hold_id, CASE p.state WHEN 'reserved' THEN p.purchase_id END,
		       coalesce(p.user_id, ''), coalesce((SELECT client FROM holds WHERE id = p.hold_id), (SELECT client FROM purchases WHERE p.state = 'reserved' AND id = p.purchase_id), ''),
		       coalesce(extract(epoch FROM coalesce(y.over_at, p.expires_at) - clock_timestamp()), 0)::float8
		FROM unnest($1::uuid[], $2::int[], $3::int[]) AS c (campaign_id, layer, col)
		CROSS JOIN LATERAL (SELECT * FROM positions WHERE campaign_id = c.campaign_id AND layer = c.layer AND col = c.col) p
		LEFT JOIN LATERAL (SELECT over_at FROM payments WHERE p.state = 'reserved' AND purchase_id = p.purchase_id) y ON true`,
		campaigns, layers, cols)
	return found, fault.At(err, "inventory.find")
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
