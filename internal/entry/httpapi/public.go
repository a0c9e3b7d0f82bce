package httpapi

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/drawing"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/pages"
	"triprize/internal/inventory"
	"triprize/internal/lifecycle"
)

// pages is what the pages that anybody may read need.
func (s *server) pages() pages.Options {
	return pages.Options{
		Contract: s.contract.JSON, Read: s.readPublic, HasRate: s.settings.Limits.AddressRate > 0,
		List: func(ctx context.Context, most int) ([]campaign.Campaign, error) {
			list, err := campaign.Public(ctx, s.db, most)
			if err != nil {
				s.logger.Warn("the list of public campaigns cannot be read", "error", err)
			}
			return list, err
		},
		Charge: func(c *fiber.Ctx) error {
			ctx, cancel := s.contextOf(c)
			defer cancel()
			return s.slowDown(ctx, overLimit(c, s.limiter.Address(s.addressOf(c))))
		},
	}
}

// readPublic reads what everybody may see of a campaign that has a public page. All these reads together have the share
// of one caller without a key.
func (s *server) readPublic(ctx context.Context, id uuid.UUID) (shown pages.Snapshot, err error) {
	if _, starting := s.health.Starting(); starting {
		return shown, fault.New(fault.Unavailable, "this process is starting")
	}
	leave, err := s.shares.enterRequest(ctx, true, call.Caller{Role: resource.Anonymous, Client: "public pages"})
	if err != nil {
		return shown, err
	}
	defer leave()
	isPublic := func(c campaign.Campaign, err error) error {
		if err == nil && (c.PublicPage == campaign.PublicPageNone || c.PublishedAt == nil) {
			return campaign.NotFound(id)
		}
		return err
	}
	if err := isPublic(campaign.Get(ctx, s.db, id)); err != nil { // others cost no more than this
		return shown, err
	}
	drawn, err := drawing.ProofStateOf(ctx, s.db, id)
	if err != nil {
		return shown, err
	}
	found, err := lifecycle.Get(ctx, s.db, id) // after the state of the draw: what is final is not older
	if err := isPublic(found.Campaign, err); err != nil {
		return shown, err
	}
	shown = pages.NewSnapshot(resource.Campaign(found, resource.Anonymous), resource.Draw(drawn), time.Now())
	if !pages.HasSquares(shown.Campaign) {
		return shown, nil
	}
	all, err := inventory.All(ctx, s.db, id)
	for _, p := range all {
		shown.Add(string(p.State), p.Prize != nil)
	}
	return shown, err
}
