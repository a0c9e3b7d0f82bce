package stripesim

import (
	"cmp"
	"errors"
	"fmt"
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
		c.emit("payment_intent.processing", i)
	case m.authenticate:
		token := newID("auth")
		i.Status = requiresAction
		i.Action = &action{Token: token, URL: c.call.base + "/authenticate/" + i.ID + "/" + token, ReturnURL: returnURL}
		c.emit("payment_intent.requires_action", i)
	default:
		return c.charge(i, false, nil)
	}
	return nil
}

// charge takes or holds the money, unless the card is declined, or the try fails for another reason.
func (c *change) charge(i *intent, authenticated bool, reason *decline) *apiError {
	m := table[i.Last]
	ch := &charge{
		head: c.head("ch"), Intent: i.ID, Amount: i.Amount, Currency: i.Currency, Method: m.name, Status: succeeded,
		Authenticated: authenticated, Metadata: maps.Clone(i.Metadata), Description: i.Description,
	}
	ch.Decline = cmp.Or(reason, m.decline)
	if ch.Decline == nil && c.server.chance(c.server.faults.Decline) {
		ch.Decline = &genericDecline
	}
	c.add(ch)
	i.Charge, i.Ends = ch.ID, 0
	switch {
	case ch.Decline != nil:
		ch.Status = failed
		c.fail(i, *ch.Decline, ch.ID)
		c.emit("charge.failed", ch)
		return declined(i, *ch.Decline, ch.ID, m)
	case i.holds(m):
		i.Status, i.Capturable, i.Ends = requiresCapture, i.Amount, c.after(authorizationLife)
		c.emit("charge.succeeded", ch)
		c.emit("payment_intent.amount_capturable_updated", i)
	default:
		c.take(i, ch, i.Amount, "charge.succeeded")
	}
	return nil
}

// take makes money of a charge ours; the rest of what was held is released.
func (c *change) take(i *intent, ch *charge, amount int64, event string) {
	ch.Captured, ch.Received = true, amount
	ch.Movement = c.move(ch.kindOf("charge", "payment"), "charge", ch.ID, amount, ch.Currency).ID
	i.Status, i.Received, i.Capturable, i.Ends = succeeded, amount, 0, 0
	if table[ch.Method].dispute != "" {
		ch.Disputes = c.after(c.server.settings.Later)
	}
	c.emit(event, ch)
	c.emit("payment_intent.succeeded", i)
}

// fail notes why a try has failed. The intent can be confirmed again with a method.
func (c *change) fail(i *intent, d decline, chargeID string) {
	i.Status, i.Failure, i.Method = requiresMethod, &failure{d, chargeID, i.Last}, ""
	c.emit("payment_intent.payment_failed", i)
}

// cancel ends an intent for ever. Held money is released, which Stripe records as a
// refund of what was never captured.
func (c *change) cancel(i *intent, reason string) {
	held := i.Status == requiresCapture
	i.Status, i.CanceledAt, i.Cancellation, i.Capturable, i.Ends, i.Action = canceled, c.unix(), reason, 0, 0, nil
	if held {
		ch := find[*charge](c.state, i.Charge)
		ch.Refunded = ch.Amount
		r := &Refund{head: c.head("re"), Intent: i.ID, Charge: ch.ID, Amount: ch.Amount, Currency: ch.Currency, Status: succeeded, Void: true}
		if reason == "automatic" {
			r.Reason = "expired_uncaptured_charge"
		}
		c.add(r)
		c.emit("charge.refunded", ch)
		c.emit("refund.created", r)
	}
	c.emit("payment_intent.canceled", i)
}

// authenticated goes on after the buyer was sent to the page of an action.
func (c *change) authenticated(i *intent, success bool) {
	i.Action.Outcome = failed
	if !success {
		c.fail(i, notAuthenticated, "")
	} else if c.charge(i, true, nil) == nil {
		i.Action.Outcome = "succeeded"
	}
}

// openDispute begins a dispute about a charge.
func (c *change) openDispute(ch *charge) *dispute {
	ch.Disputes = 0
	c.touch(ch)
	if ch.Dispute != "" || ch.Refunded == ch.Received {
		return nil
	}
	m := table[ch.Method]
	d := &dispute{head: c.head("du"), Intent: ch.Intent, Charge: ch.ID, Amount: ch.Received - ch.Refunded, Currency: ch.Currency,
		Status: needsResponse, Reason: cmp.Or(m.dispute, "general"), Method: ch.Method}
	ch.Dispute = d.ID
	c.add(d)
	if m.inquiry {
		d.Status = inquiring // no money moves
		c.emit("charge.dispute.created", d)
	} else {
		c.withdraw(d, ch, "charge.dispute.created")
	}
	return d
}

// withdraw takes the money of a dispute.
func (c *change) withdraw(d *dispute, ch *charge, event string) {
	d.Status, ch.Disputed = needsResponse, true
	d.Movements = append(d.Movements, c.move("adjustment", "dispute", d.ID, -d.Amount, d.Currency))
	c.touch(ch)
	c.emit(event, d)
	c.emit("charge.dispute.funds_withdrawn", d)
}

// escalateDispute makes an inquiry a dispute, also one that is closed.
func (c *change) escalateDispute(d *dispute) error {
	ch := find[*charge](c.state, d.Charge)
	switch {
	case d.caseType() != "inquiry":
		return fmt.Errorf("the dispute is no inquiry: %s", d.Status)
	case ch.Refunded == ch.Received:
		return errors.New("the charge was refunded: the bank takes nothing")
	}
	c.withdraw(d, ch, "charge.dispute.updated")
	return nil
}

// closeDispute ends a dispute, for the shop (won) or for the buyer (lost).
func (c *change) closeDispute(d *dispute, won bool) error {
	switch {
	case d.Status == inquiring:
		d.Status = inquiryClosed
	case d.Status != needsResponse:
		return fmt.Errorf("the dispute is closed already: %s", d.Status)
	case won:
		d.Status = "won"
		d.Movements = append(d.Movements, c.move("adjustment", "dispute_reversal", d.ID, d.Amount, d.Currency))
		ch := find[*charge](c.state, d.Charge)
		ch.Disputed = false
		c.touch(ch)
		c.emit("charge.dispute.funds_reinstated", d)
	default:
		d.Status = "lost"
	}
	c.emit("charge.dispute.closed", d)
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
	re := &Refund{
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
	c.add(re)
	c.emit("refund.created", re)
	c.emit("charge.refunded", ch)
	return re.render(0), nil
}

// refundable finds the captured charge that a refund is about.
func (c *change) refundable(p params) (ch *charge, problem *apiError) {
	if p.has("payment_intent") == p.has("charge") {
		return nil, refuse("parameter_missing", "payment_intent", "One of payment_intent and charge is required, and only one.")
	}
	id := p.text("charge")
	if p.has("payment_intent") {
		i, problem := known[*intent](c.state, p.text("payment_intent"), http.StatusNotFound, "payment_intent")
		if problem != nil {
			return nil, problem
		}
		switch id = i.Charge; {
		case i.Status == requiresCapture:
			return nil, conflict(i, "This PaymentIntent (%s) has not been captured. Cancel it instead of refunding it.", i.ID)
		case id == "":
			return nil, refused("", "payment_intent", "This PaymentIntent (%s) does not have a successful charge to refund.", i.ID)
		}
	}
	if ch, problem = known[*charge](c.state, id, http.StatusNotFound, "charge"); problem != nil {
		return nil, problem
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

func doCancelRefund(c *change, r *call) (object, *apiError) {
	re, problem := known[*Refund](c.state, r.object, http.StatusNotFound, "refund")
	if problem != nil {
		return nil, problem
	}
	if re.Status != requiresAction {
		return nil, refused("", "", "This refund cannot be canceled because it has a status of %s. Only refunds with a status of requires_action can be canceled.", re.Status)
	}
	c.settleRefund(re, canceled)
	return re.render(0), nil
}

// settleRefund moves a refund to another status. Money of a failed or cancelled
// refund can be refunded again.
func (c *change) settleRefund(r *Refund, status string) {
	ch := find[*charge](c.state, r.Charge)
	r.Ends, r.Becomes, r.Status = 0, "", status
	if status == failed || status == canceled {
		r.Failed = c.move(ch.kindOf("refund_failure", "payment_refund"), "refund_failure", r.ID, r.Amount, r.Currency).ID
		ch.Refunded -= r.Amount
		c.touch(ch)
		r.Failure = "expired_or_canceled_card"
		if status == canceled {
			r.Failure = "merchant_request"
		}
	}
	c.emit("refund.updated", r)
	if status == failed {
		c.emit("refund.failed", r)
	}
}
