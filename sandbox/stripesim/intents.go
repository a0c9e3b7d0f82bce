package stripesim

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"triprize/internal/domain/money"
)

// What PaymentIntents take. A parameter of Stripe that has no effect here is refused.
var (
	captureMethods = oneOf("automatic", "automatic_async", "manual")
	howToCapture   = parameters{"capture_method": captureMethods, "payment_method_options[card][capture_method]": oneOf("manual")}
	createIntent   = parameters{
		"amount": number, "currency": text, "payment_method": text, "payment_method_types[]": texts, "description": text,
		"automatic_payment_methods[enabled]": boolean, "automatic_payment_methods[allow_redirects]": oneOf("always", "never"),
		"confirm": boolean, "return_url": text,
	}.with(howToCapture).with(metadata).with(expanding("latest_charge"))
	confirmIntent = parameters{"payment_method": text, "return_url": text}.with(howToCapture).with(expanding("latest_charge"))
	captureIntent = parameters{"amount_to_capture": {integer: true, least: 1}}.with(metadata).with(expanding("latest_charge"))
	cancelIntent  = parameters{"cancellation_reason": oneOf("duplicate", "fraudulent", "requested_by_customer", "abandoned")}.with(expanding("latest_charge"))
)

// mostAmount is Stripe's bound, in minor units.
const mostAmount = 99_999_999

// least are the smallest charges that Stripe takes, in minor units.
var least = map[string]int64{
	"jpy": 50, "usd": 50, "eur": 50, "gbp": 30, "aud": 50, "cad": 50, "chf": 50, "nzd": 50, "sgd": 50, "hkd": 400, "mxn": 1000,
	"dkk": 250, "nok": 300, "sek": 300, "pln": 200, "czk": 1500, "huf": 17500, "thb": 1000, "myr": 200, "inr": 50, "brl": 50, "aed": 200,
}

// readAmount checks amount and currency.
func readAmount(p params) (amount int64, currency string, problem *apiError) {
	for _, name := range []string{"amount", "currency"} {
		if !p.has(name) {
			return 0, "", refuse("parameter_missing", name, "Missing required param: %s.", name)
		}
	}
	amount, currency = p.number("amount"), strings.ToLower(p.text("currency"))
	known, err := money.ParseCurrency(strings.ToUpper(currency))
	if err != nil {
		return 0, "", refuse("", "currency", "Invalid currency: %s.", currency)
	}
	if smallest := max(least[currency], 1); amount < smallest {
		return 0, "", refuse("amount_too_small", "amount", "Amount must be at least %s.", known.Format(money.Amount(smallest)))
	}
	if amount > mostAmount {
		return 0, "", refuse("amount_too_large", "amount", "Amount must be no more than %s.", known.Format(mostAmount))
	}
	return amount, currency, nil
}

func doCreateIntent(c *change, r *call) (object, *apiError) {
	p := r.params
	amount, currency, problem := readAmount(p)
	if problem != nil {
		return nil, problem
	}
	i := &intent{
		head: c.head("pi"), Amount: amount, Currency: currency, Status: requiresMethod, Capture: "automatic_async",
		Description: p.text("description"), Metadata: p.metadata(),
	}
	i.Secret = newID(i.ID + "_secret")
	if problem := i.readTypes(p); problem != nil {
		return nil, problem
	}
	i.readCapture(p)
	if p.has("payment_method") {
		if problem := i.use(p.text("payment_method")); problem != nil {
			return nil, problem
		}
		i.Status = requiresConfirmation
	}
	confirm := p.text("confirm") == "true"
	if p.has("return_url") && !confirm {
		return nil, refuse("", "return_url", "return_url can be given only with confirm=true, or to a confirmation.")
	}
	if confirm {
		if problem := i.mayConfirm(p); problem != nil {
			return nil, problem
		}
	}
	c.add(i)
	c.emit("payment_intent.created", i)
	if confirm {
		if problem := c.confirm(i, p.text("return_url")); problem != nil {
			return nil, problem
		}
	}
	return i.render(0), nil
}

// readTypes reads which types of methods an intent takes. Without a word about them it
// takes all, as at Stripe.
func (i *intent) readTypes(p params) *apiError {
	i.Types = p["payment_method_types[]"]
	for _, kind := range i.Types {
		if kind != "card" && kind != "konbini" {
			return refuse("", "payment_method_types", "The payment method type %q is invalid. The sandbox has card and konbini.", kind)
		}
	}
	switch {
	case p.text("automatic_payment_methods[enabled]") == "true" && i.Types != nil:
		return refuse("parameters_exclusive", "automatic_payment_methods", "You may only specify one of these parameters: automatic_payment_methods, payment_method_types.")
	case p.has("automatic_payment_methods[allow_redirects]") && p.text("automatic_payment_methods[enabled]") != "true":
		return refuse("", "automatic_payment_methods[allow_redirects]", "allow_redirects needs automatic_payment_methods[enabled]=true.")
	case i.Types == nil && p.text("automatic_payment_methods[enabled]") == "false":
		i.Types = []string{"card"}
	case i.Types == nil:
		i.Automatic, i.Types = true, []string{"card", "konbini"}
		i.NoRedirects = p.text("automatic_payment_methods[allow_redirects]") == "never"
	}
	return nil
}

func (i *intent) readCapture(p params) {
	if p.has("capture_method") {
		i.Capture = p.text("capture_method")
	}
	if p.has("payment_method_options[card][capture_method]") {
		i.CardCapture = p.text("payment_method_options[card][capture_method]")
	}
}

// use attaches a payment method.
func (i *intent) use(name string) *apiError {
	m, problem := methodNamed(name)
	if problem != nil {
		return problem
	}
	if !slices.Contains(i.Types, m.kind()) {
		return refuse("payment_intent_incompatible_payment_method", "payment_method", "The PaymentMethod provided (%s) is not allowed for this PaymentIntent. Please attach a PaymentMethod of one of the following types: %s.", m.kind(), strings.Join(i.Types, ", "))
	}
	i.Method, i.Last = name, name
	return nil
}

// holds tells whether a confirmation only holds the money, until it is captured.
func (i *intent) holds(m *method) bool {
	return !m.slow && (i.Capture == "manual" || i.CardCapture == "manual")
}

func doCaptureIntent(c *change, r *call) (object, *apiError) {
	i, problem := known[*intent](c.state, r.object, http.StatusNotFound, "intent")
	if problem != nil {
		return nil, problem
	}
	if i.Status != requiresCapture {
		return nil, conflict(i, "This PaymentIntent could not be captured because it has a status of %s. Only a PaymentIntent with one of the following statuses may be captured: requires_capture.", i.Status)
	}
	amount := i.Capturable
	if r.params.has("amount_to_capture") {
		amount = r.params.number("amount_to_capture")
	}
	if amount > i.Capturable {
		return nil, refused("amount_too_large", "amount_to_capture", "The amount_to_capture is greater than the amount that can be captured: %d.", i.Capturable)
	}
	maps.Copy(i.Metadata, r.params.metadata())
	c.take(i, find[*charge](c.state, i.Charge), amount, "charge.captured")
	return i.render(0), nil
}

func doCancelIntent(c *change, r *call) (object, *apiError) {
	i, problem := known[*intent](c.state, r.object, http.StatusNotFound, "intent")
	if problem != nil {
		return nil, problem
	}
	if i.over() || i.Status == processing {
		return nil, conflict(i, "You cannot cancel this PaymentIntent because it has a status of %s. Only a PaymentIntent with one of the following statuses may be canceled: requires_payment_method, requires_capture, requires_confirmation, requires_action.", i.Status)
	}
	c.cancel(i, r.params.text("cancellation_reason"))
	return i.render(0), nil
}

// confirmable tells whether the status of an intent allows a confirmation.
func (i *intent) confirmable() bool {
	return i.Status == requiresMethod || i.Status == requiresConfirmation || i.Status == requiresAction
}

// mayConfirm checks what a confirmation needs.
func (i *intent) mayConfirm(p params) *apiError {
	if i.Method == "" && !p.has("payment_method") {
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
	i, problem := known[*intent](c.state, r.object, http.StatusNotFound, "intent")
	if problem != nil {
		return nil, problem
	}
	if !i.confirmable() {
		return nil, conflict(i, "You cannot confirm this PaymentIntent because it has a status of %s. Only a PaymentIntent with one of the following statuses may be confirmed: requires_confirmation, requires_action.", i.Status)
	}
	if problem := i.mayConfirm(r.params); problem != nil {
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
	return i.render(0), nil
}

// declined is the answer to a confirmation whose charge failed.
func declined(i *intent, d decline, chargeID string, m *method) *apiError {
	return &apiError{status: http.StatusPaymentRequired, kind: cardError, code: d.Code, declineCode: d.DeclineCode, advice: d.Advice,
		message: d.Message, charge: chargeID, intent: i, method: m, begun: true}
}
