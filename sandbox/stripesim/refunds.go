package stripesim

import (
	"net/http"

	"triprize/internal/domain/money"
)

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
		ID: newID("re"), Intent: ch.Intent, Charge: ch.ID, Created: c.unix(), Amount: amount, Currency: ch.Currency, Status: succeeded,
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
