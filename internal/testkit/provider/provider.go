// Package provider is a card provider with intents, refunds and idempotency keys, for tests. It remembers its
// answers under their keys. A test lets things happen in its calls, see [Hook].
package provider

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
)

// Double is a provider with a state. Its fields are the test's.
type Double struct {
	payprovider.Provider

	Alter    func(in *payprovider.Intent) // what comes back instead
	Refunds  []payprovider.Refund
	Disputes []payprovider.Dispute
	Asked    []payprovider.NewRefund
	Status   payprovider.RefundStatus // of new refunds; empty: succeeded
	Failure  string                   // of new refunds
	Broken   []string                 // rules of the provider's that were broken by us

	mu      sync.Mutex
	intents map[string]*payprovider.Intent
	made    []string // ids of intents, in order
	tries   map[string]int
	keys    map[string]answer
	calls   []string // with keys: create#1, confirm#1:method-1, create#1/400, …
	hooks   []*Hook
}

// answer is what is stored under a key.
type answer struct {
	call  string
	about any // what was asked for; nil: anything
	value any
	err   error
}

// Hook is what happens in a call, before or after its effect. An error is the answer instead, and what panics is a
// worker that dies.
type Hook struct {
	Call  string // or any
	Skip  int    // so many calls before it
	Once  bool
	After bool
	Do    func(call string) error
}

// New returns a provider without intents.
func New() *Double {
	return &Double{intents: make(map[string]*payprovider.Intent), tries: make(map[string]int), keys: make(map[string]answer)}
}

// Failed is an error of the provider.
func Failed(kind payprovider.ErrorKind, code string) *payprovider.Error {
	return &payprovider.Error{Kind: kind, Call: "sim", Code: code, Message: "simulated"}
}

// Hook lets something happen in calls, until Mend.
func (d *Double) Hook(h Hook) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hooks = append(d.hooks, &h)
}

// Fail has every call fail, until Mend.
func (d *Double) Fail(err error) { d.Hook(Hook{Call: "any", Do: func(string) error { return err }}) }

// Mend ends what happens in calls, and alters nothing more.
func (d *Double) Mend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hooks, d.Alter = nil, nil
}

// happens runs the hooks of a call, without the lock: they may call, too.
func (d *Double) happens(call string, after bool) (err error) {
	d.mu.Lock()
	var now []*Hook
	for _, h := range d.hooks {
		if h.After != after || h.Call != call && h.Call != "any" {
			continue
		}
		if h.Skip--; h.Skip < 0 {
			now = append(now, h)
		}
	}
	d.hooks = slices.DeleteFunc(d.hooks, func(h *Hook) bool { return h.Once && slices.Contains(now, h) })
	d.mu.Unlock()
	for _, h := range now {
		if failed := h.Do(call); failed != nil {
			err = failed
		}
	}
	return err
}

// do runs a call as a provider does: once per key, then the stored answer.
func do[T any](d *Double, call, told, key string, about any, effect func() (T, error)) (result T, err error) {
	d.mu.Lock()
	d.calls = append(d.calls, call+told)
	d.mu.Unlock()
	if err := d.happens(call, false); err != nil {
		return result, err
	}
	done, err := once(d, call, key, about, effect)
	if lost := d.happens(call, true); lost != nil {
		return result, lost
	}
	return done, err
}

func once[T any](d *Double, call, key string, about any, effect func() (T, error)) (T, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	stored, ok := d.keys[key]
	switch {
	case key == "" || !ok:
		result, err := effect()
		if key != "" {
			d.keys[key] = answer{call, about, result, err}
		}
		return result, err
	case stored.call != call:
		d.Broken = append(d.Broken, fmt.Sprintf("key %s was used for %s and for %s", key, stored.call, call))
	}
	result, _ := stored.value.(T)
	if stored.about != nil && stored.about != about {
		return result, &payprovider.Error{Kind: payprovider.KindMismatch, Code: "idempotency_error", Call: call, Message: "this key was used with other parameters"}
	}
	return result, stored.err
}

// Store stores a fault under a key, as a provider does that failed in the middle.
func (d *Double) Store(call, key string, about any, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.keys[key]; !ok {
		d.keys[key] = answer{call: call, about: about, err: err}
	}
}

// Forget forgets all keys.
func (d *Double) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.keys)
}

// Called returns the calls since the last time.
func (d *Double) Called() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
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

// intent is a call about an intent.
func (d *Double) intent(call, id, key string, effect func(in *payprovider.Intent) error) (payprovider.Intent, error) {
	in, err := do(d, call, keyOf(call, id, key), key, nil, func() (payprovider.Intent, error) {
		in := d.intents[id]
		if in == nil {
			return payprovider.Intent{}, Failed(payprovider.KindRefused, "resource_missing")
		}
		if err := effect(in); err != nil {
			return payprovider.Intent{}, err
		}
		return *in, nil
	})
	if err == nil && d.Alter != nil {
		d.Alter(&in)
	}
	return in, err
}

var errState = Failed(payprovider.KindConflict, "payment_intent_unexpected_state")

// CreateIntent implements payprovider.Provider.
func (d *Double) CreateIntent(_ context.Context, n payprovider.NewIntent) (payprovider.Intent, error) {
	in, err := do(d, "create", keyOf("create", n.Key, n.Key), n.Key, nil, func() (payprovider.Intent, error) {
		if n.PaymentMethod == "pm_unknown" {
			return payprovider.Intent{}, Failed(payprovider.KindRefused, "resource_missing")
		}
		in := payprovider.Intent{ID: fmt.Sprintf("pi_%s_%d", n.Metadata["purchase_id"], len(d.made)), Status: payprovider.RequiresConfirmation, Amount: n.Amount,
			Currency: n.Currency, PaymentMethod: n.PaymentMethod, Metadata: n.Metadata}
		d.put(in)
		d.made = append(d.made, in.ID)
		return in, nil
	})
	if err == nil && d.Alter != nil {
		d.Alter(&in)
	}
	return in, err
}

// ConfirmIntent implements payprovider.Provider. The payment method says what becomes of it.
func (d *Double) ConfirmIntent(_ context.Context, id, key, method, _ string) (payprovider.Intent, error) {
	return d.intent("confirm", id, key, func(in *payprovider.Intent) error {
		another := in.Status == payprovider.RequiresAction && strings.Contains(key, ":method-")
		if in.Status != payprovider.RequiresConfirmation && in.Status != payprovider.RequiresPaymentMethod && !another {
			return errState
		}
		if method == "pm_unknown" {
			return Failed(payprovider.KindRefused, "resource_missing")
		}
		d.tries[id]++
		in.PaymentMethod, in.ActionURL = method, ""
		switch method {
		case "pm_declined_once": // the second confirmation succeeds
			if d.tries[id] == 1 {
				return declined(in, "insufficient_funds")
			}
			in.Status = payprovider.RequiresCapture
		case "pm_declined":
			return declined(in, "generic_decline")
		case "pm_action":
			in.Status, in.ActionURL = payprovider.RequiresAction, "https://bank.example/"+id+"/"+strconv.Itoa(d.tries[id])
		case "pm_no_page":
			in.Status = payprovider.RequiresAction
		case "pm_processing":
			in.Status = payprovider.Processing
		case "pm_at_once":
			in.Status, in.Received = payprovider.Succeeded, in.Amount
		default:
			in.Status = payprovider.RequiresCapture
		}
		return nil
	})
}

func declined(in *payprovider.Intent, code string) error {
	in.Status, in.Decline = payprovider.RequiresPaymentMethod, &payprovider.Decline{Code: "card_declined", DeclineCode: code}
	return &payprovider.Error{Kind: payprovider.KindDeclined, Call: "confirm", Code: "card_declined", Decline: in.Decline}
}

// CaptureIntent implements payprovider.Provider.
func (d *Double) CaptureIntent(_ context.Context, id, key string, amount money.Amount) (payprovider.Intent, error) {
	return d.intent("capture", id, key, func(in *payprovider.Intent) error {
		if in.Status != payprovider.RequiresCapture {
			return errState
		}
		in.Status, in.Received = payprovider.Succeeded, amount
		return nil
	})
}

// CancelIntent implements payprovider.Provider.
func (d *Double) CancelIntent(_ context.Context, id, key string) (payprovider.Intent, error) {
	return d.intent("cancel", id, key, func(in *payprovider.Intent) error {
		switch in.Status {
		case payprovider.Succeeded, payprovider.Processing, payprovider.Canceled:
			return errState
		}
		in.Status, in.ActionURL = payprovider.Canceled, ""
		return nil
	})
}

// Intent implements payprovider.Provider.
func (d *Double) Intent(_ context.Context, id string) (payprovider.Intent, error) {
	return d.intent("fetch", id, "", func(*payprovider.Intent) error { return nil })
}

// Put adds an intent, or replaces it.
func (d *Double) Put(in payprovider.Intent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.put(in)
}

func (d *Double) put(in payprovider.Intent) { d.intents[in.ID] = &in }

// Lose has an intent gone.
func (d *Double) Lose(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.intents, id)
}

// Move changes the intents of a purchase from outside, as buyers and banks do.
func (d *Double) Move(purchase string, from, to payprovider.IntentStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, in := range d.intents {
		if in.Metadata["purchase_id"] == purchase && in.Status == from {
			in.Status, in.ActionURL = to, ""
			if to == payprovider.Succeeded {
				in.Received = in.Amount
			}
		}
	}
}

// Of returns the intents of a purchase, and with how many of them somebody has tried to pay.
func (d *Double) Of(purchase string) (all []payprovider.Intent, confirmed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range d.made {
		if in := d.intents[id]; in != nil && in.Metadata["purchase_id"] == purchase {
			all = append(all, *in)
			if d.tries[id] > 0 {
				confirmed++
			}
		}
	}
	return all, confirmed
}

// CreateRefund implements payprovider.Provider. An intent is refunded up to what it has received.
func (d *Double) CreateRefund(_ context.Context, n payprovider.NewRefund) (payprovider.Refund, error) {
	d.mu.Lock()
	d.Asked = append(d.Asked, n)
	d.mu.Unlock()
	prefix, attempt := "re:"+n.Metadata["refund_id"]+":", n.Metadata["attempt"]
	if n.Key != prefix+attempt {
		return payprovider.Refund{}, fmt.Errorf("the key %s is not that of attempt %s", n.Key, attempt)
	}
	return do(d, "create", fmt.Sprintf("#%s/%d", attempt, n.Amount), n.Key, n.Amount, func() (payprovider.Refund, error) { return d.refund(n) })
}

func (d *Double) refund(n payprovider.NewRefund) (payprovider.Refund, error) {
	in := d.intents[n.IntentID]
	if in == nil {
		return payprovider.Refund{}, &payprovider.Error{Kind: payprovider.KindRefused, Code: "resource_missing"}
	}
	if d.Returned()+n.Amount > in.Received {
		return payprovider.Refund{}, &payprovider.Error{Kind: payprovider.KindConflict, Code: "charge_already_refunded", Message: "it has already been refunded"}
	}
	return d.AddRefund(n.IntentID, n.Amount, d.Status, n.Metadata), nil
}

// AddRefund adds a refund that nobody has asked for here.
func (d *Double) AddRefund(intent string, amount money.Amount, status payprovider.RefundStatus, metadata map[string]string) payprovider.Refund {
	if status == "" {
		status = payprovider.RefundSucceeded
	}
	made := payprovider.Refund{ID: fmt.Sprintf("re_%d_%s", len(d.Refunds)+1, intent), IntentID: intent, Status: status, Amount: amount,
		Currency: "JPY", Failure: d.Failure, Metadata: metadata}
	d.Refunds = append(d.Refunds, made)
	return made
}

// Arrive lets the first call for a refund arrive now.
func (d *Double) Arrive() {
	n := d.Asked[0]
	d.mu.Lock()
	delete(d.keys, n.Key) // whatever was said of it
	d.mu.Unlock()
	_, _ = once(d, "create", n.Key, n.Amount, func() (payprovider.Refund, error) { return d.refund(n) })
}

// Returned is how much was given back.
func (d *Double) Returned() (sum money.Amount) {
	for _, r := range d.Refunds {
		if r.Status != payprovider.RefundFailed && r.Status != payprovider.RefundCanceled {
			sum += r.Amount
		}
	}
	return sum
}

// Refund implements payprovider.Provider.
func (d *Double) Refund(_ context.Context, id string) (payprovider.Refund, error) {
	return do(d, "fetch", "", "", nil, func() (payprovider.Refund, error) {
		for _, r := range d.Refunds {
			if r.ID == id {
				return r, nil
			}
		}
		return payprovider.Refund{}, &payprovider.Error{Kind: payprovider.KindRefused, Code: "resource_missing"}
	})
}

// RefundsOf implements payprovider.Provider.
func (d *Double) RefundsOf(_ context.Context, intent string) ([]payprovider.Refund, error) {
	return do(d, "list", "", "", nil, func() ([]payprovider.Refund, error) {
		if d.intents[intent] == nil {
			return nil, nil
		}
		return slices.Clone(d.Refunds), nil // there is only one intent
	})
}

// DisputesOf implements payprovider.Provider.
func (d *Double) DisputesOf(context.Context, string) ([]payprovider.Dispute, error) {
	return do(d, "disputes", "", "", nil, func() ([]payprovider.Dispute, error) { return slices.Clone(d.Disputes), nil })
}

// Tell lets a story happen: each line is commands, and what is then, after an arrow. do carries out one command and
// returns what it says; now says what is.
func Tell(t testing.TB, story string, do func(command string) (said string), now func(said string) string) {
	t.Helper()
	said := ""
	for line := range strings.Lines(story) {
		commands, want, checked := strings.Cut(strings.TrimSpace(line), " → ")
		for command := range strings.SplitSeq(commands, "; ") {
			if command != "" {
				said = do(command)
			}
		}
		if got := now(said); checked && got != want {
			t.Errorf("%s\n     → %s\nwant → %s", commands, got, want)
		}
	}
}
