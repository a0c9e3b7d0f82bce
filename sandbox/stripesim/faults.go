package stripesim

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
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

// fault is what goes wrong with a request.
type fault string

const (
	noFault            fault = ""
	errorBefore        fault = "500; nothing was done"
	errorAfter         fault = "500; it was done"
	timeoutBefore      fault = "no answer; nothing was done"
	timeoutAfter       fault = "no answer; it was done"
	timeoutAfterCharge fault = "no answer if it is good; it was done"
	tooMany            fault = "429"
	slow               fault = "slow"
)

// faultsOf says how many confirmations of a payment a fault befalls.
var faultsOf = map[fault]int{timeoutAfterCharge: 1, errorBefore: 1, tooMany: 2}

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
	for name, f := range map[string]fault{"timeout_after_charge": timeoutAfterCharge, "500_once": errorBefore, "429": tooMany, "slow": slow} {
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
		e := missing(http.StatusBadRequest, "PaymentMethod", "payment_method", name)
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

// Faults are injected into all requests at random. A probability is from 0 to 1. They end with the
// process.
type Faults struct {
	Seed          uint64  `json:"seed"`
	Decline       float64 `json:"decline"`        // a confirmation that would succeed is declined
	ErrorBefore   float64 `json:"error_before"`   // 500; nothing was done
	ErrorAfter    float64 `json:"error_after"`    // 500; it was done
	TimeoutBefore float64 `json:"timeout_before"` // no answer; nothing was done
	TimeoutAfter  float64 `json:"timeout_after"`  // no answer; it was done
	TooMany       float64 `json:"too_many"`       // 429
	LatencyMS     int64   `json:"latency_ms"`     // before every answer
	HangMS        int64   `json:"hang_ms"`        // how long a request without an answer keeps its connection; 0: Settings.Hang
	WebhookLost   float64 `json:"webhook_lost"`
	WebhookTwice  float64 `json:"webhook_twice"`
	WebhookLate   float64 `json:"webhook_late"`
}

func (f Faults) check() error {
	for _, p := range []float64{f.Decline, f.ErrorBefore, f.ErrorAfter, f.TimeoutBefore, f.TimeoutAfter, f.TooMany, f.WebhookLost, f.WebhookTwice, f.WebhookLate} {
		if p < 0 || p > 1 || p != p {
			return errors.New("a probability must be from 0 to 1")
		}
	}
	if f.ErrorBefore+f.ErrorAfter+f.TimeoutBefore+f.TimeoutAfter+f.TooMany > 1 {
		return errors.New("the probabilities of the faults of one request add up to more than 1")
	}
	const longest = 10 * 60 * 1000
	if f.LatencyMS < 0 || f.HangMS < 0 || f.LatencyMS > longest || f.HangMS > longest {
		return errors.New("latency_ms and hang_ms must be from 0 to 600000")
	}
	return nil
}

// SetFaults injects faults into all requests.
func (s *Server) SetFaults(f Faults) error {
	if err := f.check(); err != nil {
		return errors.New("sandbox: " + err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.random = f, rand.New(rand.NewPCG(f.Seed, 0)) //nolint:gosec // a seed makes it repeatable
	return nil
}

// Away is how the sandbox behaves while it is away.
type Away string

// The ways to be away.
const (
	Here        Away = ""
	Unavailable Away = "503"   // every request is answered with 503
	Silent      Away = "reset" // every connection is closed without an answer
)

// SetAway lets the sandbox be away: every request of the API is answered with 503, or
// its connection closed. The controls stay.
func (s *Server) SetAway(a Away) error {
	if a != Here && a != Unavailable && a != Silent {
		return errors.New(`the mode must be "503", "reset" or empty`)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = a
	return nil
}

// chance decides whether what has this probability happens.
func (s *Server) chance(probability float64) bool { return s.random.Float64() < probability }

// plan says what will go wrong with a call: at random, or by the payment method.
func (c *change) plan() (planned fault) {
	f := c.server.faults
	drawn := c.server.random.Float64()
	for _, one := range []struct {
		of float64
		is fault
	}{{f.ErrorBefore, errorBefore}, {f.ErrorAfter, errorAfter}, {f.TimeoutBefore, timeoutBefore}, {f.TimeoutAfter, timeoutAfter}, {f.TooMany, tooMany}} {
		if drawn -= one.of; drawn < 0 {
			planned = one.is
			break
		}
	}
	if i := find[*intent](c.state, c.call.object); planned == noFault && i != nil && c.call.makes() {
		planned = c.planOf(i)
	}
	if planned != noFault && planned != slow {
		c.server.counts.injected++
	}
	return planned
}

// planOf says what will go wrong with a call on an intent, by its payment method.
func (c *change) planOf(i *intent) fault {
	m := table[i.Last]
	if c.call.params.has("payment_method") {
		m = table[c.call.params.text("payment_method")]
	}
	switch {
	case m == nil:
		return noFault
	case m.fault == slow:
		return slow
	case !strings.HasSuffix(c.call.path, "/confirm") || !i.confirmable() || i.Faults >= faultsOf[m.fault]:
		return noFault
	}
	i.Faults++
	c.touch(i)
	return m.fault
}
