package refunds_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
)

// provider is a provider with one captured intent, which may be refunded up to its
// amount, and which remembers idempotency keys.
type provider struct {
	payprovider.Provider
	mu       sync.Mutex
	intent   string
	captured money.Amount
	status   payprovider.RefundStatus // of new refunds
	failure  string
	refunds  []payprovider.Refund
	keys     map[string]answer
	creates  []payprovider.NewRefund
	calls    []string
	fault    func(call string) (err error, before bool) // before: the call has no effect
}

type answer struct {
	at     int
	amount money.Amount // as asked for; 0: any
	err    error
}

// errOtherUse is the answer to a key that was used with another amount.
var errOtherUse = &payprovider.Error{Kind: payprovider.KindMismatch, Code: "idempotency_error", Call: "refund", Message: "this key was used with other parameters"}

func newProvider(intent string, captured money.Amount) *provider {
	return &provider{intent: intent, captured: captured, status: payprovider.RefundSucceeded, keys: make(map[string]answer)}
}

var errLost = &payprovider.Error{Kind: payprovider.KindUnknown, Call: "refund", Message: "no answer"}

func (p *provider) enter(call string) (after error, err error) {
	p.calls = append(p.calls, call)
	if p.fault == nil {
		return nil, nil
	}
	fault, before := p.fault(call)
	if before {
		return nil, fault
	}
	return fault, nil
}

func (p *provider) CreateRefund(_ context.Context, n payprovider.NewRefund) (payprovider.Refund, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.creates = append(p.creates, n)
	after, err := p.enter("create")
	if err != nil {
		return payprovider.Refund{}, err
	}
	known, ok := p.keys[n.Key]
	if !ok {
		known = p.create(n)
		known.amount = n.Amount
		p.keys[n.Key] = known
	}
	if known.amount != 0 && known.amount != n.Amount {
		return payprovider.Refund{}, errOtherUse
	}
	if after != nil {
		return payprovider.Refund{}, after
	}
	if known.err != nil {
		return payprovider.Refund{}, known.err
	}
	return p.refunds[known.at], nil
}

func (p *provider) create(n payprovider.NewRefund) answer {
	if n.IntentID != p.intent {
		return answer{err: &payprovider.Error{Kind: payprovider.KindRefused, Code: "resource_missing"}}
	}
	if p.returned()+n.Amount > p.captured {
		return answer{err: &payprovider.Error{Kind: payprovider.KindConflict, Code: "charge_already_refunded", Message: "it has already been refunded"}}
	}
	p.add(n.Amount, p.status, n.Metadata)
	return answer{at: len(p.refunds) - 1}
}

func (p *provider) add(amount money.Amount, status payprovider.RefundStatus, metadata map[string]string) {
	p.refunds = append(p.refunds, payprovider.Refund{ID: fmt.Sprintf("re_%d_%s", len(p.refunds)+1, p.intent), IntentID: p.intent, Status: status, Amount: amount,
		Currency: "JPY", Failure: p.failure, Metadata: metadata})
}

func (p *provider) returned() (sum money.Amount) {
	for _, r := range p.refunds {
		if r.Status != payprovider.RefundFailed && r.Status != payprovider.RefundCanceled {
			sum += r.Amount
		}
	}
	return sum
}

func (p *provider) Refund(_ context.Context, id string) (payprovider.Refund, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if after, err := p.enter("fetch"); errors.Join(after, err) != nil {
		return payprovider.Refund{}, errors.Join(after, err)
	}
	for _, r := range p.refunds {
		if r.ID == id {
			return r, nil
		}
	}
	return payprovider.Refund{}, &payprovider.Error{Kind: payprovider.KindRefused, Code: "resource_missing"}
}

func (p *provider) RefundsOf(_ context.Context, intentID string) ([]payprovider.Refund, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if after, err := p.enter("list"); errors.Join(after, err) != nil {
		return nil, errors.Join(after, err)
	}
	if intentID != p.intent {
		return nil, nil
	}
	return append([]payprovider.Refund(nil), p.refunds...), nil
}

// set changes the status of all refunds.
func (p *provider) set(status payprovider.RefundStatus, failure string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.refunds {
		p.refunds[i].Status, p.refunds[i].Failure = status, failure
	}
}

// once is a fault of the n-th call of a kind.
func once(call string, n int, err error, before bool) func(string) (error, bool) {
	return func(this string) (error, bool) {
		if this != call {
			return nil, false
		}
		if n--; n == 0 {
			return err, before
		}
		return nil, false
	}
}
