package stripesim

import (
	"maps"
	"strings"

	"github.com/stripe/stripe-go/v85"

	"triprize/internal/domain/money"
)

// object is an object as Stripe writes it.
type object map[string]any

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func (i *intent) render(int64) object {
	o := object{
		"id": i.ID, "object": "payment_intent", "amount": i.Amount, "amount_capturable": i.Capturable, "amount_received": i.Received,
		"amount_details": object{"tip": object{}}, "application": nil, "application_fee_amount": nil, "automatic_payment_methods": nil,
		"canceled_at": nil, "cancellation_reason": orNull(i.Cancellation), "capture_method": i.Capture, "client_secret": i.Secret,
		"confirmation_method": "automatic", "created": i.Created, "currency": i.Currency, "customer": nil, "description": orNull(i.Description),
		"last_payment_error": nil, "latest_charge": orNull(i.Charge), "livemode": false, "metadata": orEmpty(i.Metadata), "next_action": nil,
		"on_behalf_of": nil, "payment_method": orNull(i.Method), "payment_method_options": i.renderOptions(), "payment_method_types": i.Types,
		"processing": nil, "receipt_email": nil, "review": nil, "setup_future_usage": nil, "shipping": nil, "statement_descriptor": nil,
		"statement_descriptor_suffix": nil, "status": i.Status, "transfer_data": nil, "transfer_group": nil,
	}
	if i.Automatic {
		allow := "always"
		if i.NoRedirects {
			allow = "never"
		}
		o["automatic_payment_methods"] = object{"enabled": true, "allow_redirects": allow}
	}
	if i.CanceledAt != 0 {
		o["canceled_at"] = i.CanceledAt
	}
	if i.Action != nil && i.Status == requiresAction {
		o["next_action"] = object{"type": "redirect_to_url", "redirect_to_url": object{"url": i.Action.URL, "return_url": orNull(i.Action.ReturnURL)}}
	}
	if i.Failure != nil {
		o["last_payment_error"] = i.Failure.render()
	}
	return o
}

func (i *intent) renderOptions() object {
	options := object{}
	for _, kind := range i.Types {
		options[kind] = object{}
	}
	if card, ok := options["card"].(object); ok {
		card["installments"], card["mandate_options"], card["network"], card["request_three_d_secure"] = nil, nil, nil, "automatic"
		if i.CardCapture != "" {
			card["capture_method"] = i.CardCapture
		}
	}
	return options
}

func (f *failure) render() object {
	kind := cardError
	if f.Decline == notAuthenticated || f.Decline == attemptFailed {
		kind = invalidRequest
	}
	e := apiError{kind: kind, code: f.Decline.Code, declineCode: f.Decline.DeclineCode, advice: f.Decline.Advice, message: f.Decline.Message, charge: f.Charge, method: table[f.Method]}
	inner, _ := e.body()["error"].(object)
	return inner
}

var billing = object{
	"address": object{"city": nil, "country": nil, "line1": nil, "line2": nil, "postal_code": nil, "state": nil},
	"email":   nil, "name": nil, "phone": nil, "tax_id": nil,
}

func (m *method) render() object {
	o := object{"id": m.name, "object": "payment_method", "billing_details": billing, "created": 0, "customer": nil, "livemode": false, "metadata": object{}, "type": m.kind(), "allow_redisplay": "unspecified"}
	if m.slow {
		o["konbini"] = object{}
		return o
	}
	card := m.card()
	card["display_brand"], card["networks"] = m.brand, object{"available": []string{m.brand}, "preferred": nil}
	card["generated_from"], card["three_d_secure_usage"] = nil, object{"supported": true}
	o["card"] = card
	return o
}

// card is what methods and charges show of a card.
func (m *method) card() object {
	return object{
		"brand": m.brand, "checks": object{"address_line1_check": nil, "address_postal_code_check": nil, "cvc_check": "unchecked"}, "country": m.country,
		"exp_month": 12, "exp_year": 2034, "fingerprint": "sandbox" + m.last4, "funding": "credit", "last4": m.last4, "regulated_status": "unregulated", "wallet": nil,
	}
}

func (c *charge) render(int64) object {
	m := table[c.Method]
	o := object{
		"id": c.ID, "object": "charge", "amount": c.Amount, "amount_captured": c.Received, "amount_refunded": c.Refunded, "application": nil,
		"application_fee": nil, "application_fee_amount": nil, "balance_transaction": orNull(c.Movement), "billing_details": billing,
		"calculated_statement_descriptor": "TRIPRIZE SANDBOX", "captured": c.Captured, "created": c.Created, "currency": c.Currency, "customer": nil,
		"description": orNull(c.Description), "disputed": c.Dispute != "", "failure_balance_transaction": nil, "failure_code": nil, "failure_message": nil,
		"fraud_details": object{}, "livemode": false, "metadata": orEmpty(c.Metadata), "on_behalf_of": nil, "paid": c.Status == succeeded,
		"payment_intent": c.Intent, "payment_method": c.Method, "payment_method_details": c.renderMethod(m), "radar_options": object{},
		"receipt_email": nil, "receipt_number": nil, "receipt_url": nil, "refunded": c.Refunded > 0 && c.Refunded == c.whole(), "review": nil,
		"shipping": nil, "source_transfer": nil, "statement_descriptor": nil, "statement_descriptor_suffix": nil, "status": c.Status,
		"transfer_data": nil, "transfer_group": nil,
	}
	outcome := object{"advice_code": nil, "network_advice_code": nil, "network_decline_code": nil, "network_status": "approved_by_network", "reason": nil,
		"risk_level": "normal", "risk_score": 1, "seller_message": "Payment complete.", "type": "authorized"}
	if c.Decline != nil {
		o["failure_code"], o["failure_message"] = c.Decline.Code, c.Decline.Message
		outcome["network_status"], outcome["type"], outcome["seller_message"] = "declined_by_network", "issuer_declined", "The bank did not return any further details with this decline."
		outcome["reason"], outcome["advice_code"] = orNull(c.Decline.DeclineCode), orNull(c.Decline.Advice)
	}
	o["outcome"] = outcome
	return o
}

// whole is what can be refunded of a charge in all.
func (c *charge) whole() int64 {
	if c.Captured {
		return c.Received
	}
	return c.Amount
}

func (c *charge) renderMethod(m *method) object {
	if m.slow {
		return object{"type": "konbini", "konbini": object{"store": nil}}
	}
	card := m.card()
	for name, value := range (object{"amount_authorized": c.Amount, "authorization_code": nil, "installments": nil, "mandate": nil, "network": m.brand,
		"network_token": object{"used": false}, "network_transaction_id": nil, "three_d_secure": nil}) {
		card[name] = value
	}
	if c.Authenticated {
		card["three_d_secure"] = object{"authentication_flow": "challenge", "electronic_commerce_indicator": "05", "exemption_indicator": nil, "result": "authenticated",
			"result_reason": nil, "transaction_id": nil, "version": "2.2.0"}
	}
	return object{"type": "card", "card": card}
}

func (r *Refund) render(int64) object {
	o := object{
		"id": r.ID, "object": "refund", "amount": r.Amount, "balance_transaction": orNull(r.Movement), "charge": r.Charge, "created": r.Created, "currency": r.Currency,
		"destination_details": object{"type": "card", "card": object{"type": "refund"}}, "metadata": orEmpty(r.Metadata), "payment_intent": r.Intent,
		"reason": orNull(r.Reason), "receipt_number": nil, "source_transfer_reversal": nil, "status": r.Status, "transfer_reversal": nil,
	}
	if r.Failed != "" {
		o["failure_balance_transaction"] = r.Failed
	}
	if r.Failure != "" {
		o["failure_reason"] = r.Failure
	}
	if r.Status == pending {
		o["pending_reason"] = "processing"
	}
	return o
}

func (d *dispute) caseType() string {
	if d.Status == inquiring || d.Status == inquiryClosed {
		return "inquiry"
	}
	return "chargeback"
}

func (d *dispute) render(now int64) object {
	evidence := object{"enhanced_evidence": object{}}
	for name := range strings.FieldsSeq(`access_activity_log billing_address cancellation_policy cancellation_policy_disclosure cancellation_rebuttal
		customer_communication customer_email_address customer_name customer_purchase_ip customer_signature duplicate_charge_documentation
		duplicate_charge_explanation duplicate_charge_id product_description receipt refund_policy refund_policy_disclosure refund_refusal_explanation
		service_date service_documentation shipping_address shipping_carrier shipping_date shipping_documentation shipping_tracking_number
		uncategorized_file uncategorized_text`) {
		evidence[name] = nil
	}
	const week = 7 * 24 * 3600
	due := d.Created + week
	movements := []object{}
	for _, one := range d.Movements {
		movements = append(movements, one.render(now))
	}
	m := table[d.Method]
	return object{
		"id": d.ID, "object": "dispute", "amount": d.Amount, "balance_transactions": movements, "charge": d.Charge, "created": d.Created, "currency": d.Currency,
		"enhanced_eligibility_types": []any{}, "evidence": evidence,
		"evidence_details":     object{"due_by": due, "enhanced_eligibility": object{}, "has_evidence": false, "past_due": now > due, "submission_count": 0},
		"is_charge_refundable": d.caseType() == "inquiry", "livemode": false, "metadata": object{}, "payment_intent": d.Intent,
		"payment_method_details": object{"type": "card", "card": object{"brand": m.brand, "case_type": d.caseType(), "network": m.brand, "network_reason_code": "83"}},
		"reason":                 d.Reason, "status": d.Status,
	}
}

// apiVersion is the release of Stripe's API that the sandbox speaks: that of the pinned client.
const apiVersion = stripe.APIVersion

func (e *event) render(int64) object {
	return object{
		"id": e.ID, "object": "event", "api_version": apiVersion, "created": e.Created, "data": object{"object": e.Object},
		"livemode": false, "pending_webhooks": e.Sendings, "request": object{"id": orNull(e.Request), "idempotency_key": orNull(e.Key)}, "type": e.Type,
	}
}

// Payment is a PaymentIntent with its last charge, for tests that look at the provider's
// side.
type Payment struct {
	ID        string
	Status    string
	Captured  money.Amount
	Refunded  money.Amount // of captured money, without refunds that failed
	Charge    string       // of the last try; empty: none
	Metadata  map[string]string
	ActionURL string // where the buyer authenticates; empty: nowhere
	Disputed  bool
}

// Payments returns all payments, the oldest first.
func (s *Server) Payments() (all []Payment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range each[*intent](s.state) {
		p := Payment{ID: i.ID, Status: i.Status, Captured: money.Amount(i.Received), Charge: i.Charge, Metadata: maps.Clone(i.Metadata)}
		if i.Status == requiresAction {
			p.ActionURL = i.Action.URL
		}
		if c := find[*charge](s.state, i.Charge); c != nil {
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
func (s *Server) Refunds() (all []Refund) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range each[*Refund](s.state) {
		all = append(all, *r)
	}
	return all
}
