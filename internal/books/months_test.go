package books_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"triprize/internal/books"
	"triprize/internal/books/export"
	"triprize/internal/platform/config"
	"triprize/internal/testkit/property"
)

// Three months of a random history, closed month by month, have the entries of books on paper.
func TestRandomMonthsAreThoseOfBooksOnPaper(t *testing.T) {
	t.Parallel()
	for n := range max(2, property.Cases(t)-8) { // two, unless more are wanted
		seed := 7 * uint64(n)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			f := newFirm(t, seed)
			for month := range 3 {
				first := time.Date(2026, time.July+time.Month(month), 1, 0, 0, 0, 0, f.zone)
				f.live(first.AddDate(0, 0, 28), 28)
				f.isAway = month == 1 // what the provider lists of the end of August comes in September
				f.live(first.AddDate(0, 1, 0), 4)
				f.live(first.AddDate(0, 1, 4), 4)
				if !f.isAway {
					f.reconcile()
				}
				f.close(first, !f.isAway)
				f.isAway = false
			}
			f.live(f.now.AddDate(0, 0, 3), 5)
			for range 2 { // what the provider does by itself is over, and then compared
				f.live(f.now.AddDate(0, 0, 4), 0)
			}
			f.reconcile()
			f.compare("2026-06-01", "2026-11-01")
			f.settled()
		})
	}
}

// live lets so many things happen until a moment, some at midnight and some just before.
func (f *firm) live(until time.Time, things int) {
	f.Helper()
	const tick = 5 * time.Minute // longer than a thing takes
	for ; things > 0; things-- {
		next := f.now.Add(tick * time.Duration(1+f.random.IntN(max(1, 2*int(until.Sub(f.now)/tick)/things))))
		if edge := f.random.IntN(8); edge < 2 {
			at := next.In(f.zone)
			next = time.Date(at.Year(), at.Month(), at.Day()+1, 0, 0, 0, 0, f.zone).Add(-tick * time.Duration(edge))
		}
		if next.After(until) {
			break
		}
		f.goTo(next)
		f.hear()
		f.happen()
		f.hear()
		if !f.isAway && f.now.Sub(f.reconciled) > 5*24*time.Hour {
			f.reconcile()
		}
	}
	f.goTo(until)
	f.hear()
}

// table is an export, a map for each row.
func (f *firm) table(kind, from, to string) (rows []map[string]string) {
	f.Helper()
	r, err := export.Parameters{Kind: kind, From: from, To: to, Zone: "Asia/Tokyo", Rules: f.rules}.Check()
	f.must(err)
	e, err := export.Open(f.Context(), f.db, r)
	f.must(err)
	var out bytes.Buffer
	f.must(e.Write(f.Context(), &out))
	lines, err := csv.NewReader(&out).ReadAll()
	f.must(err)
	for _, line := range lines[1:] {
		row := make(map[string]string)
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// compare compares the journal of a period with the books on paper, entry by entry. It returns how many there are.
func (f *firm) compare(from, to string) int64 {
	f.Helper()
	names := make(map[string]string)
	for _, row := range f.table("refunds", "2026-01-01", "2099-01-01") {
		names[row["id"]] = "of " + row["purchase_id"]
	}
	for _, row := range f.table("ledger", "2026-01-01", "2099-01-01") {
		names[row["id"]] = row["reference"]
	}
	name := func(id string) string {
		if known := names[id]; known != "" {
			return known
		}
		return id
	}
	var found []note
	last := ""
	for _, row := range f.table("journal", from, to) {
		if f.number(row["entry"]) > int64(len(found)) {
			found = append(found, note{date: row["date"], kind: row["document_kind"], document: name(row["document_id"]), campaign: row["campaign_id"], currency: row["currency"], adjusts: name(row["adjusts"])})
			if at := row["date"] + row["document_kind"] + row["document_id"]; row["entry"] != strconv.Itoa(len(found)) || at < last {
				f.Errorf("entry %s, %s, follows %s", row["entry"], at, last)
			} else {
				last = at
			}
		}
		n := &found[len(found)-1]
		n.sides = append(n.sides, paperSide{row["account"], row["method"], f.number(row["debit_minor"]) - f.number(row["credit_minor"])})
	}
	more := make(map[string]int) // found more often than on paper
	for _, n := range found {
		more[n.String()]++
	}
	for _, n := range f.notes {
		if n.date >= from && n.date < to {
			more[n.String()]--
		}
	}
	for _, text := range slices.Sorted(maps.Keys(more)) {
		if more[text] != 0 {
			f.Errorf("%+d × %s", more[text], text)
		}
	}
	return int64(len(found))
}

// close closes a month, and compares its journal and sums.
func (f *firm) close(first time.Time, withCards bool) {
	f.Helper()
	m, err := closing(f.T, f.db, books.Closing{Month: first.Format("2006-01"), Zone: "Asia/Tokyo", WithOpen: true, WithCards: withCards, Rules: f.rules})
	f.must(err)
	f.closed = first.AddDate(0, 1, 0)
	from, to := first.Format(time.DateOnly), f.closed.Format(time.DateOnly)
	if n := f.compare(from, to); *m.Entries != n {
		f.Errorf("%s has %d entries, and the export %d", m.Name, *m.Entries, n)
	}
	all, err := books.Months(f.Context(), f.db)
	f.must(err)
	for _, earlier := range all {
		same(f.T, earlier.Name+" again", verified(f.T, f.db, earlier), "")
	}
	found, paper := make(map[string]int64), make(map[string]int64) // the sums that are not 0
	for _, currency := range []string{"JPY", "USD"} {
		for _, account := range config.Accounts {
			paper[currency+" opening "+account] = f.sum("", from, currency, account, "")
			paper[currency+" closing "+account] = f.sum("", to, currency, account, "")
		}
		for _, method := range []string{"card", "wallet", "external"} {
			of := func(account string, kinds ...string) int64 {
				return f.sum(from, to, currency, account, method, kinds...)
			}
			sold, back, disputed := -of("unearned", "payment", "purchase")-of("sales", "payment", "purchase"), of("unearned", "refund")+of("sales", "refund"), of("disputes")
			paper[currency+" sold "+method], paper[currency+" given back "+method] = sold, back
			paper[currency+" disputed "+method], paper[currency+" kept "+method] = disputed, sold-back-disputed
		}
		fees, payouts, there := -f.sum(from, to, currency, "fees", ""), f.sum(from, to, currency, "bank", ""), f.report(currency, first, f.closed)
		paper[currency+" fees"], paper[currency+" payouts"] = fees, payouts
		paper[currency+" activity"] = payouts + f.sum(from, to, currency, "receivable", "") - fees
		paper[currency+" fees there"], paper[currency+" payouts there"], paper[currency+" activity there"] = there.Fees, there.Payouts, there.Activity
	}
	for _, b := range m.Statement.Balances {
		found[b.Currency+" opening "+string(b.Account)], found[b.Currency+" closing "+string(b.Account)] = b.Opening, b.Closing
	}
	for _, s := range m.Statement.Methods {
		found[s.Currency+" sold "+s.Method], found[s.Currency+" given back "+s.Method] = s.Sold, s.GivenBack
		found[s.Currency+" disputed "+s.Method], found[s.Currency+" kept "+s.Method] = s.Disputed, s.Kept
	}
	for _, p := range m.Statement.Provider {
		if p.Opening+p.Activity+p.Fees != p.Payouts+p.Closing || p.Opening != found[p.Currency+" opening receivable"] || p.Closing != found[p.Currency+" closing receivable"] {
			f.Errorf("%s: %+v", m.Name, p)
		}
		r := p.Reported
		found[p.Currency+" fees"], found[p.Currency+" payouts"], found[p.Currency+" activity"] = p.Fees, p.Payouts, p.Activity
		found[p.Currency+" fees there"], found[p.Currency+" payouts there"], found[p.Currency+" activity there"] = r.Fees, r.Payouts, r.Activity
	}
	for what, is := range paper {
		if found[what] != is {
			f.Errorf("%s: %s is %d, and %d on paper", m.Name, what, found[what], is)
		}
	}
	wallets := int64(0)
	for _, row := range f.table("wallets", from, to) {
		wallets += f.number(row["balance_minor"])
	}
	if liability := -paper["JPY closing wallet_liability"]; wallets != liability {
		f.Errorf("%s: %d in wallets, and %d on paper", m.Name, wallets, liability)
	}
}

func (f *firm) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	f.must(err)
	return n
}

// report adds up what the provider has listed of a span.
func (f *firm) report(currency string, from, to time.Time) (r books.Report) {
	for _, m := range f.listed {
		if m.Created < from.Unix() || m.Created >= to.Unix() || strings.ToUpper(m.Currency) != currency {
			continue
		}
		switch r.Fees -= m.Fee; m.Category {
		case "payout":
			r.Payouts -= m.Amount
		case "fee":
			r.Fees += m.Amount
		default:
			r.Activity += m.Amount
		}
	}
	return r
}

// settled checks that what is receivable is what the provider has, but for what it does not know.
func (f *firm) settled() {
	for _, currency := range []string{"JPY", "USD"} {
		r := f.report(currency, time.Unix(0, 0), f.now)
		has, there := f.sum("", "9", currency, "receivable", ""), r.Activity+r.Fees-r.Payouts
		for _, d := range f.deals {
			if d.quiet && currency == "JPY" {
				has -= 30
			}
			if d.quiet && currency == d.bank.feeIn {
				has += 7
			}
		}
		if has != there {
			f.Errorf("%d %s are receivable, and the provider has %d", has, currency, there)
		}
	}
}
