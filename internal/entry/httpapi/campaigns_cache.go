package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/readcache"
	"triprize/internal/service/lifecycle"
	"triprize/internal/store/campaign"
)

// campaignsCache keeps encoded campaigns, and first pages of the list, for everybody but
// operators, who see at once what they have changed at any process.
type campaignsCache struct {
	db        postgres.DB
	campaigns *readcache.Cache[campaignCopy, response.Tagged]
	lists     *readcache.Cache[listCopy, response.Tagged]
	changedAt func(uuid.UUID) time.Time // when it was last learned here that a campaign has changed
}

// campaignCopy and listCopy are what is kept a copy of. Apps have copies of their own: they
// see more than the public.
type (
	campaignCopy struct {
		id     uuid.UUID
		reader resource.Role
	}
	listCopy struct {
		campaign.Page
		reader resource.Role
	}
)

// readerOf returns the role whose copies a caller shares.
func readerOf(who resource.Role) resource.Role {
	if who == resource.App {
		return resource.App
	}
	return resource.Anonymous
}

// crowdReads are the bounds of a cache for what crowds read.
func crowdReads(maxAge, timeout time.Duration) readcache.Settings {
	return readcache.Settings{MaxAge: maxAge, Pause: 100 * time.Millisecond, Timeout: timeout, MaxEntries: 10_000, MaxBytes: 64 << 20}
}

const campaignAge = 500 * time.Millisecond

func newCampaignsCache(db postgres.DB, timeout time.Duration, changedAt func(uuid.UUID) time.Time) *campaignsCache {
	size := func(a response.Tagged) int { return len(a.Body) }
	return &campaignsCache{
		db: db, changedAt: changedAt,
		campaigns: readcache.New(crowdReads(campaignAge, timeout), func(ctx context.Context, of campaignCopy) (response.Tagged, error) {
			return readCampaign(ctx, db, of.id, of.reader)
		}, size),
		lists: readcache.New(crowdReads(campaignAge, timeout), func(ctx context.Context, of listCopy) (response.Tagged, error) {
			return readCampaigns(ctx, db, of.Page, of.reader)
		}, size),
	}
}

// campaign returns a campaign as it was half a second ago at most, and not before a
// stream of this process knew of its last change.
func (c *campaignsCache) campaign(ctx context.Context, id uuid.UUID, who resource.Role) (response.Tagged, error) {
	if who == resource.Operator {
		return readCampaign(ctx, c.db, id, who)
	}
	found, err := c.campaigns.Get(ctx, campaignCopy{id, readerOf(who)}, func(known readcache.Copy[response.Tagged]) bool { return known.ReadAt.After(c.changedAt(id)) })
	return found.Value, err
}

// list returns a page of a list. The first one, which crowds read, is as it was half a
// second ago at most.
func (c *campaignsCache) list(ctx context.Context, page campaign.Page, who resource.Role) (response.Tagged, error) {
	if who == resource.Operator || page.After != uuid.Nil {
		return readCampaigns(ctx, c.db, page, who)
	}
	found, err := c.lists.Get(ctx, listCopy{page, readerOf(who)}, nil)
	return found.Value, err
}

// forget is called when a command of this process has changed a campaign.
func (c *campaignsCache) forget(id uuid.UUID) {
	c.campaigns.Forget(campaignCopy{id, resource.App})
	c.campaigns.Forget(campaignCopy{id, resource.Anonymous})
	c.lists.Clear()
}

func readCampaign(ctx context.Context, db postgres.DB, id uuid.UUID, who resource.Role) (response.Tagged, error) {
	found, err := lifecycle.Get(ctx, db, id)
	if err != nil {
		return response.Tagged{}, err
	}
	return response.Tag(resource.Campaign(found, who))
}

func readCampaigns(ctx context.Context, db postgres.DB, page campaign.Page, who resource.Role) (response.Tagged, error) {
	list, err := campaign.List(ctx, db, page)
	if err != nil {
		return response.Tagged{}, err
	}
	answer := contract.CampaignPage{Campaigns: response.Documents(list, func(one campaign.Campaign) contract.CampaignSummary { return resource.CampaignSummary(one, who) })}
	answer.NextCursor = response.NextCursor(list, page.Limit, func(last campaign.Campaign) uuid.UUID { return last.ID })
	return response.Tag(answer)
}
