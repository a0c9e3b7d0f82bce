package stripesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"triprize/internal/domain/money"
)

// Totals are what a sandbox has done.
type Totals struct {
	Now         int64            `json:"now"` // Unix seconds of the sandbox's clock
	Account     string           `json:"account"`
	Intents     map[string]int   `json:"payment_intents"` // by status
	Captured    map[string]int64 `json:"captured"`        // by currency, in minor units
	Refunded    map[string]int64 `json:"refunded"`        // of captured money; refunds that failed or were cancelled do not count
	Disputed    int              `json:"disputed"`
	Events      int              `json:"events"`
	Unsent      int              `json:"unsent"`       // events with webhooks that nobody has taken yet
	Requests    int64            `json:"requests"`     // since the start of the process, as the following
	RateLimited int64            `json:"rate_limited"` // answered with 429 as they were too many
	Injected    int64            `json:"injected"`     // faults that were asked for
	Delivered   int64            `json:"webhooks_delivered"`
	Undelivered int64            `json:"webhooks_failed"` // tries
	Endpoints   map[string]int64 `json:"endpoints"`       // requests
}

// Totals counts.
func (s *Server) Totals() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := Totals{
		Now: s.now().Unix(), Account: s.Account(), Intents: map[string]int{}, Captured: map[string]int64{}, Refunded: map[string]int64{}, Disputed: len(s.state.lists["dispute"]),
		Events: len(s.state.lists["event"]), Requests: s.counts.requests, RateLimited: s.counts.limited, Injected: s.counts.injected,
		Delivered: s.counts.delivered, Undelivered: s.counts.undelivered, Endpoints: maps.Clone(s.counts.endpoints),
	}
	for i := range each[*intent](s.state) {
		t.Intents[i.Status]++
	}
	for c := range each[*charge](s.state) {
		if c.Captured {
			t.Captured[c.Currency] += c.Received
			t.Refunded[c.Currency] += c.Refunded
		}
	}
	for e := range each[*event](s.state) {
		if e.Sendings > 0 {
			t.Unsent++
		}
	}
	return t
}

// errUnknown is answered with 404.
var errUnknown = errors.New("there is no such object")

// control is an endpoint by which a test, or a developer, decides what happens.
type control func(*http.Request) (any, error)

func (s *Server) controls(mux *http.ServeMux) {
	for pattern, do := range map[string]control{
		"GET /sandbox/totals":    func(*http.Request) (any, error) { return s.Totals(), nil },
		"GET /sandbox/methods":   func(*http.Request) (any, error) { return Methods(), nil },
		"GET /sandbox/faults":    func(*http.Request) (any, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.faults, nil },
		"PUT /sandbox/faults":    reading(func(f Faults) (any, error) { return f, s.SetFaults(f) }),
		"DELETE /sandbox/faults": func(*http.Request) (any, error) { return Faults{}, s.SetFaults(Faults{}) },
		"PUT /sandbox/away": reading(func(b struct {
			Mode Away `json:"mode"`
		}) (any, error) {
			return b, s.SetAway(b.Mode)
		}),
		"PUT /sandbox/key": reading(func(k Key) (any, error) { return k, s.SetKey(k) }),
		"PUT /sandbox/webhook": reading(func(b struct{ URL, Secret string }) (any, error) {
			return object{"url": b.URL}, s.SetWebhook(b.URL, b.Secret)
		}),
		"POST /sandbox/clock": reading(s.moveClock),
		"POST /sandbox/payment_intents/{id}/finish": choose("outcome", map[string]func(string) error{
			"succeed": func(id string) error { return s.Finish(id, true) },
			"fail":    func(id string) error { return s.Finish(id, false) },
		}),
		"POST /sandbox/refunds/{id}/finish": choose("status", map[string]func(string) error{
			succeeded: func(id string) error { return s.FinishRefund(id, succeeded) },
			failed:    func(id string) error { return s.FinishRefund(id, failed) },
			canceled:  func(id string) error { return s.FinishRefund(id, canceled) },
		}),
		"POST /sandbox/charges/{id}/dispute": func(r *http.Request) (any, error) {
			id, err := s.Dispute(r.PathValue("id"))
			return object{"id": id}, err
		},
		"POST /sandbox/disputes/{id}/escalate": func(r *http.Request) (any, error) { return object{}, s.EscalateDispute(r.PathValue("id")) },
		"POST /sandbox/disputes/{id}/close": choose("status", map[string]func(string) error{
			"won":  func(id string) error { return s.CloseDispute(id, true) },
			"lost": func(id string) error { return s.CloseDispute(id, false) },
		}),
		"POST /sandbox/payouts":            reading(s.payOut),
		"POST /sandbox/events/{id}/resend": func(r *http.Request) (any, error) { return object{}, s.Resend(r.PathValue("id")) },
	} {
		mux.HandleFunc(pattern, s.controlled(do))
	}
}

// controlled answers for a control: 401 without the key, 404 for an object that there is
// not, 400 for what makes no sense.
func (s *Server) controlled(do control) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.authentic(r) {
			write(w, http.StatusUnauthorized, object{"error": "the controls need the sandbox's key"})
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostBody)
		answer, err := do(r)
		switch {
		case errors.Is(err, errUnknown):
			write(w, http.StatusNotFound, object{"error": err.Error()})
		case err != nil:
			write(w, http.StatusBadRequest, object{"error": err.Error()})
		default:
			write(w, http.StatusOK, answer)
		}
	}
}

type clockMove struct {
	AdvanceSeconds int64 `json:"advance_seconds"`
}

func (s *Server) moveClock(by clockMove) (any, error) {
	const longest = 10 * 365 * 24 * 3600
	if by.AdvanceSeconds < 0 || by.AdvanceSeconds > longest {
		return nil, errors.New("advance_seconds must be from 0 to 315360000")
	}
	err := s.Advance(time.Duration(by.AdvanceSeconds) * time.Second)
	return object{"now": s.Totals().Now}, err
}

type payout struct {
	Currency string `json:"currency"`
	Fee      int64  `json:"fee"`
}

func (s *Server) payOut(p payout) (any, error) {
	if _, err := money.ParseCurrency(upper(p.Currency)); err != nil || p.Fee < 0 {
		return nil, errors.New("currency must be one such as jpy, and fee must not be negative")
	}
	ids, err := s.Payout(strings.ToLower(p.Currency), p.Fee)
	return object{"balance_transactions": ids}, err
}

// reading is a control that has a JSON body.
func reading[B any](do func(B) (any, error)) control {
	return func(r *http.Request) (any, error) {
		var body B
		if err := decode(r, &body); err != nil {
			return nil, err
		}
		return do(body)
	}
}

// decode reads a JSON body and refuses names that it does not know.
func decode(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("one JSON object is expected")
	}
	return nil
}

// choose is a control that does what its body's only field chooses.
func choose(field string, choices map[string]func(id string) error) control {
	return func(r *http.Request) (any, error) {
		var body map[string]string
		if err := decode(r, &body); err != nil {
			return nil, err
		}
		do := choices[body[field]]
		if do == nil || len(body) != 1 {
			return nil, fmt.Errorf("the body must be {%q: …} with one of %s", field, strings.Join(slices.Sorted(maps.Keys(choices)), ", "))
		}
		return body, do(r.PathValue("id"))
	}
}

// alter makes a change of one object.
func alter[T entry](s *Server, id string, do func(*change, T) error) (err error) {
	written := s.mutate(itself, func(c *change) {
		v, known := c.by[id].(T)
		if err = errUnknown; known {
			err = do(c, v)
		}
	})
	return errors.Join(err, written)
}

// Finish ends a payment that is processing.
func (s *Server) Finish(intentID string, success bool) error {
	return alter(s, intentID, func(c *change, i *intent) error {
		if i.Status != processing {
			return fmt.Errorf("the payment is not processing but %s", i.Status)
		}
		var reason *decline
		if !success {
			reason = &attemptFailed
		}
		_ = c.charge(i, false, reason) // a decline is in the intent
		return nil
	})
}

// Authenticate does what the page of an action does.
func (s *Server) Authenticate(intentID string, success bool) error {
	return alter(s, intentID, func(c *change, i *intent) error {
		if i.Status != requiresAction {
			return fmt.Errorf("the payment needs no action: it is %s", i.Status)
		}
		c.authenticated(i, success)
		return nil
	})
}

// FinishRefund moves a refund to succeeded, failed or canceled. One that has succeeded
// can still fail.
func (s *Server) FinishRefund(id, status string) error {
	return alter(s, id, func(c *change, r *Refund) error {
		if r.Void || r.Status == failed || r.Status == canceled || (r.Status == succeeded && status != failed) {
			return fmt.Errorf("the refund cannot become %s: it is %s", status, r.Status)
		}
		c.settleRefund(r, status)
		return nil
	})
}

// Dispute begins a dispute about a captured charge now, and returns its id.
func (s *Server) Dispute(chargeID string) (id string, err error) {
	err = alter(s, chargeID, func(c *change, ch *charge) error {
		if !ch.Captured || ch.Dispute != "" || ch.Refunded == ch.Received {
			return errors.New("the charge has nothing left that can be disputed")
		}
		id = c.openDispute(ch).ID
		return nil
	})
	return id, err
}

// EscalateDispute makes an inquiry a dispute: the bank takes the money.
func (s *Server) EscalateDispute(id string) error {
	return alter(s, id, func(c *change, d *dispute) error { return c.escalateDispute(d) })
}

// CloseDispute ends a dispute: won by the shop, or lost.
func (s *Server) CloseDispute(id string, won bool) error {
	return alter(s, id, func(c *change, d *dispute) error { return c.closeDispute(d, won) })
}

// Resend sends an event once more.
func (s *Server) Resend(id string) error {
	return alter(s, id, func(c *change, e *event) error {
		if c.server.settings.WebhookURL == "" {
			return errors.New("there is no webhook URL")
		}
		e.Sendings++
		e.Next = c.now.UnixMilli()
		c.touch(e)
		c.send = append(c.send, alarm{at: e.Next, events: []string{id}})
		return nil
	})
}
