package stripe

import (
	"encoding/json"
	"strings"

	stripego "github.com/stripe/stripe-go/v85"

	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
)

// Reader knows Stripe's events. It needs no key.
type Reader struct{ live bool }

// NewReader returns a Reader of events that are about real money, or are tests.
func NewReader(live bool) Reader { return Reader{live} }

// Live reports whether the events are about real money.
func (r Reader) Live() bool { return r.live }

// APIVersion returns the release of Stripe's API that is spoken here.
func (r Reader) APIVersion() string { return APIVersion }

// Subjects returns the types of events that are known.
func (r Reader) Subjects() map[string]payprovider.Subject { return subjects }

var subjects = map[string]payprovider.Subject{
	"payment_intent.amount_capturable_updated": payprovider.AboutPayment,
	"payment_intent.canceled":                  payprovider.AboutPayment,
	"payment_intent.partially_funded":          payprovider.AboutPayment,
	"payment_intent.payment_failed":            payprovider.AboutPayment,
	"payment_intent.processing":                payprovider.AboutPayment,
	"payment_intent.requires_action":           payprovider.AboutPayment,
	"payment_intent.succeeded":                 payprovider.AboutPayment,
	"refund.created":                           payprovider.AboutRefund,
	"refund.updated":                           payprovider.AboutRefund,
	"refund.failed":                            payprovider.AboutRefund,
	"charge.refunded":                          payprovider.AboutRefund,
	"charge.refund.updated":                    payprovider.AboutRefund,
	"charge.dispute.created":                   payprovider.AboutDispute,
	"charge.dispute.updated":                   payprovider.AboutDispute,
	"charge.dispute.closed":                    payprovider.AboutDispute,
	"charge.dispute.funds_withdrawn":           payprovider.AboutDispute,
	"charge.dispute.funds_reinstated":          payprovider.AboutDispute,
	"payment_intent.created":                   payprovider.AboutNothing, // by us
	"charge.succeeded":                         payprovider.AboutNothing, // its intent has an event, too
	"charge.captured":                          payprovider.AboutNothing,
	"charge.failed":                            payprovider.AboutNothing,
	"charge.pending":                           payprovider.AboutNothing,
	"charge.expired":                           payprovider.AboutNothing,
	"charge.updated":                           payprovider.AboutNothing,
}

// IntentIn reads the intent that an event is about.
func (r Reader) IntentIn(payload []byte) (payprovider.Intent, bool) {
	var wire struct {
		Data struct {
			Object stripego.PaymentIntent `json:"object"`
		} `json:"data"`
	}
	in := &wire.Data.Object
	if err := json.Unmarshal(payload, &wire); err != nil || in.Object != "payment_intent" || in.ID == "" {
		return payprovider.Intent{}, false
	}
	return payprovider.Intent{ID: in.ID, Status: payprovider.IntentStatus(in.Status), Amount: money.Amount(in.Amount), Received: money.Amount(in.AmountReceived),
		Currency: strings.ToUpper(string(in.Currency)), Livemode: in.Livemode, Metadata: in.Metadata}, true
}

// RefundIn reads the refund that an event is about.
func (r Reader) RefundIn(payload []byte) (payprovider.Refund, bool) {
	var wire struct {
		Data struct {
			Object stripego.Refund `json:"object"`
		} `json:"data"`
	}
	if err := json.Unmarshal(payload, &wire); err != nil || wire.Data.Object.Object != "refund" || wire.Data.Object.ID == "" {
		return payprovider.Refund{}, false
	}
	return refundOf(&wire.Data.Object), true
}
