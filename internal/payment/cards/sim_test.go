package cards_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
)

// sim is a provider with a state: intents, and the answers stored under keys.
type sim struct {
	payprovider.Provider
	t  *testing.T
	mu sync.Mutex

	intents map[string]*payprovider.Intent
	made    []string // ids, in order
	tries   map[string]int
	keys    map[string]answer
	calls   []string // with keys: create#1, confirm#1:method-1, …
	broken  []string // rules of the provider's that were broken by us

	// before is asked before a call has an effect, after it afterwards: an error is the
	// answer instead, and what panics is a worker that dies.
	before, after func(call, id string) error
	alter         func(in *payprovider.Intent) // what comes back instead
}

type answer struct {
	call   string
	intent payprovider.Intent
	err    error
}

func newSim(t *testing.T) *sim {
	return &sim{t: t, intents: make(map[string]*payprovider.Intent), tries: make(map[string]int), keys: make(map[string]answer)}
}

func failed(kind payprovider.ErrorKind, code string) *payprovider.Error {
	return &payprovider.Error{Kind: kind, Call: "sim", Code: code, Message: "simulated"}
}

// do runs a call as a provider does: once per key, then the stored answer. It does not
// lock while hooks run.
func (s *sim) do(call, id, key string, effect func() (payprovider.Intent, error)) (payprovider.Intent, error) {
	s.mu.Lock()
	s.calls = append(s.calls, call+keyOf(call, id, key))
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(call, id); err != nil {
			return payprovider.Intent{}, err
		}
	}
	in, err := s.once(call, key, effect)
	if after != nil {
		if lost := after(call, id); lost != nil {
			return payprovider.Intent{}, lost
		}
	}
	if err == nil && s.alter != nil {
		s.alter(&in)
	}
	return in, err
}

// keyOf is what of a key is not the call and the purchase: it must be theirs.
func keyOf(call, id, key string) string {
	if key == "" {
		return ""
	}
	parts := strings.SplitN(key, ":", 3)
	if want := map[string]string{"create": "pi"}[call]; parts[0] != want && parts[0] != call || !strings.Contains(id, parts[1]) {
		return " with the key " + key
	}
	if len(parts) < 3 {
		return ""
	}
	return "#" + parts[2]
}

func (s *sim) once(call, key string, effect func() (payprovider.Intent, error)) (payprovider.Intent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stored, ok := s.keys[key]; key != "" && ok {
		if stored.call != call {
			s.broken = append(s.broken, fmt.Sprintf("key %s was used for %s and for %s", key, stored.call, call))
		}
		return stored.intent, stored.err
	}
	in, err := effect()
	if key != "" {
		s.keys[key] = answer{call, in, err}
	}
	return in, err
}

// poison stores a fault under a key, as a provider does that failed in the middle.
func (s *sim) poison(call, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.keys[key]; !ok {
		s.keys[key] = answer{call: call, err: failed(payprovider.KindUnknown, "stored")}
	}
}

func (s *sim) CreateIntent(_ context.Context, n payprovider.NewIntent) (payprovider.Intent, error) {
	return s.do("create", n.Key, n.Key, func() (payprovider.Intent, error) {
		if n.PaymentMethod == "pm_unknown" {
			return payprovider.Intent{}, failed(payprovider.KindRefused, "resource_missing")
		}
		in := &payprovider.Intent{ID: fmt.Sprintf("pi_%s_%d", n.Metadata["purchase_id"], len(s.made)), Status: payprovider.RequiresConfirmation, Amount: n.Amount,
			Currency: n.Currency, PaymentMethod: n.PaymentMethod, Metadata: n.Metadata}
		s.intents[in.ID] = in
		s.made = append(s.made, in.ID)
		return *in, nil
	})
}

func (s *sim) ConfirmIntent(_ context.Context, id, key, method, _ string) (payprovider.Intent, error) {
	return s.do("confirm", id, key, func() (payprovider.Intent, error) {
		in := s.intents[id]
		another := in.Status == payprovider.RequiresAction && strings.Contains(key, ":method-")
		if in.Status != payprovider.RequiresConfirmation && in.Status != payprovider.RequiresPaymentMethod && !another {
			return payprovider.Intent{}, failed(payprovider.KindConflict, "payment_intent_unexpected_state")
		}
		if method == "pm_unknown" {
			return payprovider.Intent{}, failed(payprovider.KindRefused, "resource_missing")
		}
		s.tries[id]++
		in.PaymentMethod, in.ActionURL = method, ""
		switch method {
		case "pm_declined_once": // the second confirmation succeeds
			if s.tries[id] == 1 {
				in.Status, in.Decline = payprovider.RequiresPaymentMethod, &payprovider.Decline{Code: "card_declined", DeclineCode: "insufficient_funds"}
				return payprovider.Intent{}, &payprovider.Error{Kind: payprovider.KindDeclined, Call: "confirm", Code: "card_declined", Decline: in.Decline}
			}
			in.Status = payprovider.RequiresCapture
		case "pm_declined":
			in.Status, in.Decline = payprovider.RequiresPaymentMethod, &payprovider.Decline{Code: "card_declined", DeclineCode: "generic_decline"}
			return payprovider.Intent{}, &payprovider.Error{Kind: payprovider.KindDeclined, Call: "confirm", Code: "card_declined", Decline: in.Decline}
		case "pm_action":
			in.Status, in.ActionURL = payprovider.RequiresAction, "https://bank.example/"+id+"/"+strconv.Itoa(s.tries[id])
		case "pm_no_page":
			in.Status = payprovider.RequiresAction
		case "pm_processing":
			in.Status = payprovider.Processing
		case "pm_at_once":
			in.Status, in.Received = payprovider.Succeeded, in.Amount
		default:
			in.Status = payprovider.RequiresCapture
		}
		return *in, nil
	})
}

func (s *sim) CaptureIntent(_ context.Context, id, key string, amount money.Amount) (payprovider.Intent, error) {
	return s.do("capture", id, key, func() (payprovider.Intent, error) {
		in := s.intents[id]
		if in.Status != payprovider.RequiresCapture {
			return payprovider.Intent{}, failed(payprovider.KindConflict, "payment_intent_unexpected_state")
		}
		in.Status, in.Received = payprovider.Succeeded, amount
		return *in, nil
	})
}

func (s *sim) CancelIntent(_ context.Context, id, key string) (payprovider.Intent, error) {
	return s.do("cancel", id, key, func() (payprovider.Intent, error) {
		in := s.intents[id]
		switch in.Status {
		case payprovider.Succeeded, payprovider.Processing, payprovider.Canceled:
			return payprovider.Intent{}, failed(payprovider.KindConflict, "payment_intent_unexpected_state")
		}
		in.Status, in.ActionURL = payprovider.Canceled, ""
		return *in, nil
	})
}

func (s *sim) Intent(_ context.Context, id string) (payprovider.Intent, error) {
	return s.do("fetch", id, "", func() (payprovider.Intent, error) {
		in, ok := s.intents[id]
		if !ok {
			return payprovider.Intent{}, failed(payprovider.KindRefused, "resource_missing")
		}
		return *in, nil
	})
}

// move changes intents from outside, as buyers and banks do. It returns how many.
func (s *sim) move(purchase string, from, to payprovider.IntentStatus) (moved int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.made {
		in := s.intents[id]
		if in.Metadata["purchase_id"] == purchase && in.Status == from {
			in.Status, in.ActionURL = to, ""
			if to == payprovider.Succeeded {
				in.Received = in.Amount
			}
			moved++
		}
	}
	return moved
}

// of returns the intents of a purchase.
func (s *sim) of(purchase string) (all []payprovider.Intent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.made {
		if in := s.intents[id]; in != nil && in.Metadata["purchase_id"] == purchase {
			all = append(all, *in)
		}
	}
	return all
}

// confirmed returns how many intents of a purchase somebody has tried to pay with.
func (s *sim) confirmed(purchase string) (n int) {
	for _, in := range s.of(purchase) {
		s.mu.Lock()
		if s.tries[in.ID] > 0 {
			n++
		}
		s.mu.Unlock()
	}
	return n
}

// called returns the calls since the last time.
func (s *sim) called() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}
