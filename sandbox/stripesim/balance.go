package stripesim

import (
	"math"

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
	switch {
	case category == "charge":
		m.Fee = m.Amount * chargeFee / 1000
	case category == "dispute" && money.Currency(upper(m.Currency)).Digits() == 0:
		m.Fee = 1300
	case category == "dispute":
		m.Fee = 1500
	}
	c.add(m)
	return m
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
	err := s.mutate(itself, func(c *change) {
		left := -fee
		for m := range each[*movement](c.state) {
			if m.Currency == currency {
				left += m.Amount - m.Fee
			}
		}
		for _, m := range []*movement{
			{head: c.head("txn"), Type: "stripe_fee", Category: "fee", Amount: -fee},
			{head: c.head("txn"), Type: "payout", Category: "payout", Source: newID("po"), Amount: -left},
		} {
			m.Currency, m.Available = currency, c.unix()
			c.add(m)
			ids = append(ids, m.ID)
		}
	})
	return ids, err
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

func (m *movement) render(now int64) object {
	o := object{
		"id": m.ID, "object": "balance_transaction", "amount": m.Amount, "available_on": m.Available, "balance_type": "payments", "created": m.Created,
		"currency": m.Currency, "description": nil, "exchange_rate": nil, "fee": m.Fee, "fee_details": []object{}, "net": m.Amount - m.Fee,
		"reporting_category": m.Category, "source": orNull(m.Source), "status": "pending", "type": m.Type,
	}
	if m.Rate != 0 {
		o["exchange_rate"] = m.Rate
	}
	if m.Available <= now {
		o["status"] = "available"
	}
	if m.Fee != 0 {
		o["fee_details"] = []object{{"amount": m.Fee, "application": nil, "currency": m.Currency, "description": "Stripe processing fees", "type": "stripe_fee"}}
	}
	return o
}
