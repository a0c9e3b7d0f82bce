package stripesim

import (
	"maps"
	"net/http"
	"net/url"

	"triprize/internal/domain/money"
)

// confirm tries to take the money. The intent has a method that it allows.
func (c *change) confirm(i *intent, returnURL string) *apiError {
	m := table[i.Method]
	i.Failure, i.Action = nil, nil
	c.touch(i)
	switch {
	case m.slow:
		i.Status, i.Ends = processing, c.after(c.server.settings.Processing)
		c.emit("payment_intent.processing", i.render(), i)
	case m.authenticate:
		token := newID("auth")
		i.Status = requiresAction
		i.Action = &action{Token: token, URL: c.base + "/authenticate/" + i.ID + "/" + token, ReturnURL: returnURL}
		c.emit("payment_intent.requires_action", i.render(), i)
	default:
		return c.charge(i, m, false)
	}
	return nil
}

// charge takes or holds the money, unless the card is declined.
func (c *change) charge(i *intent, m *method, authenticated bool) *apiError {
	ch := &charge{
		head: c.head("ch"), Intent: i.ID, Amount: i.Amount, Currency: i.Currency, Method: m.name, Status: succeeded,
		Authenticated: authenticated, Metadata: maps.Clone(i.Metadata), Description: i.Description,
	}
	ch.Decline = m.decline
	if ch.Decline == nil && c.server.faults.declines() {
		ch.Decline = &genericDecline
	}
	c.charges.put(ch)
	c.touch(ch)
	c.touch(i)
	i.Charge = ch.ID
	if ch.Decline != nil {
		ch.Status = failed
		c.fail(i, *ch.Decline, ch.ID)
		c.emit("charge.failed", ch.render(), i)
		return declined(i, *ch.Decline, ch.ID, m)
	}
	if i.holds(m) {
		i.Status, i.Capturable, i.Ends = requiresCapture, i.Amount, c.after(authorizationLife)
		c.emit("charge.succeeded", ch.render(), i)
		c.emit("payment_intent.amount_capturable_updated", i.render(), i)
		return nil
	}
	c.take(i, ch, i.Amount)
	c.emit("charge.succeeded", ch.render(), i)
	c.emit("payment_intent.succeeded", i.render(), i)
	return nil
}

// take makes money of a charge ours.
func (c *change) take(i *intent, ch *charge, amount int64) {
	ch.Captured, ch.Received = true, amount
	ch.Movement = c.move(ch.kindOf("charge", "payment"), "charge", ch.ID, amount, ch.Currency).ID
	i.Status, i.Received, i.Capturable, i.Ends = succeeded, amount, 0, 0
	if table[ch.Method].dispute != "" {
		ch.Disputes = c.after(c.server.settings.Later)
	}
	c.touch(ch)
	c.touch(i)
}

// capture takes held money; the rest is released.
func (c *change) capture(i *intent, amount int64) {
	ch := c.charges.by[i.Charge]
	c.take(i, ch, amount)
	c.emit("charge.captured", ch.render(), i)
	c.emit("payment_intent.succeeded", i.render(), i)
}

// fail notes why a try has failed. The intent can be confirmed again with a method.
func (c *change) fail(i *intent, d decline, chargeID string) {
	i.Status, i.Failure, i.Method = requiresMethod, &failure{d, chargeID, i.Last}, ""
	c.touch(i)
	c.emit("payment_intent.payment_failed", i.render(), i)
}

// cancel ends an intent for ever. Held money is released, which Stripe records as a
// refund of what was never captured.
func (c *change) cancel(i *intent, reason string) {
	held := i.Status == requiresCapture
	i.Status, i.CanceledAt, i.Cancellation, i.Capturable, i.Ends, i.Action = canceled, c.unix(), reason, 0, 0, nil
	c.touch(i)
	if held {
		ch := c.charges.by[i.Charge]
		why := ""
		if reason == "automatic" {
			why = "expired_uncaptured_charge"
		}
		ch.Refunded = ch.Amount
		c.touch(ch)
		r := &refund{head: c.head("re"), Intent: i.ID, Charge: ch.ID, Amount: ch.Amount, Currency: ch.Currency, Status: succeeded, Reason: why, Void: true}
		c.refunds.put(r)
		c.touch(r)
		c.emit("charge.refunded", ch.render(), i)
		c.emit("refund.created", r.render(), i)
	}
	c.emit("payment_intent.canceled", i.render(), i)
}

// finish ends a slow payment. reason nil: it succeeds.
func (c *change) finish(i *intent, reason *decline) {
	m := table[i.Last]
	i.Ends = 0
	if reason != nil {
		ch := &charge{head: c.head("ch"), Intent: i.ID, Amount: i.Amount, Currency: i.Currency, Method: m.name, Status: failed, Decline: reason, Metadata: maps.Clone(i.Metadata)}
		c.charges.put(ch)
		c.touch(ch)
		i.Charge = ch.ID
		c.fail(i, *reason, ch.ID)
		c.emit("charge.failed", ch.render(), i)
		return
	}
	_ = c.charge(i, m, false) // a decline is in the intent
}

// authenticated goes on after the buyer was sent to the page of an action.
func (c *change) authenticated(i *intent, success bool) {
	m := table[i.Last]
	if success {
		i.Action.Outcome = "succeeded"
		if problem := c.charge(i, m, true); problem != nil {
			i.Action.Outcome = failed
		}
		return
	}
	i.Action.Outcome = failed
	c.fail(i, notAuthenticated, "")
}

// openDispute begins a dispute about a charge.
func (c *change) openDispute(ch *charge) *dispute {
	ch.Disputes = 0
	c.touch(ch)
	if ch.Dispute != "" || ch.Refunded == ch.Received {
		return nil
	}
	i, m := c.intents.by[ch.Intent], table[ch.Method]
	d := &dispute{head: c.head("du"), Intent: ch.Intent, Charge: ch.ID, Amount: ch.Received - ch.Refunded, Currency: ch.Currency, Status: needsResponse, Reason: m.dispute, Method: ch.Method}
	if d.Reason == "" {
		d.Reason = "general"
	}
	if m.inquiry {
		d.Status = inquiring // no money moves
	} else {
		d.Movements = append(d.Movements, c.move("adjustment", "dispute", d.ID, -d.Amount, d.Currency))
	}
	ch.Dispute, ch.Disputed = d.ID, !m.inquiry
	c.disputes.put(d)
	c.touch(d)
	c.emit("charge.dispute.created", d.render(c.unix()), i)
	if !m.inquiry {
		c.emit("charge.dispute.funds_withdrawn", d.render(c.unix()), i)
	}
	return d
}

// escalateDispute makes an inquiry a dispute, also one that is closed.
func (c *change) escalateDispute(d *dispute) *apiError {
	if d.caseType() != "inquiry" {
		return refused("", "", "The dispute is no inquiry: %s.", d.Status)
	}
	ch, i := c.charges.by[d.Charge], c.intents.by[d.Intent]
	if ch.Refunded == ch.Received {
		return refused("", "", "The charge was refunded: the bank takes nothing.")
	}
	d.Status, ch.Disputed = needsResponse, true
	d.Movements = append(d.Movements, c.move("adjustment", "dispute", d.ID, -d.Amount, d.Currency))
	c.touch(ch)
	c.touch(d)
	c.emit("charge.dispute.updated", d.render(c.unix()), i)
	c.emit("charge.dispute.funds_withdrawn", d.render(c.unix()), i)
	return nil
}

// closeDispute ends a dispute, for the shop (won) or for the buyer (lost).
func (c *change) closeDispute(d *dispute, won bool) *apiError {
	if d.Status != needsResponse && d.Status != inquiring {
		return refused("", "", "The dispute is closed already: %s.", d.Status)
	}
	i := c.intents.by[d.Intent]
	switch {
	case d.Status == inquiring:
		d.Status = inquiryClosed
	case won:
		d.Status = "won"
		d.Movements = append(d.Movements, c.move("adjustment", "dispute_reversal", d.ID, d.Amount, d.Currency))
		ch := c.charges.by[d.Charge]
		ch.Disputed = false
		c.touch(ch)
		c.emit("charge.dispute.funds_reinstated", d.render(c.unix()), i)
	default:
		d.Status = "lost"
	}
	c.touch(d)
	c.emit("charge.dispute.closed", d.render(c.unix()), i)
	return nil
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

var expandRefund = expanding("charge", "payment_intent", "payment_intent.latest_charge")

var createRefund = parameters{
	"payment_intent": text, "charge": text, "amount": {integer: true, least: 1},
	"reason": oneOf("duplicate", "fraudulent", "requested_by_customer"),
}.with(metadata).with(expandRefund)

func doCreateRefund(c *change, r *call) (object, *apiError) {
	ch, problem := c.refundable(r.params)
	if problem != nil {
		return nil, problem
	}
	left := ch.Received - ch.Refunded
	amount := left
	if r.params.has("amount") {
		amount = r.params.number("amount")
	}
	switch {
	case left == 0:
		return nil, refused("charge_already_refunded", "", "Charge %s has already been refunded.", ch.ID)
	case amount > left:
		format := money.Currency(upper(ch.Currency)).Format
		return nil, refused("", "amount", "Refund amount (%s) is greater than unrefunded amount on charge (%s)", format(money.Amount(amount)), format(money.Amount(left)))
	}
	re := &refund{
		head: c.head("re"), Intent: ch.Intent, Charge: ch.ID, Amount: amount, Currency: ch.Currency, Status: succeeded,
		Reason: r.params.text("reason"), Metadata: r.params.metadata(),
	}
	switch table[ch.Method].refunds {
	case refundsFailLater:
		re.Becomes, re.Ends = failed, c.after(c.server.settings.Later)
	case refundsArePending:
		re.Status, re.Becomes, re.Ends = pending, succeeded, c.after(c.server.settings.Later)
	case refundsRequireAction:
		re.Status = requiresAction
	}
	re.Movement = c.move(ch.kindOf("refund", "payment_refund"), "refund", re.ID, -amount, re.Currency).ID
	ch.Refunded += amount
	c.touch(ch)
	c.refunds.put(re)
	c.touch(re)
	i := c.intents.by[ch.Intent]
	c.emit("refund.created", re.render(), i)
	c.emit("charge.refunded", ch.render(), i)
	return re.render(), nil
}

// refundable finds the captured charge that a refund is about.
func (c *change) refundable(p params) (*charge, *apiError) {
	var ch *charge
	switch {
	case p.has("payment_intent") == p.has("charge"):
		return nil, refuse("parameter_missing", "payment_intent", "One of payment_intent and charge is required, and only one.")
	case p.has("charge"):
		if ch = c.charges.by[p.text("charge")]; ch == nil {
			return nil, missing(http.StatusNotFound, "charge", "charge", p.text("charge"))
		}
	default:
		i := c.intents.by[p.text("payment_intent")]
		if i == nil {
			return nil, missing(http.StatusNotFound, "payment_intent", "payment_intent", p.text("payment_intent"))
		}
		if i.Status == requiresCapture {
			return nil, conflict(i, "This PaymentIntent (%s) has not been captured. Cancel it instead of refunding it.", i.ID)
		}
		if ch = c.charges.by[i.Charge]; ch == nil {
			return nil, refused("", "payment_intent", "This PaymentIntent (%s) does not have a successful charge to refund.", i.ID)
		}
	}
	switch {
	case ch.Refunded > 0 && !ch.Captured:
		return nil, refused("charge_already_refunded", "", "Charge %s has already been refunded.", ch.ID)
	case !ch.Captured:
		return nil, refused("charge_not_refundable", "", "Charge %s does not have captured money to refund.", ch.ID)
	case ch.Disputed:
		return nil, refused("charge_disputed", "", "Charge %s has been charged back; cannot issue a refund.", ch.ID)
	}
	return ch, nil
}

func doGetRefund(c *change, r *call) (object, *apiError) {
	re := c.refunds.by[r.object]
	if re == nil {
		return nil, missing(http.StatusNotFound, "refund", "refund", r.object)
	}
	return re.render(), nil
}

func doCancelRefund(c *change, r *call) (object, *apiError) {
	re := c.refunds.by[r.object]
	if re == nil {
		return nil, missing(http.StatusNotFound, "refund", "refund", r.object)
	}
	if re.Status != requiresAction {
		return nil, refused("", "", "This refund cannot be canceled because it has a status of %s. Only refunds with a status of requires_action can be canceled.", re.Status)
	}
	c.settleRefund(re, canceled)
	return re.render(), nil
}

// settleRefund moves a refund to another status. Money of a failed or cancelled
// refund can be refunded again.
func (c *change) settleRefund(r *refund, status string) {
	ch, i := c.charges.by[r.Charge], c.intents.by[r.Intent]
	r.Ends, r.Becomes, r.Status = 0, "", status
	c.touch(r)
	if status == failed || status == canceled {
		r.Failed = c.move(ch.kindOf("refund_failure", "payment_refund"), "refund_failure", r.ID, r.Amount, r.Currency).ID
		ch.Refunded -= r.Amount
		c.touch(ch)
		r.Failure = "expired_or_canceled_card"
		if status == canceled {
			r.Failure = "merchant_request"
		}
	}
	c.emit("refund.updated", r.render(), i)
	if status == failed {
		c.emit("refund.failed", r.render(), i)
	}
}
