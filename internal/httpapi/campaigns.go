package httpapi

import (
	"context"
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/apikey"
	"triprize/internal/campaign"
	"triprize/internal/fault"
	"triprize/internal/job"
	"triprize/internal/launch"
	"triprize/internal/postgres"
)

// The kinds of the commands below, as their jobs are recorded.
const (
	kindCreate  job.Kind = "campaign-create"
	kindPublish job.Kind = "campaign-publish"
	kindPause   job.Kind = "campaign-pause"
	kindResume  job.Kind = "campaign-resume"
)

func (s *Server) bounds() campaign.Bounds {
	return campaign.Bounds{MaxBaseLength: s.settings.Campaigns.MaxBaseLength, MinPrice: s.settings.Campaigns.MinPrice}
}

func (s *Server) createCampaign(c *fiber.Ctx, who apikey.Key) error {
	var body campaignRequest
	canonical, err := decodeBody(c, &body)
	if err != nil {
		return err
	}
	draft := body.onto(campaign.Draft{Policies: defaultPolicies})
	if err := checkDraft(draft, s.bounds()); err != nil {
		return err
	}
	id := job.NewID()
	return s.command(c, who, kindCreate, id, canonical, func(tx pgx.Tx) (int, any, error) {
		ctx, cancel := s.context()
		defer cancel()
		if err := campaign.Create(ctx, tx, id, draft); err != nil {
			return 0, nil, err
		}
		document, err := loadCampaign(ctx, tx, id)
		return http.StatusCreated, document, err
	})
}

// patchCampaign changes what the campaign's state allows: everything while it
// is pending; while it is active the name, a higher limit and a later end;
// afterwards the name.
func (s *Server) patchCampaign(c *fiber.Ctx, _ apikey.Key) error {
	id, err := pathID(c, "campaign")
	if err != nil {
		return err
	}
	var body campaignRequest
	if _, err := decodeBody(c, &body); err != nil {
		return err
	}
	ctx, cancel := s.context()
	defer cancel()
	var document campaignDocument
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if err := campaign.Lock(ctx, tx, id); err != nil {
			return err
		}
		now, err := campaign.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := s.patch(ctx, tx, now, body); err != nil {
			return err
		}
		document, err = loadCampaign(ctx, tx, id)
		return err
	})
	if err != nil {
		return err
	}
	return c.JSON(document)
}

func (s *Server) patch(ctx context.Context, tx pgx.Tx, now campaign.Campaign, body campaignRequest) error {
	if now.State == campaign.Pending {
		layers, err := campaign.Layers(ctx, tx, now.ID)
		if err != nil {
			return err
		}
		draft := body.onto(campaign.Draft{Name: now.Name, BaseLength: now.BaseLength, Currency: now.Currency, PurchaseLimit: now.PurchaseLimit,
			SaleStartsAt: now.SaleStartsAt, SaleEndsAt: now.SaleEndsAt, Policies: now.Policies, Layers: layers})
		if err := checkDraft(draft, s.bounds()); err != nil {
			return err
		}
		return campaign.Replace(ctx, tx, now.ID, draft)
	}
	if fixed := body.fixedFields(now.State); len(fixed) > 0 {
		return fault.New(fault.StateConflict, "the campaign is %s; these can no longer be changed: %v", now.State, fixed)
	}
	if body.Name.set {
		if faults := checkName(body.Name.value); faults != nil {
			return fault.Invalid(faults...)
		}
	}
	if now.State == campaign.Active {
		return campaign.Amend(ctx, tx, now.ID, campaign.Amendment{Name: body.Name.value, PurchaseLimit: body.PurchaseLimit.value, SaleEndsAt: body.SaleEndsAt.value})
	}
	if !body.Name.set {
		return nil
	}
	return campaign.Rename(ctx, tx, now.ID, *body.Name.value)
}

func (s *Server) publishCampaign(c *fiber.Ctx, who apikey.Key) error {
	return s.change(c, who, kindPublish, func(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
		return launch.Publish(ctx, tx, s.key, id)
	})
}

func (s *Server) pauseCampaign(c *fiber.Ctx, who apikey.Key) error {
	return s.change(c, who, kindPause, campaign.Pause)
}

func (s *Server) resumeCampaign(c *fiber.Ctx, who apikey.Key) error {
	return s.change(c, who, kindResume, campaign.Resume)
}

// change runs a command that moves a campaign and has no body of its own.
func (s *Server) change(c *fiber.Ctx, who apikey.Key, kind job.Kind, move func(context.Context, pgx.Tx, uuid.UUID) error) error {
	id, err := pathID(c, "campaign")
	if err != nil {
		return err
	}
	if len(c.Body()) > 0 {
		return fault.New(fault.InvalidRequest, "this request has no body")
	}
	return s.command(c, who, kind, id, nil, func(tx pgx.Tx) (int, any, error) {
		ctx, cancel := s.context()
		defer cancel()
		if err := campaign.Lock(ctx, tx, id); err != nil {
			return 0, nil, err
		}
		if err := move(ctx, tx, id); err != nil {
			return 0, nil, err
		}
		document, err := loadCampaign(ctx, tx, id)
		return http.StatusOK, document, err
	})
}

func (s *Server) getCampaign(c *fiber.Ctx, _ apikey.Key) error {
	id, err := pathID(c, "campaign")
	if err != nil {
		return err
	}
	ctx, cancel := s.context()
	defer cancel()
	document, err := loadCampaign(ctx, s.db, id)
	if err != nil {
		return err
	}
	return c.JSON(document)
}

func (s *Server) listCampaigns(c *fiber.Ctx, _ apikey.Key) error {
	after, limit, err := page(c)
	if err != nil {
		return err
	}
	state := campaign.State(c.Query("state"))
	if state != "" && !slices.Contains(campaign.States, state) {
		return fault.Invalid(fault.Field{Pointer: "?state", Detail: "must be pending, active, drawing, completed or cancelled"})
	}
	ctx, cancel := s.context()
	defer cancel()
	list, err := campaign.List(ctx, s.db, campaign.Page{State: state, After: after, Limit: limit})
	if err != nil {
		return err
	}
	documents := make([]campaignSummary, len(list))
	for i, one := range list {
		documents[i] = summaryJSON(one)
	}
	return c.JSON(fiber.Map{"campaigns": documents,
		"next_cursor": nextCursor(len(list), limit, func() uuid.UUID { return list[len(list)-1].ID })})
}
