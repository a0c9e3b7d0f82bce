package httpapi

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
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
	"triprize/internal/platform/failpoint"
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
	return s.accept(ctx, job.Request{Kind: job.KindDraw, CampaignID: r.Campaign, By: job.ByOperator, Retention: s.settings.Retention.Jobs})
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

// Send implements operations.Answer.
func (a drawAnswer) Send(c *fiber.Ctx) error {
	c.Vary(fiber.HeaderAuthorization) // who may see winners sees them
	c.Set(fiber.HeaderCacheControl, notStored)
	return response.SendJSON(c, http.StatusOK, false, a.body)
}

// readDraw reads a draw with those winners whom the caller may see. Anonymous callers learn nothing of drafts.
func readDraw(ctx context.Context, db postgres.DB, id uuid.UUID, who call.Caller) (drawAnswer, error) {
	now, err := drawing.ProofStateOf(ctx, db, id)
	if err == nil && now.Commitment == nil && who.Role == resource.Anonymous {
		err = campaign.NotFound(id)
	}
	if err != nil {
		return drawAnswer{}, err
	}
	document := resource.Draw(now)
	if who.Role != resource.Public && who.Role != resource.Anonymous {
		if err := addWinners(ctx, db, document.Winners, who); err != nil {
			return drawAnswer{}, err
		}
	}
	body, err := json.Marshal(document) //nolint:gosec // a secret that is in it is public
	sum := sha256.Sum256(body)
	return drawAnswer{body: body, tag: base64.RawURLEncoding.EncodeToString(sum[:9]),
		isOver: document.State == contract.CampaignStateCompleted || document.State == contract.CampaignStateCancelled}, err
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
	changes := s.changes.Subscribe(r.Campaign, "")
	return s.openStream(who, changes.Stop, func(ctx context.Context, w *bufio.Writer) {
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
	})
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

func (s *server) GetDrawProof(ctx context.Context, r operations.GetDrawProofRequestObject) (operations.Answer, error) {
	return s.sendDocument(ctx, r.Campaign, r.Params.IfNoneMatch, s.proof.Document)
}

func (s *server) GetDrawList(ctx context.Context, r operations.GetDrawListRequestObject) (operations.Answer, error) {
	return s.sendDocument(ctx, r.Campaign, r.Params.IfNoneMatch, s.proof.List)
}

func (s *server) sendDocument(ctx context.Context, id uuid.UUID, ifNoneMatch *string, open func(context.Context, uuid.UUID) (*drawing.Proof, error)) (operations.Answer, error) {
	who := call.Of(ctx)
	document, err := open(ctx, id)
	if err != nil {
		return nil, s.refusalTo(ctx, who.Caller, id, err)
	}
	tagged := response.Tagged{Tag: `"` + document.Tag + `"`}.Matched(ifNoneMatch)
	var release func()
	if !tagged.Unchanged {
		most := proofsOfClient
		if who.Role == resource.Anonymous && s.settings.Limits.AddressRate > 0 {
			most = proofsOfAddress
		}
		release, err = s.proofs.enter(who.Caller, most)
	}
	return sendFunc(func(c *fiber.Ctx) error { return s.sendProof(c, document, tagged, release) }), err //nolint:contextcheck // it is sent after the request
}

const (
	mostProofs      = 64               // sent at once, per process; beyond it 503 overloaded. Callers without a key have half of them
	proofsOfClient  = 2                // of these; beyond it 429 rate-limited
	proofsOfAddress = 1                // the same of one address without a key, if addresses have a rate (behind a proxy it is everybody's)
	slowestDocument = 10 * time.Minute // a proof or a list that is not read completely within this is cut off
)

func (s *server) sendProof(c *fiber.Ctx, document *drawing.Proof, tagged response.Tagged, release func()) error {
	zipped := strings.Contains(c.Get(fiber.HeaderAcceptEncoding), "gzip") && c.AcceptsEncodings("gzip") != ""
	tag := tagged.Tag
	if zipped {
		tag = "W/" + tag // compressors differ
	}
	c.Set(fiber.HeaderETag, tag)
	c.Set(fiber.HeaderCacheControl, response.Forever)
	c.Vary(fiber.HeaderAcceptEncoding)
	if tagged.Unchanged {
		return c.SendStatus(http.StatusNotModified)
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	if zipped {
		c.Set(fiber.HeaderContentEncoding, "gzip")
	}
	write := func(ctx context.Context, w io.Writer) error {
		failpoint.Hit("httpapi.proof", nil)
		if !zipped {
			return document.Write(ctx, w)
		}
		archive, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		if err := document.Write(ctx, archive); err != nil {
			return err
		}
		return archive.Close()
	}
	ended := func(outcome string, err error) {
		switch {
		case errors.Is(err, drawing.ErrNotFrozenList):
			outcome = "false-list"
			s.logger.Error("a proof or a list was cut off: the stored list is not the one that was frozen", "error", err)
		case outcome == "failed":
			s.logger.Warn("a proof or a list was cut off", "error", err)
		}
		s.proofs.ended.WithLabelValues(outcome).Inc()
	}
	return response.Pipe{Sending: s.sending, Timeout: slowestDocument, Release: release, Write: write, Ended: ended}.Send(c)
}

func (s *server) GetDrawLabels(ctx context.Context, r operations.GetDrawLabelsRequestObject) (operations.Answer, error) {
	found, err := s.terms.Of(ctx, s.db, r.Campaign)
	if err == nil && found.IsDraft { // an operator's, too: its labels may change
		err = campaign.NotFound(r.Campaign)
	}
	if err != nil {
		return nil, err
	}
	answer, err := response.Tag(resource.DrawLabels(r.Campaign, found.Shape))
	answer.KeepForever = true
	return answer.Matched(r.Params.IfNoneMatch), err
}

func (s *server) GetPurchaseProof(ctx context.Context, r operations.GetPurchaseProofRequestObject) (operations.Answer, error) {
	p, err := purchase.Get(ctx, s.db, call.Of(ctx).Grant(), r.Purchase)
	if err != nil {
		return nil, err
	}
	found, err := s.proof.Purchase(ctx, p)
	if err != nil {
		return nil, err
	}
	body, err := found.Canonical()
	return sendFunc(func(c *fiber.Ctx) error { // canonical JSON
		c.Set(fiber.HeaderCacheControl, "private, no-cache")
		return response.SendJSON(c, http.StatusOK, false, body)
	}), err
}
