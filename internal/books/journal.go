// Package books owns the journal, double-entry bookkeeping of what was sold and paid, and closed months.
//
// An entry debits an account and credits another, so that the whole adds to zero in each currency:
//
//	sold by wallet, outside, by card    wallet_liability, cash_outside, receivable → unearned
//	earned (the result, or the sale's end) unearned → sales
//	refund requested                    unearned or sales → refunds_payable (a wallet's: wallet_liability)
//	refund made, by hand                refunds_payable → receivable, cash_outside
//	the same money by hand and disputed cash_outside → disputes
//	refund by others at the provider    unearned or sales → receivable
//	dispute opened (won: back), its fee disputes, fees → receivable
//	provider's fee, payout, others      fees, bank, provider_adjustments → receivable
//	another currency of its balance     exchange, in both currencies
//	wallet credited, debited            cash_outside ↔ wallet_liability
//
// It is a function of rows that never change: sales by wallet and outside, ledger entries, and book_facts, to which
// triggers append what changes a payment, a refund, a dispute or the provider's balance. So the journal of a closed period is
// the same bytes each time. What is recorded late of a closed period is a fact of the open one, and says what it adjusts.
//
// A period is closed in steps, see [Closing.Close] and [Advance]: its row is stored, and from then on no fact is dated in it;
// older transactions end; then a sweep reads the journal, part by part, and stores its hash and sums. It can stop anywhere.
//
// Locks: a period's row comes last.
package books

import (
	"context"
	"iter"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/money"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
)

// Account is an account of the books.
type Account string

// The accounts.
const (
	Receivable          Account = "receivable"       // from the provider: its balance
	CashOutside         Account = "cash_outside"     // what apps and operators take and give back themselves
	WalletLiability     Account = "wallet_liability" // what is in wallets
	Unearned            Account = "unearned"         // sales of campaigns that may still be cancelled
	Sales               Account = "sales"
	RefundsPayable      Account = "refunds_payable" // requested, and not made yet
	Fees                Account = "fees"            // of the provider
	Disputes            Account = "disputes"        // money that banks have
	Bank                Account = "bank"            // payouts
	Exchange            Account = "exchange"        // between the currency of a sale and that of the provider's balance
	ProviderAdjustments Account = "provider_adjustments"
)

// EarnedAt is when the sales of a campaign are earned.
type EarnedAt string

// The moments. What is given back after a sale that ended and was then cancelled reduces the sales.
const (
	AtResult  EarnedAt = "result"   // of the draw
	AtSaleEnd EarnedAt = "sale_end" // when the draw begins
)

// Line is a side of an entry of the journal. The hashes of closed months are of these members, in this order: they never change.
type Line struct {
	Date          string     `json:"date"`  // of the zone, 2006-01-02
	Entry         int64      `json:"entry"` // its place in the period, from 1
	Line          int        `json:"line"`  // of the entry, from 1
	Account       Account    `json:"account"`
	AccountNumber string     `json:"account_number"` // the company's; may be empty
	DebitMinor    int64      `json:"debit_minor"`    // minor units; of debit and credit one is 0
	CreditMinor   int64      `json:"credit_minor"`
	Debit         string     `json:"debit"` // the same as a decimal of the currency
	Credit        string     `json:"credit"`
	Currency      string     `json:"currency"`
	DocumentKind  string     `json:"document_kind"`
	DocumentID    string     `json:"document_id"`
	CampaignID    *uuid.UUID `json:"campaign_id"`
	Method        string     `json:"method"`  // card, wallet, external; empty: none
	Adjusts       string     `json:"adjusts"` // the document of a closed period that the entry is about; empty: none
}

// amount is what a line adds to the debit balance of its account.
func (l Line) amount() int64 { return l.DebitMinor - l.CreditMinor }

// Rules are what the journal depends on beside the rows. Of a closed period they are stored with it.
type Rules struct {
	EarnedAt EarnedAt
	Numbers  map[Account]string // the company's numbers of accounts
}

// RulesOf returns the rules of the settings.
func RulesOf(settings config.Books) Rules {
	numbers, _ := settings.Numbers() // the settings are checked
	r := Rules{EarnedAt(settings.EarnedAt), make(map[Account]string)}
	for account, number := range numbers {
		r.Numbers[Account(account)] = number
	}
	return r
}

// Journal yields the lines of a period, by day, kind of document, document and line, up to the first error. The days of
// closed periods have their rules. It reads pages, each in a statement of its own.
func Journal(ctx context.Context, db postgres.DB, p Period, now Rules) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		known, err := rulesOf(ctx, db, now)
		if err == nil {
			p, err = clip(ctx, db, p)
		}
		if err != nil {
			yield(Line{}, err)
			return
		}
		number := int64(0)
		for day := range p.Days() {
			for line, err := range journalOf(ctx, db, day, known(day.From), &number) {
				if !yield(line, err) || err != nil {
					return
				}
			}
		}
	}
}

// journalOf yields the lines of a day, whose entries are counted in number.
func journalOf(ctx context.Context, db postgres.DB, day Period, rules Rules, number *int64) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		for e, err := range entriesOf(ctx, db, day, place{}, rules.EarnedAt) {
			if err != nil {
				yield(Line{}, err)
				return
			}
			*number++
			for n := range e.sides {
				if !yield(e.line(n, day, rules, *number), nil) {
					return
				}
			}
		}
	}
}

// side is a debit (positive) or a credit.
type side struct {
	account Account
	amount  int64 // minor units
	method  string
}

// place is where an entry stands in its day. The zero place is before all.
type place struct {
	Kind     string `json:"kind"`
	Document string `json:"document"`
	ID       int64  `json:"id"` // of a fact, otherwise 0
}

// entry is an entry of the journal.
type entry struct {
	place
	currency string
	campaign *uuid.UUID
	adjusts  string
	sides    []side
}

// line returns the n-th line of the entry.
func (e entry) line(n int, day Period, rules Rules, number int64) Line {
	s := e.sides[n]
	debit, credit := max(s.amount, 0), max(-s.amount, 0)
	decimal := func(amount int64) string { return money.Currency(e.currency).Decimal(money.Amount(amount)) }
	return Line{
		Date: day.From.Format(time.DateOnly), Entry: number, Line: n + 1, Account: s.account, AccountNumber: rules.Numbers[s.account],
		DebitMinor: debit, CreditMinor: credit, Debit: decimal(debit), Credit: decimal(credit), Currency: e.currency,
		DocumentKind: e.Kind, DocumentID: e.Document, CampaignID: e.campaign, Method: s.method, Adjusts: e.adjusts,
	}
}
