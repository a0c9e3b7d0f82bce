package httpapi

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/campaign"
	"triprize/internal/drawing"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/platform/failpoint"
	"triprize/internal/purchase"
)

func newProofs(registry prometheus.Registerer) documents {
	return newDocuments("proofs", mostProofs, registry, "triprize_proofs_total",
		"Proof and list documents by outcome: sent, cut (the reader was gone or too slow), failed (Postgres), or false-list: the stored list is not the frozen one.",
		"sent", "cut", "failed", "false-list")
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
	return csvSender(func(c *fiber.Ctx) error { return s.sendProof(c, document, tagged, release) }), err //nolint:contextcheck // it is sent after the request
}

const (
	mostProofs      = 64               // sent at once, per process; beyond it 503 overloaded. Callers without a key have half of them
	proofsOfClient  = 2                // of these; beyond it 429 rate-limited
	mostExports     = 4                // lists as CSV that are sent at once, per process
	exportsOfClient = 2                // of these
	proofsOfAddress = 1                // the same of one address without a key, if addresses have a rate (behind a proxy it is everybody's)
	slowestDocument = 10 * time.Minute // a proof, or a list as CSV, that is not read completely within this is cut off
)

// sendProof sends a proof or list document.
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
	found, err := s.facts.Of(ctx, s.db, r.Campaign)
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
	return csvSender(func(c *fiber.Ctx) error { // canonical JSON
		c.Set(fiber.HeaderCacheControl, "private, no-cache")
		return response.SendJSON(c, http.StatusOK, false, body)
	}), err
}
