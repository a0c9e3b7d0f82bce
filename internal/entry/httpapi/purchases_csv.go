package httpapi

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
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

// sender is an answer that writes itself.
type sender func(c *fiber.Ctx) error

// Send implements operations.Answer.
func (s sender) Send(c *fiber.Ctx) error { return s(c) }

// documents are long: a few are sent at a time, each as slowly as its reader reads it, within a time.
type documents struct {
	places
	ended *prometheus.CounterVec
}

func newDocuments(what string, most int, registry prometheus.Registerer, metric, help string, outcomes ...string) documents {
	d := documents{newPlaces(what, most), prometheus.NewCounterVec(prometheus.CounterOpts{Name: metric, Help: help}, []string{"outcome"})}
	registry.MustRegister(d.ended)
	telemetry.Expect(d.ended, outcomes...)
	return d
}

func newExports(registry prometheus.Registerer) documents {
	return newDocuments("exports", mostExports, registry, "triprize_exports_total",
		"Lists as CSV by outcome: sent, cut (the reader was gone or too slow), failed (Postgres).", "sent", "cut", "failed")
}

// exportPurchases answers with a list of purchases as CSV.
func (s *Server) exportPurchases(who call.Caller, f purchase.Filter) (operations.Answer, error) {
	release, err := s.exports.enter(who, exportsOfClient)
	ended := func(outcome string, err error) {
		if outcome == "failed" {
			s.logger.Warn("an export was cut off", "error", err)
		}
		s.exports.ended.WithLabelValues(outcome).Inc()
	}
	return sender(func(c *fiber.Ctx) error {
		c.Vary(fiber.HeaderAccept)
		c.Set(fiber.HeaderContentType, mimeCSV+"; charset=utf-8; header=present")
		c.Set(fiber.HeaderContentDisposition, `attachment; filename="purchases-`+f.CampaignID.String()+`.csv"`)
		return response.Pipe{Sending: s.sending, Timeout: slowestDocument, Release: release, Ended: ended,
			Write: func(ctx context.Context, w io.Writer) error { return s.writeTable(ctx, w, f) }}.Send(c)
	}), err
}

// writeTable writes page after page.
func (s *Server) writeTable(ctx context.Context, w io.Writer, f purchase.Filter) error {
	table := newPurchaseTable(w)
	if err := table.header(); err != nil {
		return err
	}
	page := postgres.ListPage{Limit: exportPage}
	for {
		failpoint.Hit("httpapi.export", func() []string { return []string{page.Before.String()} })
		list, next, err := purchase.List(ctx, s.db, f, page)
		if err != nil {
			return err
		}
		documents, err := s.purchaseDocuments(ctx, call.Caller{Role: resource.Operator}, list, false)
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

// purchaseTable writes purchases as CSV (RFC 4180), a line for each.
type purchaseTable struct{ lines *csv.Writer }

func newPurchaseTable(w io.Writer) purchaseTable {
	lines := csv.NewWriter(w)
	lines.UseCRLF = true
	return purchaseTable{lines}
}

// purchaseColumns are the columns of the table. New ones come at the end.
var purchaseColumns = []struct {
	name  string
	value func(p *contract.Purchase) string
}{
	{"id", func(p *contract.Purchase) string { return p.ID.String() }},
	{"created_at", func(p *contract.Purchase) string { return cellTime(happened(p, contract.TimelineEntryEventCreated)) }},
	{"completed_at", func(p *contract.Purchase) string { return cellTime(happened(p, contract.TimelineEntryEventCompleted)) }},
	{"state", func(p *contract.Purchase) string { return string(p.State) }},
	{"user_id", func(p *contract.Purchase) string { return cellText(p.UserID) }},
	{"amount", func(p *contract.Purchase) string { return strconv.FormatInt(p.Amount, 10) }},
	{"currency", func(p *contract.Purchase) string { return p.Currency }},
	{"quantity", func(p *contract.Purchase) string { return strconv.Itoa(len(p.Positions)) }},
	{"positions", positionCells},
	{"payment_method", func(p *contract.Purchase) string { return string(p.Payment.Method) }},
	{"payment_reference", func(p *contract.Purchase) string { return cellText(response.ValueOf(p.Payment.Reference)) }},
	{"failure", func(p *contract.Purchase) string { return response.ValueOf(p.Failure) }},
	{"cancelled_at", func(p *contract.Purchase) string {
		return cellOf(p.Cancellation, func(c contract.Cancellation) string { return cellTime(&c.At) })
	}},
	{"cancel_reason", func(p *contract.Purchase) string {
		return cellOf(p.Cancellation, func(c contract.Cancellation) string { return cellText(response.ValueOf(c.Reason)) })
	}},
	{"refund_states", func(p *contract.Purchase) string {
		states := make([]string, len(p.Refunds))
		for i, r := range p.Refunds {
			states[i] = string(r.State)
		}
		return strings.Join(states, " ")
	}},
	{"amount_refunded", func(p *contract.Purchase) string { return strconv.FormatInt(p.AmountRefunded, 10) }},
	{"amount_disputed", func(p *contract.Purchase) string { return strconv.FormatInt(p.AmountDisputed, 10) }},
	{"job_id", func(p *contract.Purchase) string { return p.JobID.String() }},
	{"position_numbers", func(p *contract.Purchase) string {
		return joined(p, " ", func(at contract.PricedPosition) string { return strconv.Itoa(at.Number) })
	}},
	{"position_labels", func(p *contract.Purchase) string {
		return cellText(joined(p, "; ", func(at contract.PricedPosition) string { return at.Label }))
	}},
	{"metadata", metadataCell},
	{"partially_cancelled_amount", func(p *contract.Purchase) string {
		var amount int64
		for _, part := range p.PartialCancellations {
			amount += part.Amount
		}
		return strconv.FormatInt(amount, 10)
	}},
}

// positionCells writes the positions of a purchase so that no spreadsheet takes them for
// dates or numbers: L3C1 is column 1 of layer 3.
func positionCells(p *contract.Purchase) string {
	return joined(p, " ", func(at contract.PricedPosition) string { return fmt.Sprintf("L%dC%d", at.Layer, at.Column) })
}

// joined writes something of each position of a purchase.
func joined(p *contract.Purchase, separator string, of func(contract.PricedPosition) string) string {
	texts := make([]string, len(p.Positions))
	for i, at := range p.Positions {
		texts[i] = of(at)
	}
	return strings.Join(texts, separator)
}

// metadataCell writes the metadata of a purchase as a JSON object, which is no formula, and has
// none after a mark where a spreadsheet may split it; empty: none.
func metadataCell(p *contract.Purchase) string {
	if p.Metadata == nil || len(*p.Metadata) == 0 {
		return ""
	}
	text, _ := json.Marshal(*p.Metadata) // strings are always JSON
	return escapeFormulas(string(text), func(r rune) string { return fmt.Sprintf(`\u%04x`, r) })
}

// happened returns when a step of a purchase was, or nil.
func happened(p *contract.Purchase, event contract.TimelineEntryEvent) *time.Time {
	for i := range p.Timeline {
		if p.Timeline[i].Event == event {
			return &p.Timeline[i].At
		}
	}
	return nil
}

// cellOf writes something of a part of a purchase; empty: the purchase does not have it.
func cellOf[T any](part *T, write func(T) string) string {
	if part == nil {
		return ""
	}
	return write(*part)
}

func cellTime(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}

// unseen are signs that may stand in front of the first that is seen: spaces, controls, marks.
var unseen = []*unicode.RangeTable{unicode.Z, unicode.C, unicode.M, unicode.Other_Default_Ignorable_Code_Point}

// escapeFormulas escapes what a spreadsheet would take for the beginning of a formula, and carry
// out: at the beginning of a text, and after each mark where it may split the text into cells.
func escapeFormulas(text string, escape func(r rune) string) string {
	var out strings.Builder
	begins := true // a cell begins here
	for _, r := range text {
		if begins && strings.ContainsRune("=+-@\t\r\n|%'＝＋－＠﹦﹢﹣﹫", r) {
			out.WriteString(escape(r))
		} else {
			out.WriteRune(r)
		}
		begins = strings.ContainsRune(",;|\t\r\n", r) || begins && (r == '"' || unicode.In(r, unseen...))
	}
	return out.String()
}

// cellText writes a text of somebody else. What begins like a formula gets an apostrophe in
// front.
func cellText(text string) string {
	return escapeFormulas(text, func(r rune) string { return "'" + string(r) })
}

func (t purchaseTable) header() error {
	names := make([]string, len(purchaseColumns))
	for i, c := range purchaseColumns {
		names[i] = c.name
	}
	return t.write([][]string{names})
}

// add writes purchases, and passes them on.
func (t purchaseTable) add(purchases []contract.Purchase) error {
	rows := make([][]string, len(purchases))
	for i := range purchases {
		rows[i] = make([]string, len(purchaseColumns))
		for n, c := range purchaseColumns {
			rows[i][n] = c.value(&purchases[i])
		}
	}
	return t.write(rows)
}

func (t purchaseTable) write(rows [][]string) error {
	if err := t.lines.WriteAll(rows); err != nil { // it flushes
		return err
	}
	return t.lines.Error()
}
