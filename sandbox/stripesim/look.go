package stripesim

import (
	"maps"

	"triprize/internal/domain/money"
)

// Payment is a PaymentIntent with its last charge, for tests that look at the provider's
// side.
type Payment struct {
	ID        string
	Status    string
	Amount    money.Amount
	Captured  money.Amount
	Refunded  money.Amount // of captured money, without refunds that failed
	Currency  string       // lower case
	Method    string       // of the last try
	Charge    string       // of the last try; empty: none
	Metadata  map[string]string
	ActionURL string // where the buyer authenticates; empty: nowhere
	Disputed  bool
}

// Returned is a refund.
type Returned struct {
	ID       string
	Intent   string
	Status   string
	Amount   money.Amount
	Void     bool // it released money that was never captured
	Metadata map[string]string
}

// Payments returns all payments, the oldest first.
func (s *Server) Payments() []Payment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Payment
	for _, i := range s.state.intents.list {
		p := Payment{ID: i.ID, Status: i.Status, Amount: money.Amount(i.Amount), Captured: money.Amount(i.Received), Currency: i.Currency, Method: i.Last, Charge: i.Charge, Metadata: maps.Clone(i.Metadata)}
		if i.Status == requiresAction {
			p.ActionURL = i.Action.URL
		}
		if c := s.state.charges.by[i.Charge]; c != nil {
			p.Disputed = c.Dispute != ""
			if c.Captured {
				p.Refunded = money.Amount(c.Refunded)
			}
		}
		all = append(all, p)
	}
	return all
}

// Refunds returns all refunds, the oldest first.
func (s *Server) Refunds() []Returned {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Returned
	for _, r := range s.state.refunds.list {
		all = append(all, Returned{r.ID, r.Intent, r.Status, money.Amount(r.Amount), r.Void, maps.Clone(r.Metadata)})
	}
	return all
}
