package httpapi

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
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
	"triprize/internal/purchase"
)

const (
	mimeCSV = "text/csv"
	// exportPage is how many purchases an export reads at a time, and keeps in memory.
	exportPage = 200
)

// csvSender is an answer that writes itself.
type csvSender func(c *fiber.Ctx) error

// Send implements operations.Answer.
func (s csvSender) Send(c *fiber.Ctx) error { return s(c) }

// documents limits how many long documents are sent at a time; each is sent as slowly as its reader reads it,
// within a time.
type documents struct {
	slots
	ended *prometheus.CounterVec
}

func newDocuments(what string, limit int, registry prometheus.Registerer, metric, help string, outcomes ...string) documents {
	d := documents{newSlots(what, limit), prometheus.NewCounterVec(prometheus.CounterOpts{Name: metric, Help: help}, []string{"outcome"})}
	registry.MustRegister(d.ended)
	telemetry.Expect(d.ended, outcomes...)
	return d
}

func (s *server) exportPurchases(who call.Caller, f purchase.Filter) (operations.Answer, error) {
	release, err := s.exports.enter(who, exportsOfClient)
	ended := func(outcome string, err error) {
		if outcome == "failed" {
			s.logger.Warn("an export was cut off", "error", err)
		}
		s.exports.ended.WithLabelValues(outcome).Inc()
	}
	return csvSender(func(c *fiber.Ctx) error {
		c.Vary(fiber.HeaderAccept)
		c.Set(fiber.HeaderContentType, mimeCSV+"; charset=utf-8; header=present")
		c.Set(fiber.HeaderContentDisposition, `attachment; filename="purchases-`+f.CampaignID.String()+`.csv"`)
		return response.Pipe{Sending: s.sending, Timeout: slowestDocument, Release: release, Ended: ended,
			Write: func(ctx context.Context, w io.Writer) error { return s.writeTable(ctx, w, f) }}.Send(c)
	}), err
}

// writeTable writes purchases as CSV (RFC 4180), a line for each, page after page.
func (s *server) writeTable(ctx context.Context, w io.Writer, f purchase.Filter) error {
	lines := csv.NewWriter(w)
	lines.UseCRLF = true
	rows := [][]string{purchaseColumns}
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
		for i := range documents {
			rows = append(rows, rowOf(&documents[i]))
		}
		if err := lines.WriteAll(rows); err != nil { // it flushes
			return err
		}
		rows = rows[:0]
		if page.Before = next; next == uuid.Nil {
			return nil
		}
	}
}

// purchaseColumns are the columns of the table, and rowOf its rows. New ones come at the end.
var purchaseColumns = []string{"id", "created_at", "completed_at", "state", "user_id", "amount", "currency", "quantity", "positions", "payment_method", "payment_reference",
	"failure", "cancelled_at", "cancel_reason", "refund_states", "amount_refunded", "amount_disputed", "job_id", "position_numbers", "position_labels", "metadata",
	"partially_cancelled_amount"}

func rowOf(p *contract.Purchase) []string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	var positions, numbers, labels, refunds []string
	for _, at := range p.Positions { // no spreadsheet takes L3C1, column 1 of layer 3, for a date or a number
		positions, numbers, labels = append(positions, fmt.Sprintf("L%dC%d", at.Layer, at.Column)), append(numbers, strconv.Itoa(at.Number)), append(labels, at.Label)
	}
	for _, r := range p.Refunds {
		refunds = append(refunds, string(r.State))
	}
	var cancelledAt, cancelReason string
	if c := p.Cancellation; c != nil {
		cancelledAt, cancelReason = cellTime(c.At), cellText(response.ValueOf(c.Reason))
	}
	var partially int64
	for _, part := range p.PartialCancellations {
		partially += part.Amount
	}
	return []string{p.ID.String(), happened(p, contract.TimelineEntryEventCreated), happened(p, contract.TimelineEntryEventCompleted), string(p.State), cellText(p.UserID),
		number(p.Amount), p.Currency, strconv.Itoa(len(p.Positions)), strings.Join(positions, " "), string(p.Payment.Method), cellText(response.ValueOf(p.Payment.Reference)),
		response.ValueOf(p.Failure), cancelledAt, cancelReason, strings.Join(refunds, " "), number(p.AmountRefunded), number(p.AmountDisputed), p.ID.String(),
		strings.Join(numbers, " "), cellText(strings.Join(labels, "; ")), metadataCell(p), number(partially)}
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

// happened writes when a step of a purchase was; empty: it was not.
func happened(p *contract.Purchase, event contract.TimelineEntryEvent) string {
	if i := slices.IndexFunc(p.Timeline, func(e contract.TimelineEntry) bool { return e.Event == event }); i >= 0 {
		return cellTime(p.Timeline[i].At)
	}
	return ""
}

func cellTime(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

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
