package books_test

import (
	"strings"
	"time"
)

func (f *firm) received(d *deal, o object) {
	f.post(f.now, "payment", d.id.String(), d, "receivable", "unearned", o.Received, "JPY")
	if d.charge, d.paid, d.sold = o.LatestCharge, o.Received, f.now; d.late {
		f.giveBack(d, o.Received)
	}
}

// refunded notes a refund that was made, or has failed. One of ours that is less than was asked for leaves the rest to others.
func (f *firm) refunded(d *deal, o object) {
	was := f.statuses[o.ID]
	made := func(status string) int64 {
		if status == "succeeded" {
			return o.Amount
		}
		return 0
	}
	change, fails := made(o.Status)-made(was), o.Status == "failed" && was != "failed"
	f.statuses[o.ID] = o.Status
	if o.Metadata["refund_id"] == "" {
		d.others, d.made = d.others+change, d.made+change
		f.refund(d, "unearned", "receivable", change)
		f.overlap(d)
		f.leave(d)
		if owed := d.debt - d.open - d.back - d.others; fails && owed > 0 {
			d.open, d.fresh = d.open+owed, d.fresh+owed
			f.refund(d, "unearned", "refunds_payable", owed)
		}
		return
	}
	if ours := o.Metadata["refund_id"]; was == "" {
		wanted, again := f.made[ours]
		if wanted = min(wanted, d.open); !again {
			wanted, d.fresh = d.fresh, 0
		}
		f.refund(d, "unearned", "refunds_payable", o.Amount-wanted)
		f.made[ours], d.open, d.back = o.Amount, d.open-wanted, d.back+o.Amount
	}
	d.made += change
	f.refund(d, "refunds_payable", "receivable", change)
	f.overlap(d)
	if fails {
		d.open, d.back = d.open+o.Amount, d.back-o.Amount
	}
}

func (f *firm) disputed(d *deal, o object) {
	is := held{dispute: o.ID, status: o.Status}
	if o.Status == "needs_response" || o.Status == "under_review" || o.Status == "lost" {
		is.amount = o.Amount
	}
	for _, m := range o.Movements {
		is.fee, is.feeIn = is.fee+m.Fee, strings.ToUpper(m.Currency)
	}
	f.take(d, is)
}

// reconcile compares the days that are closed, and notes their transactions.
func (f *firm) reconcile() {
	f.Helper()
	f.reconciled = f.now
	for more := true; more; {
		var err error
		_, more, err = f.compared.Run(f.Context())
		f.must(err)
	}
	for _, m := range f.movements() {
		ends := time.Unix(m.Created, 0).UTC().Truncate(24*time.Hour).AddDate(0, 0, 3)
		if ends.After(f.now) || f.booked[m.ID] {
			continue
		}
		f.booked[m.ID], f.listed = true, append(f.listed, m)
		at, d, currency := time.Unix(m.Created, 0), f.ofCharge(m.charge()), strings.ToUpper(m.Currency)
		note := func(debit, credit string, amount int64, currency string) {
			f.post(at, "balance_transaction", m.ID, d, debit, credit, amount, currency)
		}
		switch m.Category {
		case "payout":
			note("bank", "receivable", -m.Amount, currency)
		case "fee":
			note("fees", "receivable", -m.Amount, currency)
		default:
			if of := strings.ToUpper(m.Source.Currency); of != currency {
				amount := m.Source.Amount
				if m.Amount < 0 {
					amount = -amount
				}
				note("exchange", "receivable", amount, of)
				note("receivable", "exchange", m.Amount, currency)
			}
		}
		if m.Category != "dispute" && m.Category != "dispute_reversal" {
			note("fees", "receivable", m.Fee, currency)
		}
	}
}

// movement is a transaction of the provider's balance.
type movement struct {
	ID, Currency         string
	Category             string `json:"reporting_category"`
	Amount, Fee, Created int64
	Source               *object
}

func (m movement) charge() string {
	switch {
	case m.Source == nil:
		return ""
	case m.Source.Charge != "":
		return m.Source.Charge
	}
	return m.Source.ID
}

// movements are those that the provider lists. It forgets old ones, but not these months.
func (f *firm) movements() []movement {
	return list[movement](f, "/v1/balance_transactions", f.now.AddDate(0, 0, -29))
}
