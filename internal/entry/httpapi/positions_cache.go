package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2/expirable"
	"golang.org/x/sync/singleflight"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/inventory"
)

// positionsCache keeps copies of the positions of campaigns: one read per campaign
// and second, however many clients poll.
type positionsCache struct {
	db      postgres.DB
	timeout time.Duration // of one read
	copies  *lru.LRU[uuid.UUID, *positionsCopy]
	loading singleflight.Group
}

// positionsCopy is all positions of a campaign as they were less than a second ago.
type positionsCopy struct {
	positions []inventory.Position
	public    taggedAnswer // without owners
}

const (
	positionsAge    = time.Second
	positionsCopies = 256 // of about 100 kB each for the largest triangles by default
)

func newPositionsCache(db postgres.DB, timeout time.Duration) *positionsCache {
	return &positionsCache{db: db, timeout: timeout, copies: lru.NewLRU[uuid.UUID, *positionsCopy](positionsCopies, nil, positionsAge)}
}

// get returns a copy of a campaign's positions.
func (p *positionsCache) get(ctx context.Context, id uuid.UUID) (*positionsCopy, error) {
	if found, ok := p.copies.Get(id); ok {
		return found, nil
	}
	loaded, err, _ := p.loading.Do(id.String(), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.timeout) // other requests wait for this read too
		defer cancel()
		all, err := inventory.All(ctx, p.db, id)
		if err != nil {
			return nil, err
		}
		fresh := &positionsCopy{positions: all}
		if fresh.public, err = tagged(positionsJSON(all, caller{}), nil); err != nil {
			return nil, err
		}
		p.copies.Add(id, fresh)
		return fresh, nil
	})
	if err != nil {
		return nil, err
	}
	return loaded.(*positionsCopy), nil //nolint:forcetypeassert // it is what the function above returns
}
