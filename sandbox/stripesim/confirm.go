package stripesim

import (
	"net/http"
	"slices"
	"strings"
)

// confirmable checks what a confirmation needs.
func (i *intent) confirmable(p params) *apiError {
	method := i.Method
	if p.has("payment_method") {
		method = p.text("payment_method")
	}
	if method == "" {
		e := conflict(i, "You cannot confirm this PaymentIntent because it's missing a payment method. You can either update the PaymentIntent with a payment method and then confirm it again, or confirm it again directly with a payment method or ConfirmationToken.")
		e.begun = false
		return e
	}
	if i.Automatic && !i.NoRedirects && !p.has("return_url") {
		return refuse("", "return_url", "This PaymentIntent is configured to accept payment methods enabled in your Dashboard. Because some of these payment methods might redirect your customer off of your page, you must provide a `return_url`. If you don't want to accept redirect-based payment methods, set `automatic_payment_methods[enabled]` to `true` and `automatic_payment_methods[allow_redirects]` to `never` when creating the PaymentIntent.")
	}
	if to := p.text("return_url"); to != "" && !isURL(to) {
		return refuse("url_invalid", "return_url", "Not a valid URL")
	}
	return nil
}

func doConfirmIntent(c *change, r *call) (object, *apiError) {
	i, problem := c.intent(r.object)
	if problem != nil {
		return nil, problem
	}
	if !slices.Contains([]string{requiresMethod, requiresConfirmation, requiresAction}, i.Status) {
		return nil, conflict(i, "You cannot confirm this PaymentIntent because it has a status of %s. Only a PaymentIntent with one of the following statuses may be confirmed: requires_confirmation, requires_action.", i.Status)
	}
	if problem := i.confirmable(r.params); problem != nil {
		return nil, problem
	}
	if r.params.has("payment_method") {
		if problem := i.use(r.params.text("payment_method")); problem != nil {
			return nil, problem
		}
	}
	i.readCapture(r.params)
	if problem := c.confirm(i, r.params.text("return_url")); problem != nil {
		return nil, problem
	}
	return i.render(), nil
}

// declined is the answer to a confirmation whose charge failed.
func declined(i *intent, d decline, chargeID string, m *method) *apiError {
	return &apiError{status: http.StatusPaymentRequired, kind: cardError, code: d.Code, declineCode: d.DeclineCode, advice: d.Advice,
		message: d.Message, charge: chargeID, intent: i, method: m, begun: true}
}

// planIntent says what will go wrong with a call on an intent, by its payment method.
func planIntent(c *change, r *call) fault {
	i := c.intents.by[r.object]
	if i == nil {
		return noFault
	}
	name := i.Last
	if r.params.has("payment_method") {
		name = r.params.text("payment_method")
	}
	m := table[name]
	if m == nil {
		return noFault
	}
	if m.fault == slow {
		return slow
	}
	if !strings.HasSuffix(r.route.pattern, "/confirm") || !slices.Contains([]string{requiresMethod, requiresConfirmation, requiresAction}, i.Status) {
		return noFault
	}
	const refusals = 2
	switch {
	case m.fault == tooMany && i.Refused < refusals:
		i.Refused++
	case m.fault == errorOnce && !i.Broke:
		i.Broke = true
	case m.fault == timeoutAfterCharge && !i.Hung:
		i.Hung = true
	default:
		return noFault
	}
	c.touch(i)
	return m.fault
}
