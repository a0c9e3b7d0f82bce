package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/readcache"
	"triprize/internal/service/proof"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
)

// RequestDraw accepts a draw as a job. A sold-out campaign is drawn automatically;
// this is for operators who want to make sure. It is safe at any time.
func (s handlers) RequestDraw(ctx context.Context, r contract.RequestDrawRequestObject) (contract.RequestDrawResponseObject, error) {
	if err := s.known.require(ctx, r.Campaign); err != nil {
		return nil, err
	}
	return s.accept(ctx, job.Request{Kind: job.KindDraw, CampaignID: r.Campaign, Keep: s.settings.Retention.Jobs})
}

// GetDraw answers with what is public of the draw in its present state. Strangers get it as
// it was half a second ago at most.
func (s handlers) GetDraw(ctx context.Context, r contract.GetDrawRequestObject) (contract.GetDrawResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	if who.role != stranger {
		return readDraw(ctx, s.db, r.Campaign)
	}
	found, err := s.draws.Get(ctx, r.Campaign, func(known readcache.Copy[drawAnswer]) bool {
		return known.ReadAt.After(s.campaigns.ChangedAt(r.Campaign))
	})
	return found.Value, err
}

// toldTo returns the refusal that a caller gets: strangers learn nothing about drafts, not
// even that there are any.
func (s *Server) toldTo(ctx context.Context, who caller, id uuid.UUID, refusal error) error {
	if who.role != stranger || fault.CodeOf(refusal) != fault.StateConflict {
		return refusal
	}
	if _, published, err := campaign.CommitmentOf(ctx, s.db, id); err != nil || published {
		return errors.Join(err, refusal)
	}
	return noCampaign(id)
}

func noCampaign(id uuid.UUID) error { return fault.New(fault.NotFound, "there is no campaign %s", id) }

// drawAnswer is an encoded contract.Draw.
type drawAnswer []byte

// VisitGetDrawResponse implements contract.GetDrawResponseObject.
func (a drawAnswer) VisitGetDrawResponse(c *fiber.Ctx) error {
	return sendJSON(c, http.StatusOK, false, a)
}

// newDrawsCache returns a cache of what strangers read of draws.
func newDrawsCache(db postgres.DB, timeout time.Duration) *readcache.Cache[uuid.UUID, drawAnswer] {
	return readcache.New(crowdReads(campaignAge, timeout), func(ctx context.Context, id uuid.UUID) (drawAnswer, error) {
		now, err := proof.StateOf(ctx, db, id)
		if err == nil && now.Commitment == nil {
			err = noCampaign(id)
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(drawJSON(now)) //nolint:gosec // a secret that is in it is public
	}, func(a drawAnswer) int { return len(a) })
}

func readDraw(ctx context.Context, db postgres.DB, id uuid.UUID) (drawAnswer, error) {
	now, err := proof.StateOf(ctx, db, id)
	if err != nil {
		return nil, err
	}
	return json.Marshal(drawJSON(now)) //nolint:gosec // a secret that is in it is public
}

// drawJSON is what is public of a draw.
func drawJSON(now proof.State) contract.Draw {
	d := contract.Draw{State: contract.CampaignState(now.Campaign.State), Winners: []contract.Winner{}, Witnesses: []contract.Witness{},
		Round: roundJSON(now.Progress.Round), RoundDueAt: now.Progress.RoundDueAt}
	if now.Commitment != nil {
		d.Commitment, d.Trust, d.Rules = hexOf(now.Commitment), &now.Trust, now.Rules
	}
	if now.Freeze != nil {
		d.Root, d.Secret = hexOf(&now.Freeze.Root), hexOf(now.Freeze.Secret)
		d.Freeze = &contract.Freeze{Hash: now.Progress.FreezeHash.String(), Record: now.Progress.Record}
	}
	for _, w := range now.Witnesses {
		d.Witnesses = append(d.Witnesses, contract.Witness{Authority: w.Authority.String(), Time: w.GenTime})
	}
	if drawn := now.Draw; drawn != nil {
		d.Secret, d.Trust, d.ExecutedAt = hexOf(&drawn.Secret), &drawn.Trust, &drawn.ExecutedAt
		for _, w := range drawn.Winners {
			d.Winners = append(d.Winners, contract.Winner{Prize: w.Prize, Layer: w.Layer, Column: w.Column, PurchaseID: w.PurchaseID, Name: w.Name})
		}
	} else if wait := now.Progress.Wait; wait.Reason != "" {
		d.Waiting = &contract.DrawWait{Reason: wait.Reason, RetryAt: wait.RetryAt}
	}
	return d
}

func hexOf(h *fairdraw.Hash) *string {
	if h == nil {
		return nil
	}
	text := h.String()
	return &text
}

// roundJSON is the number of a round, which is far below 2^63.
func roundJSON(round *uint64) *int64 {
	if round == nil {
		return nil
	}
	number := int64(*round) //nolint:gosec // a round is at most 2^53
	return &number
}
