package stripesim

import (
	"math"
	"net/http"
	"time"

	"triprize/internal/domain/money"
)

// movement is a BalanceTransaction. Exported fields are in the journal.
type movement struct {
	head

	Type      string
	Category  string // reporting_category
	Source    string // id; empty: none
	Amount    int64  // in the currency of the balance; negative: it leaves it
	Currency  string
	Rate      float64 // 0: the source has the currency of the balance
	Fee       int64
	Available int64
}

// What moving money costs, as at Stripe about.
const (
	chargeFee = 36            // of a thousand, of a charge; never given back
	settlesIn = 4 * 24 * 3600 // seconds until money can be paid out
)

// move makes a transaction of an object's money. The balance has the currency of the
// settings, or the object's own.
func (c *change) move(kind, category, source string, amount int64, currency string) *movement {
	m := &movement{head: c.head("txn"), Type: kind, Category: category, Source: source, Amount: amount, Currency: currency,
		Available: c.unix() + settlesIn}
	if into := c.server.settings.SettlesIn; into != "" && into != currency {
		m.Currency, m.Rate = into, c.server.settings.ExchangeRate
		m.Amount = int64(math.Round(float64(amount) * m.Rate))
	}
	switch category {
	case "charge":
		m.Fee = m.Amount * chargeFee / 1000
	case "dispute":
		m.Fee = disputeFeeIn(m.Currency)
	}
	c.movements.put(m)
	c.touch(m)
	return m
}

func disputeFeeIn(currency string) int64 {
	if money.Currency(upper(currency)).Digits() == 0 {
		return 1300
	}
	return 1500
}

// kindOf is the type of a transaction of a charge, or of what follows from it.
func (ch *charge) kindOf(card, other string) string {
	if table[ch.Method].slow {
		return other
	}
	return card
}

// Payout takes what the balance has of a currency out of it, after a fee for the
// account, and returns the ids of both transactions.
func (s *Server) Payout(currency string, fee int64) (ids []string, _ error) {
	seq := s.mutate("", "", "", func(c *change) {
		c.put(&movement{head: c.head("txn"), Type: "stripe_fee", Category: "fee", Amount: -fee, Currency: currency, Available: c.unix()}, &ids)
		var left int64
		for _, m := range c.movements.list {
			if m.Currency == currency {
				left += m.Amount - m.Fee
			}
		}
		c.put(&movement{head: c.head("txn"), Type: "payout", Category: "payout", Source: newID("po"), Amount: -left, Currency: currency,
			Available: c.unix()}, &ids)
	})
	return ids, s.journal.wait(seq)
}

func (c *change) put(m *movement, ids *[]string) {
	c.movements.put(m)
	c.touch(m)
	*ids = append(*ids, m.ID)
}

var listMovements = parameters{"source": text, "type": text, "currency": text}.with(paging).with(expanding("data.source"))

func doListMovements(c *change, r *call) (object, *apiError) {
	p := r.params
	fits := func(m *movement) bool {
		return (!p.has("source") || m.Source == p.text("source")) && (!p.has("type") || m.Type == p.text("type")) &&
			(!p.has("currency") || m.Currency == p.text("currency"))
	}
	return page(r, "balance_transaction", c.movements, fits, func(m *movement) object { return m.render(c.now) })
}

func doGetMovement(c *change, r *call) (object, *apiError) {
	if m := c.movements.by[r.object]; m != nil {
		return m.render(c.now), nil
	}
	return nil, missing(http.StatusNotFound, "balance transaction", "id", r.object)
}

// renderPayout shows the payout that a transaction is about.
func (m *movement) renderPayout() object {
	return object{
		"id": m.Source, "object": "payout", "amount": -m.Amount, "arrival_date": m.Created, "automatic": true, "balance_transaction": m.ID, "created": m.Created,
		"currency": m.Currency, "description": nil, "destination": nil, "failure_balance_transaction": nil, "failure_code": nil, "failure_message": nil,
		"livemode": false, "metadata": object{}, "method": "standard", "original_payout": nil, "payout_method": nil, "reconciliation_status": "completed",
		"reversed_by": nil, "source_type": "card", "statement_descriptor": nil, "status": "paid", "trace_id": nil, "type": "bank_account",
		"application_fee": nil, "application_fee_amount": nil,
	}
}

func (m *movement) render(now time.Time) object {
	o := object{
		"id": m.ID, "object": "balance_transaction", "amount": m.Amount, "available_on": m.Available, "balance_type": "payments", "created": m.Created,
		"currency": m.Currency, "description": nil, "exchange_rate": nil, "fee": m.Fee, "fee_details": []object{}, "net": m.Amount - m.Fee,
		"reporting_category": m.Category, "source": orNull(m.Source), "status": "pending", "type": m.Type,
	}
	if m.Rate != 0 {
		o["exchange_rate"] = m.Rate
	}
	if m.Available <= now.Unix() {
		o["status"] = "available"
	}
	if m.Fee != 0 {
		o["fee_details"] = []object{{"amount": m.Fee, "application": nil, "currency": m.Currency, "description": "Stripe processing fees", "type": "stripe_fee"}}
	}
	return o
}
