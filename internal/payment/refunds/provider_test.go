package refunds_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"

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
	hooks    []*hook
}

// hook is what happens in a call.
type hook struct {
	call  string // or any
	skip  int    // so many calls before it
	once  bool
	do    func()
	err   *payprovider.Error
	after bool // the call has an effect, and its answer is lost
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

func (p *provider) hook(h *hook) { p.hooks = append(p.hooks, h) }

// called returns the calls since the last time.
func (p *provider) called() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = nil
	return calls
}

// enter lets happen what happens in a call. It holds the lock, and gives it away meanwhile.
func (p *provider) enter(call, text string) (after, err error) {
	p.calls = append(p.calls, text)
	for _, h := range slices.Clone(p.hooks) {
		if h.call != call && h.call != "any" {
			continue
		}
		if h.skip--; h.skip >= 0 {
			continue
		}
		if h.once {
			p.hooks = slices.DeleteFunc(p.hooks, func(o *hook) bool { return o == h })
		}
		if h.do != nil {
			p.mu.Unlock()
			h.do()
			p.mu.Lock()
		}
		switch {
		case h.err != nil && h.after:
			after = h.err
		case h.err != nil:
			err = h.err
		}
	}
	return after, err
}

func (p *provider) CreateRefund(_ context.Context, n payprovider.NewRefund) (payprovider.Refund, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.creates = append(p.creates, n)
	prefix, attempt := "re:"+n.Metadata["refund_id"]+":", n.Metadata["attempt"]
	if n.Key != prefix+attempt {
		return payprovider.Refund{}, fmt.Errorf("the key %s is not that of attempt %s", n.Key, attempt)
	}
	after, err := p.enter("create", fmt.Sprintf("create#%s/%d", attempt, n.Amount))
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
	if status == "" {
		status = payprovider.RefundSucceeded
	}
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
	if after, err := p.enter("fetch", "fetch"); errors.Join(after, err) != nil {
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
	if after, err := p.enter("list", "list"); errors.Join(after, err) != nil {
		return nil, errors.Join(after, err)
	}
	if intentID != p.intent {
		return nil, nil
	}
	return append([]payprovider.Refund(nil), p.refunds...), nil
}

// set changes the status of a refund.
func (p *provider) set(at int, status payprovider.RefundStatus, failure string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refunds[at].Status, p.refunds[at].Failure = status, failure
}

// store keeps a fault under the first key of a refund.
func (p *provider) store(id uuid.UUID, err *payprovider.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := answer{err: err}
	if len(p.creates) > 0 {
		a.amount = p.creates[0].Amount
	}
	p.keys["re:"+id.String()+":1"] = a
}

// arrive lets the first call arrive now.
func (p *provider) arrive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.creates[0]
	a := p.create(n)
	a.amount = n.Amount
	p.keys[n.Key] = a
}
