package stripesim

import (
	"maps"
	"slices"
	"strings"
)

// method is a payment method, and what happens to payments with it.
type method struct {
	name    string
	slow    bool // no card: it is processing for a while, and cannot be held
	brand   string
	last4   string
	country string

	decline      *decline // of every try
	authenticate bool     // the buyer must, before the charge
	dispute      string   // reason of a dispute that begins later
	inquiry      bool     // the dispute is an inquiry
	refunds      refunding
	fault        fault
	webhooks     delivering
}

// decline is why a charge fails.
type decline struct {
	Code        string
	DeclineCode string
	Advice      string
	Message     string
}

// refunding is what becomes of refunds.
type refunding string

const (
	refundsSucceed       refunding = ""
	refundsFailLater     refunding = "fail later"
	refundsArePending    refunding = "are pending"
	refundsRequireAction refunding = "require an action"
)

// fault is what goes wrong at a confirmation.
type fault string

const (
	noFault            fault = ""
	timeoutAfterCharge fault = "timeout after the charge"
	errorOnce          fault = "500 once"
	tooMany            fault = "429 twice"
	slow               fault = "slow"
)

// delivering is how the events of a payment are sent.
type delivering string

const (
	sentOnce     delivering = ""
	sentNever    delivering = "never"
	sentTwice    delivering = "twice"
	sentLate     delivering = "late"
	sentReversed delivering = "reversed"
)

var (
	genericDecline    = decline{"card_declined", "generic_decline", "try_again_later", "Your card was declined."}
	insufficientFunds = decline{"card_declined", "insufficient_funds", "try_again_later", "Your card has insufficient funds."}
	lostCard          = decline{"card_declined", "lost_card", "do_not_try_again", "Your card was declined."}
	stolenCard        = decline{"card_declined", "stolen_card", "do_not_try_again", "Your card was declined."}
	fraudulentCard    = decline{"card_declined", "fraudulent", "do_not_try_again", "Your card was declined."}
	velocityExceeded  = decline{"card_declined", "card_velocity_exceeded", "try_again_later", "Your card was declined for making repeated attempts too frequently or exceeding its amount limit."}
	expiredCard       = decline{"expired_card", "", "confirm_card_data", "Your card has expired."}
	incorrectCVC      = decline{"incorrect_cvc", "", "confirm_card_data", "Your card's security code is incorrect."}
	incorrectNumber   = decline{"incorrect_number", "", "confirm_card_data", "Your card number is incorrect."}
	processingError   = decline{"processing_error", "", "try_again_later", "An error occurred while processing your card. Try again in a little bit."}

	notAuthenticated = decline{"payment_intent_authentication_failure", "", "", "We are unable to authenticate your payment method. Please choose a different payment method and try again."}
	attemptFailed    = decline{"payment_intent_payment_attempt_failed", "", "", "The payment failed."}
)

// table has every payment method by its name.
var table = tabulate()

// Methods returns the names of all payment methods, sorted.
func Methods() []string { return slices.Sorted(maps.Keys(table)) }

func tabulate() map[string]*method {
	all := make(map[string]*method)
	add := func(name string, m method) {
		m.name = name
		if m.brand == "" {
			m.brand, m.last4 = "visa", "4242"
		}
		if m.country == "" {
			m.country = "US"
		}
		all[name] = &m
	}
	for brand, last4 := range map[string]string{
		"visa": "4242", "mastercard": "4444", "amex": "8431", "discover": "1117", "diners": "0004", "jcb": "0505", "unionpay": "0005",
	} {
		add("pm_card_"+brand, method{brand: brand, last4: last4})
	}
	add("pm_card_jp", method{last4: "0003", country: "JP"})
	for name, d := range map[string]decline{
		"": genericDecline, "InsufficientFunds": insufficientFunds, "LostCard": lostCard, "StolenCard": stolenCard, "ExpiredCard": expiredCard,
		"IncorrectCvc": incorrectCVC, "IncorrectNumber": incorrectNumber, "ProcessingError": processingError, "VelocityLimitExceeded": velocityExceeded,
	} {
		add("pm_card_chargeDeclined"+name, method{decline: &d, last4: "0002"})
		add("pm_card_visa_chargeDeclined"+name, method{decline: &d, last4: "0002"}) // Stripe has both spellings
	}
	add("pm_card_chargeCustomerFail", method{decline: &genericDecline, last4: "0341"})
	add("pm_card_radarBlock", method{decline: &fraudulentCard, last4: "0019"})
	for name, d := range map[string]*decline{
		"pm_card_authenticationRequired": nil, "pm_card_authenticationRequiredOnSetup": nil, "pm_card_threeDSecureRequired": nil, "pm_card_threeDSecure2Required": nil,
		"pm_card_authenticationRequiredChargeDeclinedInsufficientFunds": &insufficientFunds, "pm_card_threeDSecureRequiredChargeDeclined": &genericDecline,
	} {
		add(name, method{authenticate: true, decline: d, last4: "3184"})
	}
	add("pm_card_createDispute", method{dispute: "fraudulent", last4: "0259"})
	add("pm_card_createDisputeProductNotReceived", method{dispute: "product_not_received", last4: "2685"})
	add("pm_card_createDisputeInquiry", method{dispute: "fraudulent", inquiry: true, last4: "1976"})
	add("pm_card_pendingRefund", method{refunds: refundsArePending, last4: "7726"})
	add("pm_card_refundFail", method{refunds: refundsFailLater, last4: "5126"})
	add("pm_sandbox_refund_requires_action", method{refunds: refundsRequireAction})
	for name, f := range map[string]fault{"timeout_after_charge": timeoutAfterCharge, "500_once": errorOnce, "429": tooMany, "slow": slow} {
		add("pm_sandbox_"+name, method{fault: f})
	}
	for name, w := range map[string]delivering{"never": sentNever, "twice": sentTwice, "late": sentLate, "reversed": sentReversed} {
		add("pm_sandbox_webhook_"+name, method{webhooks: w})
	}
	add("pm_sandbox_processing", method{slow: true})
	return all
}

// methodNamed finds the payment method of a request.
func methodNamed(name string) (*method, *apiError) {
	m, ok := table[name]
	if !ok {
		e := missing(400, "PaymentMethod", "payment_method", name)
		if strings.HasPrefix(name, "pm_sandbox_") {
			e.message += "; the sandbox knows " + strings.Join(Methods(), ", ")
		}
		return nil, e
	}
	return m, nil
}

// kind is Stripe's type of the method.
func (m *method) kind() string {
	if m.slow {
		return "konbini"
	}
	return "card"
}
