package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/positions"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/readcache"
	"triprize/internal/store/inventory"
)

// positionsCache keeps copies of boards (the positions of a campaign): one read per
// campaign and second, however many clients poll, and one more for each version that
// somebody knows of.
type positionsCache struct {
	boards    *readcache.Cache[uuid.UUID, *positions.Board]
	changedAt func(uuid.UUID) time.Time // when it was last learned here that a campaign has changed
}

const (
	positionsAge   = time.Second
	positionsBytes = 128 << 20 // of all copies; the largest board needs about half
)

func newPositionsCache(db postgres.DB, timeout time.Duration, changedAt func(uuid.UUID) time.Time) *positionsCache {
	read := func(ctx context.Context, id uuid.UUID) (*positions.Board, error) {
		all, err := inventory.All(ctx, db, id)
		if err != nil {
			return nil, err
		}
		return positions.New(all, false)
	}
	bounds := crowdReads(positionsAge, timeout)
	bounds.MaxBytes = positionsBytes
	return &positionsCache{boards: readcache.New(bounds, read, (*positions.Board).Bytes), changedAt: changedAt}
}

// get returns a board that is a second old at most, and not from before a stream of this
// process knew of its last change. It is as new as version, unless the campaign has not
// reached that.
func (p *positionsCache) get(ctx context.Context, id uuid.UUID, version int64) (*positions.Board, error) {
	found, err := p.boards.Get(ctx, id, func(known readcache.Copy[*positions.Board]) bool {
		return known.Value.Version >= version && known.ReadAt.After(p.changedAt(id))
	})
	return found.Value, err
}
