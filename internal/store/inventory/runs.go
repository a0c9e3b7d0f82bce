package inventory

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// runsNeed is what requests for adjacent positions need of a pool. The sizes are those of
// all such requests in its campaign.
type runsNeed struct {
	need
	least  int // the shortest run that suits a request
	size   int // the longest that a request asks for
	pieces int // so many pieces of this size are surely enough
}

// foundRuns is the free runs of a layer.
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
	ids, first, last, least, sizes, pieces := make([]uuid.UUID, n), make([]int, n), make([]int, n), make([]int, n), make([]int, n), make([]int, n)
	for i, n := range needs {
		ids[i], first[i], last[i], least[i], sizes[i], pieces[i] = n.CampaignID, n.Layer, n.Layer, n.least, n.size, n.pieces
		if n.Layer == 0 {
			first[i], last[i] = 1, shape.MaxLayers
		}
	}
	found, err := postgres.Collect(ctx, tx, func(row pgx.CollectableRow) (f foundRuns, err error) {
		err = row.Scan(&f.CampaignID, &f.Layer, &f.price, &f.short, &f.columns, &f.versions)
		return f, err
	}, `
		WITH RECURSIVE walk AS (
			SELECT campaign_id, first - 1 AS layer, last, least, size, pieces::bigint AS missing, 0::bigint AS price, 0::bigint AS short, '{}'::int[] AS cols, '{}'::int[] AS versions
			FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::int[], $6::int[]) AS n (campaign_id, first, last, least, size, pieces)
			UNION ALL
			SELECT w.campaign_id, next.layer, w.last, w.least, w.size, w.missing - r.pieces, r.price, r.short, r.cols, r.versions
			FROM walk w
			CROSS JOIN LATERAL (
				SELECT layer FROM positions
				WHERE campaign_id = w.campaign_id AND layer > w.layer AND layer <= w.last AND state = 'available'
				ORDER BY layer, rank LIMIT 1) next
			CROSS JOIN LATERAL (
				SELECT min(price) AS price, count(*) FILTER (WHERE place % w.size = 0) AS pieces, coalesce(max(length) FILTER (WHERE length < w.least), 0) AS short,
				       coalesce(array_agg(col ORDER BY col) FILTER (WHERE length >= w.least), '{}') AS cols,
				       coalesce(array_agg(version ORDER BY col) FILTER (WHERE length >= w.least), '{}') AS versions
				FROM (SELECT *, row_number() OVER run AS place, count(*) OVER (run ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS length
				      FROM (SELECT f.*, col - row_number() OVER (ORDER BY col) AS island, width_bucket(col - 1, l.aisles) AS block
				            FROM layers l
				            CROSS JOIN LATERAL (
				            	SELECT col, version, price FROM positions
				            	WHERE campaign_id = l.campaign_id AND layer = l.layer AND state = 'available' ORDER BY rank OFFSET 0) f
				            WHERE l.campaign_id = w.campaign_id AND l.layer = next.layer) i
				      WINDOW run AS (PARTITION BY block, island ORDER BY col)) p) r
			WHERE w.missing > 0)
		SELECT campaign_id, layer, price, short, cols, versions FROM walk WHERE price > 0`,
		ids, first, last, least, sizes, pieces)
	return found, fault.At(err, "inventory.findRuns")
}
