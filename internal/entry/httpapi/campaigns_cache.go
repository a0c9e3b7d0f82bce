package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/readcache"
	"triprize/internal/service/lifecycle"
	"triprize/internal/store/campaign"
)

// campaignsCache keeps encoded campaigns, and first pages of the list, for everybody but
// operators, who see at once what they have changed at whatever process.
type campaignsCache struct {
	campaigns *readcache.Cache[campaignCopy, taggedAnswer]
	lists     *readcache.Cache[listCopy, taggedAnswer]
	changedAt func(uuid.UUID) time.Time // when it was last learned here that a campaign has changed
}

// campaignCopy and listCopy are what is kept a copy of. Apps have copies of their own: they
// see more than the public.
type (
	campaignCopy struct {
		id     uuid.UUID
		reader role
	}
	listCopy struct {
		campaign.Page
		reader role
	}
)

// readerOf returns the role whose copies a caller shares.
func readerOf(who role) role {
	if who == app {
		return app
	}
	return stranger
}

// crowdReads are the bounds of a cache for what crowds read.
func crowdReads(maxAge, timeout time.Duration) readcache.Settings {
	return readcache.Settings{MaxAge: maxAge, Pause: 100 * time.Millisecond, Timeout: timeout, MaxEntries: 10_000, MaxBytes: 64 << 20}
}

const campaignAge = 500 * time.Millisecond

func newCampaignsCache(db postgres.DB, timeout time.Duration, changedAt func(uuid.UUID) time.Time) *campaignsCache {
	size := func(a taggedAnswer) int { return len(a.body) }
	return &campaignsCache{
		changedAt: changedAt,
		campaigns: readcache.New(crowdReads(campaignAge, timeout), func(ctx context.Context, of campaignCopy) (taggedAnswer, error) {
			return readCampaign(ctx, db, of.id, of.reader)
		}, size),
		lists: readcache.New(crowdReads(campaignAge, timeout), func(ctx context.Context, of listCopy) (taggedAnswer, error) {
			return readCampaigns(ctx, db, of.Page, of.reader)
		}, size),
	}
}

// campaign returns a campaign as it was half a second ago at most, and not before a
// stream of this process knew of its last change.
func (c *campaignsCache) campaign(ctx context.Context, id uuid.UUID, who role) (taggedAnswer, error) {
	found, err := c.campaigns.Get(ctx, campaignCopy{id, readerOf(who)}, func(known readcache.Copy[taggedAnswer]) bool { return known.ReadAt.After(c.changedAt(id)) })
	return found.Value, err
}

// list returns the first page of a list as it was half a second ago at most.
func (c *campaignsCache) list(ctx context.Context, page campaign.Page, who role) (taggedAnswer, error) {
	found, err := c.lists.Get(ctx, listCopy{page, readerOf(who)}, nil)
	return found.Value, err
}

// forget is called when a command of this process has changed a campaign.
func (c *campaignsCache) forget(id uuid.UUID) {
	c.campaigns.Forget(campaignCopy{id, app})
	c.campaigns.Forget(campaignCopy{id, stranger})
	c.lists.Clear()
}

func readCampaign(ctx context.Context, db postgres.DB, id uuid.UUID, who role) (taggedAnswer, error) {
	found, err := lifecycle.Get(ctx, db, id)
	if err != nil {
		return taggedAnswer{}, err
	}
	return tagged(resource.Campaign(found, who), nil)
}

func readCampaigns(ctx context.Context, db postgres.DB, page campaign.Page, who role) (taggedAnswer, error) {
	list, err := campaign.List(ctx, db, page)
	if err != nil {
		return taggedAnswer{}, err
	}
	answer := contract.CampaignPage{Campaigns: make([]contract.CampaignSummary, len(list))}
	for i, one := range list {
		answer.Campaigns[i] = resource.CampaignSummary(one, who)
	}
	answer.NextCursor = nextCursor(len(list), page.Limit, func() uuid.UUID { return list[len(list)-1].ID })
	return tagged(answer, nil)
}
