package httpapi

import (
	"bufio"
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

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/drawing"
	"triprize/internal/drawing/progress"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/readcache"
	"triprize/internal/platform/stream"
	"triprize/internal/purchase"
)

// RequestDraw accepts a draw as a job. A sold-out campaign is drawn automatically;
// this is for operators who want to make sure. It is safe at any time.
func (s *server) RequestDraw(ctx context.Context, r operations.RequestDrawRequestObject) (operations.Answer, error) {
	if err := s.requireCampaign(ctx, r.Campaign); err != nil {
		return nil, err
	}
	return s.accept(ctx, job.Request{Kind: job.KindDraw, CampaignID: r.Campaign, By: job.ByOperator, Keep: s.settings.Retention.Jobs})
}

// GetDraw answers with what is public of the draw in its present state. Anonymous callers get it as
// it was half a second ago at most.
func (s *server) GetDraw(ctx context.Context, r operations.GetDrawRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	if who.Role != resource.Anonymous {
		return readDraw(ctx, s.db, r.Campaign, who.Caller)
	}
	return s.publicDraw(ctx, r.Campaign)
}

// refusalTo returns the refusal that a caller gets: anonymous callers learn nothing about drafts, not
// even that there are any.
func (s *server) refusalTo(ctx context.Context, who call.Caller, id uuid.UUID, refusal error) error {
	if who.Role != resource.Anonymous || fault.CodeOf(refusal) != fault.StateConflict {
		return refusal
	}
	if _, published, err := campaign.CommitmentOf(ctx, s.db, id); err != nil || published {
		return errors.Join(err, refusal)
	}
	return campaign.NotFound(id)
}

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

// readPublicDraw reads what anonymous callers see of a draw.
func readPublicDraw(ctx context.Context, db postgres.DB, id uuid.UUID) (drawAnswer, error) {
	now, err := drawing.ProofStateOf(ctx, db, id)
	if err == nil && now.Commitment == nil {
		err = campaign.NotFound(id)
	}
	if err != nil {
		return drawAnswer{}, err
	}
	return newDrawAnswer(resource.Draw(now))
}

// readDraw reads a draw with those winners whom the caller may see.
func readDraw(ctx context.Context, db postgres.DB, id uuid.UUID, who call.Caller) (drawAnswer, error) {
	now, err := drawing.ProofStateOf(ctx, db, id)
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

func (s *server) SubmitDrawRound(ctx context.Context, r operations.SubmitDrawRoundRequestObject) (operations.Answer, error) {
	signature, err := hex.DecodeString(r.Body.Signature)
	if err != nil {
		return nil, err // not possible: the contract was checked
	}
	round, err := drawing.SubmitRound(ctx, s.db, r.Campaign, signature)
	if err != nil {
		return nil, err
	}
	return operations.SubmitDrawRound200(contract.DrawRound{Round: int64(round.Number), Signature: r.Body.Signature, //nolint:gosec // a round is at most 2^53
		Randomness: hex.EncodeToString(round.Randomness[:])}, nil)
}

// publicDraw returns what anonymous callers read of a draw. It is as old as campaignAge at
// most, and no older than the last change of the campaign that was noticed.
func (s *server) publicDraw(ctx context.Context, id uuid.UUID) (drawAnswer, error) {
	found, err := s.draws.Get(ctx, id, func(known readcache.Copy[drawAnswer]) bool { return s.isFresh(id, known.ReadAt) })
	return found.Value, err
}

// StreamDraw follows what is public of a draw: at once, and whenever it changes.
func (s *server) StreamDraw(ctx context.Context, r operations.StreamDrawRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	seen := response.ValueOf(r.Params.LastEventID)
	now, err := s.publicDraw(ctx, r.Campaign)
	if err != nil {
		return nil, err
	}
	if now.isOver && now.tag == seen {
		return response.Stream{Over: true}, nil
	}
	release, err := s.streams.enter(who.Caller, s.mostStreams(who.Caller))
	if err != nil {
		return nil, err
	}
	changes := s.changes.Subscribe(r.Campaign, "")
	return response.Stream{Call: who, Draining: s.draining, Stop: func() { changes.Stop(); release() }, Run: func(ctx context.Context, w *bufio.Writer) {
		events := make(chan stream.Event)
		passing, stop := context.WithCancel(context.WithoutCancel(ctx)) // Relay says why it ends
		go func() {
			defer close(events)
			s.followDraw(passing, r.Campaign, seen, changes.Progress(), events)
		}()
		_ = stream.Relay(ctx, w, s.settings.Streams, events, func(e stream.Event) stream.Event { return e }) // the client is gone
		stop()
		for range events { // lets it end
		}
	}}, nil
}

// followDraw passes on the draw whenever it differs from what the client has, by its tag, until it is over
// or ctx ends. A sale changes a campaign all the time, and its draw hardly ever: that is
// read only when it can have changed. One that cannot be read is read again.
func (s *server) followDraw(ctx context.Context, id uuid.UUID, seen string, changes <-chan progress.Progress, out chan<- stream.Event) {
	known := ""
	var again <-chan time.Time
	for {
		select {
		case now := <-changes:
			version := now.DrawVersion()
			if version == known {
				continue
			}
			known = version
		case <-again:
		case <-ctx.Done():
			return
		}
		reading, cancel := context.WithTimeout(ctx, s.settings.API.RequestTimeout)
		draw, err := s.publicDraw(reading, id)
		if cancel(); err != nil {
			again = time.After(s.settings.Streams.Interval)
			continue
		}
		again = nil
		if draw.tag != seen {
			seen = draw.tag
			select {
			case out <- stream.Event{ID: draw.tag, Name: "draw", Data: draw.body, Last: draw.isOver}:
			case <-ctx.Done():
				return
			}
		}
		if draw.isOver {
			return
		}
	}
}
