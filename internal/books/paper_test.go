package books_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/job"
)

// paper are books that a person would keep beside the product, from what is done, and what the provider tells and lists. They
// share nothing with it but the words.
type paper struct {
	zone   *time.Location
	now    time.Time // the clock
	closed time.Time // the end of the last closed month
	notes  []note
}

// note is an entry of the journal.
type note struct {
	date, kind, document, campaign, currency, adjusts string
	sides                                             []paperSide
}

type paperSide struct {
	account, method string
	amount          int64 // negative: credit
}

// String is the entry in a form that does not depend on the order of its sides.
func (n note) String() string {
	var sides []string
	for _, s := range n.sides {
		sides = append(sides, fmt.Sprintf("%s(%s)%+d", s.account, s.method, s.amount))
	}
	slices.Sort(sides)
	return fmt.Sprintf("%s %s %s of %s: %s %s adjusts %q", n.date, n.kind, n.document, n.campaign, strings.Join(sides, " "), n.currency, n.adjusts)
}

// offer is a campaign.
type offer struct {
	id       uuid.UUID
	free     []shape.Position
	over     bool     // it sells no more
	draw     *job.Ref // that is to be drawn
	earned   bool
	unearned map[string]int64 // by method
}

// deal is a purchase.
type deal struct {
	offer  *offer
	id     uuid.UUID
	method string
	bought []shape.Position // what it still has
	sold   time.Time        // zero: it is not paid
	late   bool             // its money comes too late
	quiet  bool             // nothing more happens to it
	paid   int64            // by card
	debt   int64            // what is to be given back
	open   int64            // of refunds of ours that are not made
	fresh  int64            // of these, that the provider has never seen
	back   int64            // given back by us
	others int64            // given back by others

	intent, charge, byOthers string // at the provider
	bank                     held
	made                     int64            // of refunds, by the provider or by hand
	byHand                   int64            // of that, by hand since the dispute
	twice                    int64            // of that, what the bank has taken too
	reserved                 []shape.Position // that are free again
	freed                    time.Time        // by then
}

// held is what a bank has of a deal, and its fee.
type held struct {
	dispute, status, feeIn string
	amount, fee            int64
}

// post notes an entry about a deal, if it is about one, dated at a moment unless its month is closed.
func (p *paper) post(at time.Time, kind, document string, d *deal, debit, credit string, amount int64, currency string) {
	if amount < 0 {
		debit, credit, amount = credit, debit, -amount
	}
	if amount == 0 {
		return
	}
	n := note{kind: kind, document: document, currency: currency}
	method := ""
	if kind == "ledger_entry" {
		method = "wallet"
	}
	switch {
	case at.Before(p.closed):
		at, n.adjusts = p.now, document
	case d != nil && !d.sold.IsZero() && d.sold.Before(p.closed):
		n.adjusts = d.id.String()
	}
	for _, s := range []paperSide{{debit, method, amount}, {credit, method, -amount}} {
		if d != nil {
			n.campaign, s.method = d.offer.id.String(), d.method
			if s.account == "unearned" && d.offer.earned {
				s.account = "sales"
			} else if s.account == "unearned" {
				d.offer.unearned[d.method] -= s.amount
			}
		}
		n.sides = append(n.sides, s)
	}
	n.date = at.In(p.zone).Format(time.DateOnly)
	p.notes = append(p.notes, n)
}

// earn notes that the sales of a campaign are earned.
func (p *paper) earn(o *offer) {
	n := note{date: p.now.In(p.zone).Format(time.DateOnly), kind: "campaign", document: o.id.String(), campaign: o.id.String(), currency: "JPY"}
	for method, amount := range o.unearned {
		if amount != 0 {
			n.sides = append(n.sides, paperSide{"unearned", method, amount}, paperSide{"sales", method, -amount})
		}
	}
	if o.earned = true; len(n.sides) > 0 {
		p.notes = append(p.notes, n)
	}
}

// refund notes about a refund of a deal. Its document is that of the deal here.
func (p *paper) refund(d *deal, debit, credit string, amount int64) {
	p.post(p.now, "refund", "of "+d.id.String(), d, debit, credit, amount, "JPY")
}

// giveBack notes that a part of a deal, or all of it, is given back.
func (p *paper) giveBack(d *deal, amount int64) {
	if d.debt += amount; d.method == "wallet" {
		p.refund(d, "unearned", "wallet_liability", amount)
		return
	}
	d.open, d.fresh = d.open+amount, d.fresh+amount
	p.refund(d, "unearned", "refunds_payable", amount)
	if d.bank.amount > 0 { // no bank makes it
		p.leave(d)
	}
}

// take notes what a bank has of a deal now, instead of what it had.
func (p *paper) take(d *deal, is held) {
	p.post(p.now, "dispute", is.dispute, d, "disputes", "receivable", is.amount-d.bank.amount, "JPY")
	p.post(p.now, "dispute", is.dispute, d, "fees", "receivable", is.fee-d.bank.fee, is.feeIn)
	d.bank = is
	p.overlap(d)
}

// byHand notes that a refund is made by hand.
func (p *paper) byHand(d *deal, amount int64) {
	p.refund(d, "refunds_payable", "cash_outside", amount)
	d.made += amount
	if d.bank.dispute != "" {
		d.byHand += amount
	}
	p.overlap(d)
}

// overlap notes that a buyer who would have more than was paid has it once, though the bank took it and a refund was made by hand.
func (p *paper) overlap(d *deal) {
	if d.bank.status == "lost" {
		both := min(d.byHand, d.bank.amount, max(d.made+d.bank.amount-d.paid, 0))
		p.post(p.now, "payment", d.id.String(), d, "cash_outside", "disputes", both-d.twice, "JPY")
		d.twice = both
	}
}

// leave notes what others have left of a refund that waits.
func (p *paper) leave(d *deal) {
	if left := max(0, d.debt-d.back-d.others); left < d.open {
		p.refund(d, "unearned", "refunds_payable", left-d.open)
		d.open, d.fresh = left, min(d.fresh, left)
	}
}

// sum adds up sides of the days from one to another, which is not included: those of an account, of kinds of documents (none: all) and a
// method (empty: all).
func (p *paper) sum(from, to, currency, account, method string, kinds ...string) (sum int64) {
	for _, n := range p.notes {
		if n.date < from || n.date >= to || n.currency != currency || len(kinds) > 0 && !slices.Contains(kinds, n.kind) {
			continue
		}
		for _, s := range n.sides {
			if s.account == account && (method == "" || s.method == method) {
				sum += s.amount
			}
		}
	}
	return sum
}
