package httpapi

import (
	"context"
	"io"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/platform/callerlimit"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/telemetry"
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
	telemetry.Expect(e.ended, "sent", "cut", "failed")
	return e
}

// purchaseListAnswer is one page of a campaign's purchases, as JSON.
type purchaseListAnswer struct{ contract.PurchaseList }

// Send implements operations.Answer.
func (a purchaseListAnswer) Send(c *fiber.Ctx) error {
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
func (s *Server) exportPurchases(who call.Caller, f purchase.Filter) (operations.Answer, error) {
	release, err := s.exports.open.Acquire(who.Client, exportsOfClient)
	return exportAnswer{server: s, filter: f, release: release}, err
}

// Send implements operations.Answer.
func (a exportAnswer) Send(c *fiber.Ctx) error {
	c.Vary(fiber.HeaderAccept)
	c.Set(fiber.HeaderContentType, mimeCSV+"; charset=utf-8; header=present")
	c.Set(fiber.HeaderContentDisposition, `attachment; filename="purchases-`+a.filter.CampaignID.String()+`.csv"`)
	return response.Pipe{Sending: a.server.sending, Timeout: slowestDocument, Release: a.release, Write: a.writeTo,
		Ended: func(outcome string, err error) {
			if outcome == "failed" {
				a.server.logger.Warn("an export was cut off", "error", err)
			}
			a.server.exports.ended.WithLabelValues(outcome).Inc()
		}}.Send(c)
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
		documents, err := a.server.purchaseDocuments(ctx, call.Caller{Role: resource.Operator}, list, false)
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
