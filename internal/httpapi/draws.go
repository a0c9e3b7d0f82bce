package httpapi

import (
	"encoding/hex"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/apikey"
	"triprize/internal/campaign"
	"triprize/internal/draw"
	"triprize/internal/fault"
	"triprize/internal/job"
)

// requestDraw accepts a draw as a job. A sold-out campaign is drawn without
// being asked; this is for operators who want to make sure, and safe at any time.
func (s *Server) requestDraw(c *fiber.Ctx, who apikey.Key) error {
	id, err := pathID(c, "campaign")
	if err != nil {
		return err
	}
	key, err := idempotencyKey(c)
	if err != nil {
		return err
	}
	if len(c.Body()) > 0 {
		return fault.New(fault.InvalidRequest, "this request has no body")
	}
	ctx, cancel := s.context()
	defer cancel()
	if err := s.known.require(ctx, id); err != nil {
		return err
	}
	return s.accept(c, job.Request{ID: job.NewID(), Client: who.Client, Key: key, Hash: fingerprint(c, nil),
		Kind: job.KindDraw, CampaignID: id, Keep: s.settings.Retention.Jobs})
}

// drawDocument is a draw as the contract shows it, from the commitment on.
type drawDocument struct {
	State      campaign.State `json:"state"` // of the campaign
	Trust      *string        `json:"trust"`
	Commitment *string        `json:"commitment"`
	Root       *string        `json:"root"`
	Secret     *string        `json:"secret"`
	Winners    []draw.Winner  `json:"winners"`
	ExecutedAt *string        `json:"executed_at"`
}

func (s *Server) getDraw(c *fiber.Ctx, _ apikey.Key) error {
	id, err := pathID(c, "campaign")
	if err != nil {
		return err
	}
	ctx, cancel := s.context()
	defer cancel()
	found, err := campaign.Get(ctx, s.db, id)
	if err != nil {
		return err
	}
	document := drawDocument{State: found.State, Winners: []draw.Winner{}}
	bound, published, err := campaign.CommitmentOf(ctx, s.db, id)
	if err != nil {
		return err
	}
	if published {
		commitment, trust := hex.EncodeToString(bound.Commitment), draw.TrustOperator
		document.Commitment, document.Trust = &commitment, &trust
	}
	if found.State == campaign.Drawing || found.State == campaign.Completed {
		frozen, err := campaign.FrozenRoot(ctx, s.db, id)
		if err != nil {
			return err
		}
		root := hex.EncodeToString(frozen[:])
		document.Root = &root
	}
	result, drawn, err := draw.Get(ctx, s.db, id)
	if err != nil {
		return err
	}
	if drawn {
		at := result.ExecutedAt.Format("2006-01-02T15:04:05.999999Z07:00")
		document.State, document.Secret, document.Winners, document.ExecutedAt = campaign.Completed, &result.Secret, result.Winners, &at
	}
	return c.JSON(document)
}
