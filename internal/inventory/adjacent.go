package inventory

import (
	"cmp"
	"context"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// layerRuns is what a stock has found of a layer for requests of adjacent positions.
type layerRuns struct {
	seats   []*FreePosition // by column, of every run that is long enough for some request
	short   int             // the length of the longest other run
	longest int             // no free run is longer, once the layer was searched: a stock gets nothing back
}

func (s *Stock) addRuns(l foundRuns) {
	r := &layerRuns{seats: make([]*FreePosition, len(l.columns)), short: l.short, longest: math.MaxInt}
	for i, column := range l.columns {
		at := PositionID{l.CampaignID, shape.Position{Layer: l.Layer, Column: column}}
		f := s.free[at]
		if f == nil {
			f = &FreePosition{PositionID: at, Price: l.price, Version: l.versions[i]}
			s.free[at] = f
		}
		r.seats[i] = f
	}
	s.runs[l.Pool] = r
}

// adjacent returns positions side by side: the best of the front layer that has any.
func (s *Stock) adjacent(campaignID uuid.UUID, sel Selection, avoid func(shape.Position) bool) ([]*FreePosition, error) {
	form, longest := s.forms[campaignID], 0
	first, last := 1, form.Layers()
	if sel.Layer > 0 {
		first, last = sel.Layer, sel.Layer
	}
	for layer := first; layer <= last; layer++ {
		r := s.runs[Pool{campaignID, layer}]
		if r == nil {
			continue
		}
		if sel.Quantity > r.longest { // it was searched in vain
			longest = max(longest, r.longest)
			continue
		}
		best, length := r.best(form, sel.Quantity, avoid)
		if best != nil {
			return best, nil
		}
		longest = max(longest, length)
	}
	return nil, s.whyNone(campaignID, sel, fault.New(fault.NoneAvailable,
		"%d adjacent positions requested; the longest free run of %s has %d at the moment; held and reserved positions may become free", sel.Quantity, sel.where(), longest))
}

// best returns the best n positions side by side in a layer, or nil and the length of its
// longest run without positions to be avoided.
func (r *layerRuns) best(form shape.Shape, n int, avoid func(shape.Position) bool) (best []*FreePosition, longest int) {
	longest, r.longest = r.short, r.short
	var least fit
	for _, run := range freeRuns(r.seats, form) {
		r.longest = max(r.longest, len(run))
		usable := 0 // positions up to here that need not be avoided
		for end := range run {
			if usable++; avoid != nil && avoid(run[end].Position) {
				usable = 0
			}
			longest = max(longest, usable)
			if usable < n {
				continue
			}
			begin := end + 1 - n
			f := fit{distance: 2*run[begin].Column + n - 2 - form.InLayer(run[0].Layer), column: run[begin].Column}
			if f.distance = max(f.distance, -f.distance); begin == 1 || len(run)-end == 2 {
				f.orphans = 1
			}
			if best == nil || cmp.Or(f.orphans-least.orphans, f.distance-least.distance, f.column-least.column) < 0 {
				best, least = run[begin:end+1:end+1], f
			}
		}
	}
	return best, longest
}

// freeRuns returns the runs of positions that are not taken: columns that follow each other,
// without an aisle.
func freeRuns(seats []*FreePosition, form shape.Shape) (runs [][]*FreePosition) {
	begin := 0
	for i, f := range seats {
		if f.taken {
			begin = i + 1
		} else if i+1 == len(seats) || seats[i+1].taken || seats[i+1].Column != f.Column+1 || form.Aisle(f.Position) {
			runs, begin = append(runs, seats[begin:i+1]), i+1
		}
	}
	return runs
}

// fit is how well positions side by side suit, the less the better.
type fit struct {
	orphans  int // 1: they leave a single free position beside them
	distance int // of their middle to that of the layer, in half columns
	column   int // their first
}

// runsNeed is what requests for adjacent positions need of a pool. The sizes are those of
// all such requests in its campaign.
type runsNeed struct {
	need
	least  int // the shortest run that suits a request
	size   int // the longest that a request asks for
	pieces int // so many pieces of this size are surely enough
}

type foundRuns struct {
	Pool
	price    money.Amount
	columns  []int // sorted, of the runs that suit
	versions []int
	short    int // the length of the longest other run
}

// runsWanted lists what requests for adjacent positions need.
//
// Cut the free runs into pieces of the longest size. A position that another request takes
// spoils one piece, and a run that it takes, which is no longer than a piece, two. So with as
// many pieces as others can spoil, and one more, a request surely finds its run.
func runsWanted(requests []Request) (needs []runsNeed) {
	of := make(map[uuid.UUID]runsNeed)
	for _, r := range requests {
		sum := of[r.CampaignID]
		sum.Count += r.Size() + r.Avoid
		if r.Adjacent {
			sum.pieces += min(r.Quantity, 2) + r.Avoid
			sum.size = max(sum.size, r.Quantity)
			if sum.least == 0 || r.Quantity < sum.least {
				sum.least = r.Quantity
			}
		} else {
			sum.pieces += r.Size()
		}
		of[r.CampaignID] = sum
	}
	seen := make(map[Pool]bool)
	for _, r := range requests {
		if pool := (Pool{r.CampaignID, r.Layer}); r.Adjacent && !seen[pool] {
			seen[pool] = true
			n := of[r.CampaignID]
			n.Pool, n.pieces = pool, n.pieces+1
			needs = append(needs, n)
		}
	}
	return needs
}

// findRuns returns the free runs of the layers from the front on until there are enough,
// or those of one layer. It locks nothing, as find: far more is read than taken.
//
// Each step of the walk looks up the next layer that has a free position, so what is sold
// out costs nothing, and reads the free ones of that layer. Both read the index of the free
// positions only: the order by rank fits no other.
func findRuns(ctx context.Context, tx pgx.Tx, needs []runsNeed) ([]foundRuns, error) {
	if len(needs) == 0 {
		return nil, nil
	}
	n := len(needs)
	ids, layers, least, sizes, pieces := make([]uuid.UUID, n), make([]int, n), make([]int, n), make([]int, n), make([]int, n)
	for i, n := range needs {
		ids[i], layers[i], least[i], sizes[i], pieces[i] = n.CampaignID, n.Layer, n.least, n.size, n.pieces
	}
	found, err := postgres.Collect(ctx, tx, func(row pgx.CollectableRow) (f foundRuns, err error) {
		err = row.Scan(&f.CampaignID, &f.Layer, &f.price, &f.short, &f.columns, &f.versions)
		return f, err
	}, `
		WITH RECURSIVE walk AS (
			SELECT campaign_id, greatest(layer, 1) - 1 AS layer, coalesce(nullif(layer, 0), $6) AS last, least, size, pieces::bigint AS missing,
			       0::bigint AS price, 0::bigint AS short, '{}'::int[] AS cols, '{}'::int[] AS versions
			FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::int[]) AS n (campaign_id, layer, least, size, pieces)
			UNION ALL
			SELECT w.campaign_id, next.layer, w.last, w.least, w.size, w.missing - r.pieces, r.price, r.short, r.cols, r.versions
			FROM walk w
			CROSS JOIN LATERAL (
				SELECT layer FROM positions
				WHERE campaign_id = w.campaign_id AND layer > w.layer AND layer <= w.last AND state = 'available'
				ORDER BY layer, rank LIMIT 1) next
			CROSS JOIN LATERAL (
				SELECT min(price) AS price, count(*) FILTER (WHERE ordinal % w.size = 0) AS pieces, coalesce(max(length) FILTER (WHERE length < w.least), 0) AS short,
				       coalesce(array_agg(col ORDER BY col) FILTER (WHERE length >= w.least), '{}') AS cols,
				       coalesce(array_agg(version ORDER BY col) FILTER (WHERE length >= w.least), '{}') AS versions
				FROM (SELECT *, row_number() OVER run AS ordinal, count(*) OVER (run ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS length
				      FROM (SELECT f.*, col - row_number() OVER (ORDER BY col) AS island, width_bucket(col - 1, l.aisles) AS block
				            FROM layers l
				            CROSS JOIN LATERAL (
				            	SELECT col, version, price FROM positions
				            	WHERE campaign_id = l.campaign_id AND layer = l.layer AND state = 'available' ORDER BY rank OFFSET 0) f
				            WHERE l.campaign_id = w.campaign_id AND l.layer = next.layer) i
				      WINDOW run AS (PARTITION BY block, island ORDER BY col)) p) r
			WHERE w.missing > 0)
		SELECT campaign_id, layer, price, short, cols, versions FROM walk WHERE price > 0`,
		ids, layers, least, sizes, pieces, shape.MaxLayers)
	return found, fault.At(err, "inventory.findRuns")
}
