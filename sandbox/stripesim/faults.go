package stripesim

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
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

// Away is how the sandbox behaves while it is away.
type Away string

// The ways to be away.
const (
	Here        Away = ""
	Unavailable Away = "503"   // every request is answered with 503
	Silent      Away = "reset" // every connection is closed without an answer
)

// outcome is the fault of one request.
type outcome int

const (
	fine outcome = iota
	errorBefore
	errorAfter
	timeoutBefore
	timeoutAfter
	refusedAsTooMany
)

// chance picks faults at random. It has a lock of its own.
type chance struct {
	mu     sync.Mutex
	faults Faults
	away   Away
	key    Key
	random *rand.Rand
}

func newChance() *chance {
	c := &chance{}
	c.set(Faults{})
	return c
}

func (c *chance) set(f Faults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults, c.random = f, rand.New(rand.NewPCG(f.Seed, 0)) //nolint:gosec // a seed makes it repeatable
}

func (c *chance) get() (Faults, Away) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faults, c.away
}

func (c *chance) setAway(a Away) error {
	if a != Here && a != Unavailable && a != Silent {
		return errors.New(`the mode must be "503", "reset" or empty`)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = a
	return nil
}

// request picks the fault of a request.
func (c *chance) request() (o outcome, latency time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.faults
	drawn := c.random.Float64()
	for _, one := range []struct {
		of float64
		is outcome
	}{{f.ErrorBefore, errorBefore}, {f.ErrorAfter, errorAfter}, {f.TimeoutBefore, timeoutBefore}, {f.TimeoutAfter, timeoutAfter}, {f.TooMany, refusedAsTooMany}} {
		if drawn < one.of {
			o = one.is
			break
		}
		drawn -= one.of
	}
	return o, time.Duration(f.LatencyMS) * time.Millisecond
}

// declines decides whether a good card is declined.
func (c *chance) declines() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.Float64() < c.faults.Decline
}

// webhook picks the faults of an event.
func (c *chance) webhook() (lost, doubled, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.faults
	return c.random.Float64() < f.WebhookLost, c.random.Float64() < f.WebhookTwice, c.random.Float64() < f.WebhookLate
}

// hang returns how long a request without an answer keeps its connection.
func (c *chance) hang(standard time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.faults.HangMS > 0 {
		return time.Duration(c.faults.HangMS) * time.Millisecond
	}
	return standard
}
