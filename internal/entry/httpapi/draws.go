package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/readcache"
	"triprize/internal/service/draw"
	"triprize/internal/service/proof"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
)

// RequestDraw accepts a draw as a job. A sold-out campaign is drawn automatically;
// this is for operators who want to make sure. It is safe at any time.
func (s *Server) RequestDraw(ctx context.Context, r operations.RequestDrawRequestObject) (operations.Answer, error) {
	if err := s.requireCampaign(ctx, r.Campaign); err != nil {
		return nil, err
	}
	return s.accept(ctx, job.Request{Kind: job.KindDraw, CampaignID: r.Campaign, By: job.ByOperator, Keep: s.settings.Retention.Jobs})
}

// GetDraw answers with what is public of the draw in its present state. Anonymous callers get it as
// it was half a second ago at most.
func (s *Server) GetDraw(ctx context.Context, r operations.GetDrawRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if who.Role != resource.Anonymous {
		return readDraw(ctx, s.db, r.Campaign, who.Caller)
	}
	return s.publicDraw(ctx, r.Campaign)
}

// refusalTo returns the refusal that a caller gets: anonymous callers learn nothing about drafts, not
// even that there are any.
func (s *Server) refusalTo(ctx context.Context, who call.Caller, id uuid.UUID, refusal error) error {
	if who.Role != resource.Anonymous || fault.CodeOf(refusal) != fault.StateConflict {
		return refusal
	}
	if _, published, err := campaign.CommitmentOf(ctx, s.db, id); err != nil || published {
		return errors.Join(err, refusal)
	}
	return noCampaign(id)
}

func noCampaign(id uuid.UUID) error { return fault.New(fault.NotFound, "there is no campaign %s", id) }

// drawAnswer is an encoded contract.Draw.
type drawAnswer struct {
	body   []byte
	tag    string // identifies the body
	isOver bool   // nothing will change any more
}

func newDrawAnswer(d contract.Draw) (drawAnswer, error) {
	body, err := json.Marshal(d) //nolint:gosec // a secret that is in it is public
	sum := sha256.Sum256(body)
	return drawAnswer{body: body, tag: base64.RawURLEncoding.EncodeToString(sum[:9]),
		isOver: d.State == contract.CampaignStateCompleted || d.State == contract.CampaignStateCancelled}, err
}

// Send implements operations.Answer.
func (a drawAnswer) Send(c *fiber.Ctx) error {
	c.Vary(fiber.HeaderAuthorization) // who may see winners sees them
	c.Set(fiber.HeaderCacheControl, notStored)
	return response.SendJSON(c, http.StatusOK, false, a.body)
}

// newDrawsCache returns a cache of what anonymous callers read of draws.
func newDrawsCache(db postgres.DB, timeout time.Duration) *readcache.Cache[uuid.UUID, drawAnswer] {
	return readcache.New(crowdReads(campaignAge, timeout), func(ctx context.Context, id uuid.UUID) (drawAnswer, error) {
		now, err := proof.StateOf(ctx, db, id)
		if err == nil && now.Commitment == nil {
			err = noCampaign(id)
		}
		if err != nil {
			return drawAnswer{}, err
		}
		return newDrawAnswer(resource.Draw(now))
	}, func(a drawAnswer) int { return len(a.body) })
}

// readDraw reads a draw with those winners whom the caller may see.
func readDraw(ctx context.Context, db postgres.DB, id uuid.UUID, who call.Caller) (drawAnswer, error) {
	now, err := proof.StateOf(ctx, db, id)
	if err != nil {
		return drawAnswer{}, err
	}
	document := resource.Draw(now)
	if who.Role != resource.Viewer {
		if err := addWinners(ctx, db, document.Winners, who); err != nil {
			return drawAnswer{}, err
		}
	}
	return newDrawAnswer(document)
}

// addWinners says of winners who they are, as far as the caller may see it.
func addWinners(ctx context.Context, db postgres.DB, winners []contract.Winner, who call.Caller) error {
	var purchases []uuid.UUID
	for _, w := range winners {
		if w.PurchaseID != nil {
			purchases = append(purchases, *w.PurchaseID)
		}
	}
	owners, err := purchase.Owners(ctx, db, who.Grant(), purchases)
	if err != nil {
		return err
	}
	for i, w := range winners {
		if w.PurchaseID != nil {
			winners[i].UserID = owners[*w.PurchaseID]
		}
	}
	return nil
}

// SubmitDrawRound stores the round that a draw waits for. Anybody may bring it.
func (s *Server) SubmitDrawRound(ctx context.Context, r operations.SubmitDrawRoundRequestObject) (operations.Answer, error) {
	signature, err := hex.DecodeString(r.Body.Signature)
	if err != nil {
		return nil, err // not possible: the contract was checked
	}
	round, err := draw.SubmitRound(ctx, s.db, r.Campaign, signature)
	if err != nil {
		return nil, err
	}
	return operations.SubmitDrawRound200(contract.DrawRound{Round: int64(round.Number), Signature: r.Body.Signature, //nolint:gosec // a round is at most 2^53
		Randomness: hex.EncodeToString(round.Randomness[:])}, nil)
}
