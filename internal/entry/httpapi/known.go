package httpapi

import (
	"context"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
)

// knownCampaigns remembers which campaigns exist, so that a request for an unknown
// one is refused before a job is made of it. A campaign is never deleted, so an
// entry stays true.
type knownCampaigns struct {
	db      postgres.DB
	ids     *lru.Cache[uuid.UUID, struct{}]
	loading singleflight.Group
}

const campaignsKnown = 100_000

func newKnownCampaigns(db postgres.DB) *knownCampaigns {
	ids, _ := lru.New[uuid.UUID, struct{}](campaignsKnown) // fails only for a size of 0
	return &knownCampaigns{db: db, ids: ids}
}

// require returns a not-found Error when there is no such campaign.
func (k *knownCampaigns) require(ctx context.Context, id uuid.UUID) error {
	if k.ids.Contains(id) {
		return nil
	}
	_, err, _ := k.loading.Do(id.String(), func() (any, error) {
		_, err := campaign.Get(ctx, k.db, id)
		if err == nil {
			k.ids.Add(id, struct{}{})
		}
		return nil, err
	})
	return err
}
