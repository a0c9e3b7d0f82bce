package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/platform/callerlimit"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/purchase"
)

const (
	mimeCSV = "text/csv"
	// exportPage is how many purchases an export reads at a time, and keeps in memory.
	exportPage = 200
)

// exports sends whole lists as CSV: a few at a time, each as slowly as its reader reads it,
// within a time.
type exports struct {
	open  *callerlimit.Limit
	ended *prometheus.CounterVec
}

func newExports(most int, registry prometheus.Registerer) *exports {
	e := &exports{open: callerlimit.New("exports", most), ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_exports_total",
		Help: "Lists as CSV by outcome: sent, cut (the reader was gone or too slow), failed (Postgres)."}, []string{"outcome"})}
	registry.MustRegister(e.ended)
	return e
}

// purchaseListAnswer is one page of a campaign's purchases, as JSON.
type purchaseListAnswer struct{ contract.PurchaseList }

// VisitListCampaignPurchasesResponse implements operations.ListCampaignPurchasesResponseObject.
func (a purchaseListAnswer) VisitListCampaignPurchasesResponse(c *fiber.Ctx) error {
	c.Vary(fiber.HeaderAccept)
	return c.JSON(a.PurchaseList)
}

// exportAnswer is a list that is about to be sent as CSV.
type exportAnswer struct {
	server  *Server
	filter  purchase.Filter
	release func()
}

// exportPurchases takes a place for an export of purchases.
func (s *Server) exportPurchases(who caller, f purchase.Filter) (operations.ListCampaignPurchasesResponseObject, error) {
	release, err := s.exports.open.Acquire(who.client, s.settings.Exports.MaxPerCaller)
	return exportAnswer{server: s, filter: f, release: release}, err
}

// VisitListCampaignPurchasesResponse implements operations.ListCampaignPurchasesResponseObject.
// The body comes through a pipe: when it cannot be finished, the connection is cut, so nobody
// takes a part for the whole.
func (a exportAnswer) VisitListCampaignPurchasesResponse(c *fiber.Ctx) error {
	c.Vary(fiber.HeaderAccept)
	c.Set(fiber.HeaderContentType, mimeCSV+"; charset=utf-8; header=present")
	c.Set(fiber.HeaderContentDisposition, `attachment; filename="purchases-`+a.filter.CampaignID.String()+`.csv"`)
	if c.Method() == http.MethodHead {
		a.release()
		c.Response().Header.SetContentLength(-1) // unknown
		return nil
	}
	reader, writer := io.Pipe()
	go a.write(writer)
	c.Context().SetBodyStream(reader, -1)
	return nil
}

// write writes the list into the pipe. The server closes the pipe when the connection is
// gone, and waits at shutdown until every place is given back.
func (a exportAnswer) write(w *io.PipeWriter) {
	defer a.release()
	ctx, cancel := context.WithTimeout(a.server.sending, a.server.settings.Exports.Timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
	defer stop()
	err := a.writeTo(ctx, w)
	_ = w.CloseWithError(err) // nil: the end
	outcome := "sent"
	switch {
	case err == nil:
	case errors.Is(err, io.ErrClosedPipe), ctx.Err() != nil:
		outcome = "cut"
	default:
		outcome = "failed"
		a.server.logger.Warn("an export was cut off", "error", err)
	}
	a.server.exports.ended.WithLabelValues(outcome).Inc()
}

// writeTo writes page after page.
func (a exportAnswer) writeTo(ctx context.Context, w io.Writer) error {
	table := newPurchaseTable(w)
	if err := table.header(); err != nil {
		return err
	}
	page := postgres.ListPage{Limit: exportPage}
	for {
		failpoint.Hit("httpapi.export", func() []string { return []string{page.Before.String()} })
		list, next, err := purchase.List(ctx, a.server.db, a.filter, page)
		if err != nil {
			return err
		}
		documents, err := a.server.purchaseDocuments(ctx, caller{role: operator}, list)
		if err != nil {
			return err
		}
		if err := table.add(documents); err != nil {
			return err
		}
		if page.Before = next; next == uuid.Nil {
			return nil
		}
	}
}
