package httpapi

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/response"
)

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
