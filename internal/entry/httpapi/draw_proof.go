package httpapi

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/platform/callerlimit"
	"triprize/internal/platform/failpoint"
	"triprize/internal/service/proof"
)

// forever lets everybody keep an answer that never changes.
const forever = "public, max-age=31536000, immutable"

// proofs sends proof documents: a few at a time, each as slowly as its reader reads it,
// within a time.
type proofs struct {
	service *proof.Service
	open    *callerlimit.Limit
	lane    *callerlimit.Limit // of these, for strangers: they leave places to who has a key
	ended   *prometheus.CounterVec
}

func newProofs(service *proof.Service, most int, registry prometheus.Registerer) *proofs {
	p := &proofs{service: service, open: callerlimit.New("proofs", most), lane: callerlimit.New("proofs without a key", max(1, most/2)),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_proofs_total",
			Help: "Proof documents by outcome: sent, cut (the reader was gone or too slow), failed (Postgres), or false-list: the sold list is not the frozen one."}, []string{"outcome"})}
	registry.MustRegister(p.ended)
	return p
}

// enter takes a place for a caller.
func (p *proofs) enter(who caller, most int) (release func(), err error) {
	place, err := p.open.Acquire(who.client, most)
	if err != nil || who.role != stranger {
		return place, err
	}
	leave, err := p.lane.Acquire(who.client, most)
	if err != nil {
		place()
		return nil, err
	}
	return func() { leave(); place() }, nil
}

// GetDrawProof streams the proof document of a campaign, or answers with 304.
func (s handlers) GetDrawProof(ctx context.Context, r operations.GetDrawProofRequestObject) (operations.GetDrawProofResponseObject, error) {
	who, err := callOf(ctx)
	if err != nil {
		return nil, err
	}
	document, err := s.proofs.service.Document(ctx, r.Campaign)
	if err != nil {
		return nil, s.toldTo(ctx, who.caller, r.Campaign, err)
	}
	answer := proofAnswer{server: s.Server, document: document}
	answer.tagged = taggedAnswer{tag: `"` + document.Tag + `"`}.matched(r.Params.IfNoneMatch)
	if answer.tagged.unchanged {
		return answer, nil
	}
	answer.release, err = s.proofs.enter(who.caller, s.settings.Proofs.MaxPerCaller)
	return answer, err
}

// proofAnswer is a proof document that is about to be sent.
type proofAnswer struct {
	server   *Server
	document *proof.Document
	tagged   taggedAnswer
	release  func() // nil: not modified
}

// VisitGetDrawProofResponse implements operations.GetDrawProofResponseObject. The body comes
// through a pipe: when it cannot be finished, the reader gets an error and the connection
// is cut, so nobody takes a part for the whole.
func (a proofAnswer) VisitGetDrawProofResponse(c *fiber.Ctx) error {
	zipped := strings.Contains(c.Get(fiber.HeaderAcceptEncoding), "gzip") && c.AcceptsEncodings("gzip") != ""
	tag := a.tagged.tag
	if zipped {
		tag = "W/" + tag // compressors differ
	}
	c.Set(fiber.HeaderETag, tag)
	c.Set(fiber.HeaderCacheControl, forever)
	c.Vary(fiber.HeaderAcceptEncoding)
	if a.tagged.unchanged {
		return c.SendStatus(http.StatusNotModified)
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	if zipped {
		c.Set(fiber.HeaderContentEncoding, "gzip")
	}
	if c.Method() == http.MethodHead {
		a.release()
		c.Response().Header.SetContentLength(-1) // unknown
		return nil
	}
	reader, writer := io.Pipe()
	go a.write(writer, zipped)
	c.Context().SetBodyStream(reader, -1)
	return nil
}

// write writes the document into the pipe. The server closes the pipe when the connection
// is gone, and waits at shutdown until every place is given back.
func (a proofAnswer) write(w *io.PipeWriter, zipped bool) {
	defer a.release()
	ctx, cancel := context.WithTimeout(a.server.sending, a.server.settings.Proofs.Timeout)
	defer cancel()
	failpoint.Hit("httpapi.proof", nil)
	stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
	defer stop()
	err := a.writeTo(ctx, w, zipped)
	_ = w.CloseWithError(err) // nil: the end
	outcome := "sent"
	switch {
	case err == nil:
	case errors.Is(err, proof.ErrNotFrozenList):
		outcome = "false-list"
		a.server.logger.Error("a proof was cut off: the sold list is not the one that was frozen", "error", err)
	case errors.Is(err, io.ErrClosedPipe), ctx.Err() != nil:
		outcome = "cut"
	default:
		outcome = "failed"
		a.server.logger.Warn("a proof was cut off", "error", err)
	}
	a.server.proofs.ended.WithLabelValues(outcome).Inc()
}

func (a proofAnswer) writeTo(ctx context.Context, w io.Writer, zipped bool) error {
	if !zipped {
		return a.document.Write(ctx, w)
	}
	archive, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := a.document.Write(ctx, archive); err != nil {
		return err
	}
	return archive.Close()
}

// GetPurchaseProof answers with the leaves of a purchase that the caller may see.
func (s handlers) GetPurchaseProof(ctx context.Context, r operations.GetPurchaseProofRequestObject) (operations.GetPurchaseProofResponseObject, error) {
	p, err := s.visiblePurchase(ctx, r.Purchase)
	if err != nil {
		return nil, err
	}
	found, err := s.proofs.service.Purchase(ctx, p)
	if err != nil {
		return nil, err
	}
	body, err := found.Canonical()
	return purchaseProofAnswer(body), err
}

// purchaseProofAnswer is a proof of purchase, canonical JSON.
type purchaseProofAnswer []byte

// VisitGetPurchaseProofResponse implements operations.GetPurchaseProofResponseObject.
func (a purchaseProofAnswer) VisitGetPurchaseProofResponse(c *fiber.Ctx) error {
	c.Set(fiber.HeaderCacheControl, "private, no-cache")
	return sendJSON(c, http.StatusOK, false, a)
}
