package stripe

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	stripego "github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"

	"triprize/internal/domain/payprovider"
)

// MaxEventBytes bounds the payload of a webhook. Stripe's events have a few kilobytes.
const MaxEventBytes = 1 << 20

// ParseEvent parses a webhook: payload is the unchanged body, signature the header Stripe-Signature. An event
// of another API version is parsed as far as possible. An event of another mode than the key's, or of a
// connected account, is returned with KindMismatch, to be logged.
func (c *Client) ParseEvent(payload []byte, signature string) (payprovider.Event, error) {
	if len(payload) > MaxEventBytes {
		return payprovider.Event{}, fmt.Errorf("%w: it has more than %d bytes", payprovider.ErrEvent, MaxEventBytes)
	}
	if err := c.verify(payload, signature); err != nil {
		return payprovider.Event{}, err
	}
	event, err := eventOf(payload)
	if err != nil {
		return payprovider.Event{}, err
	}
	if e := c.wrongEvent(event); e != nil {
		return event, &e.public
	}
	return event, nil
}

// CheckSignature checks the header Stripe-Signature before the body is read. It returns ErrSignature if the
// form is not t=…,v1=…, and ErrTooOld if t is too long ago.
func (c *Client) CheckSignature(signature string) error {
	var at int64
	var isSigned bool
	for part := range strings.SplitSeq(signature, ",") {
		switch name, value, _ := strings.Cut(part, "="); name {
		case "t":
			at, _ = strconv.ParseInt(value, 10, 64) // 0: too long ago
		case "v1":
			sum, err := hex.DecodeString(value)
			isSigned = isSigned || err == nil && len(sum) == sha256.Size
		}
	}
	switch {
	case !isSigned:
		return payprovider.ErrSignature
	case time.Since(time.Unix(at, 0)) > webhookTolerance:
		return payprovider.ErrTooOld
	}
	return nil
}

// webhookTolerance is the maximum age of a webhook's signature.
const webhookTolerance = 5 * time.Minute

// verify accepts a signature with any of the secrets.
func (c *Client) verify(payload []byte, signature string) error {
	result := payprovider.ErrSignature
	for _, secret := range c.secrets {
		err := webhook.ValidatePayloadWithTolerance(payload, signature, secret, webhookTolerance)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, webhook.ErrTooOld):
			result = payprovider.ErrTooOld
		}
	}
	return result
}

// wrongEvent checks what every event must have, and logs a mismatch as an error.
func (c *Client) wrongEvent(event payprovider.Event) *callError {
	var e *callError
	switch {
	case event.Livemode != c.settings.Live():
		e = mismatch("%s has livemode %t, the key has %t", event.ID, event.Livemode, c.settings.Live())
	case event.Account != "":
		e = mismatch("%s is of the connected account %q", event.ID, c.scrub.text(event.Account))
	default:
		return nil
	}
	e.Call = "event"
	c.logger.Error("an event is not for us", "event_id", event.ID, "event_type", event.Type, "reason", e.Message)
	return e
}

// eventOf parses an event and the known fields of its object.
func eventOf(payload []byte) (payprovider.Event, error) {
	var wire struct {
		ID         string `json:"id"`
		Object     string `json:"object"`
		Type       string `json:"type"`
		APIVersion string `json:"api_version"`
		Created    int64  `json:"created"`
		Livemode   bool   `json:"livemode"`
		Account    string `json:"account"`
		Data       struct {
			Object map[string]json.RawMessage `json:"object"`
		} `json:"data"`
	}
	if err := json.Unmarshal(payload, &wire); err != nil {
		return payprovider.Event{}, fmt.Errorf("%w: it is not the JSON of one", payprovider.ErrEvent)
	}
	if wire.Object != "event" || wire.ID == "" || wire.Type == "" || wire.Data.Object == nil {
		return payprovider.Event{}, fmt.Errorf("%w: object, id, type or data is missing", payprovider.ErrEvent)
	}
	object := wire.Data.Object
	event := payprovider.Event{
		ID:         wire.ID,
		Type:       wire.Type,
		APIVersion: wire.APIVersion,
		Livemode:   wire.Livemode,
		Account:    wire.Account,
		CreatedAt:  time.Unix(wire.Created, 0).UTC(),
		ObjectID:   name(object["id"]),
		IntentID:   name(object["payment_intent"]),
		Status:     name(object["status"]),
		Payload:    payload,
	}
	if name(object["object"]) == "payment_intent" {
		event.IntentID = event.ObjectID
	}
	var metadata map[string]string
	if json.Unmarshal(object["metadata"], &metadata) == nil {
		event.Metadata = metadata
	}
	return event, nil
}

// name returns a string, or the id of an expanded object. Anything else is empty.
func name(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var object struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(raw, &object) == nil {
		return object.ID
	}
	return ""
}

// Reader parses Stripe's events. It needs no key.
type Reader struct{ live bool }

// NewReader returns a Reader of live or test events.
func NewReader(live bool) Reader { return Reader{live} }

// Live reports whether the events are live.
func (r Reader) Live() bool { return r.live }

// APIVersion returns the version of Stripe's API that we use.
func (r Reader) APIVersion() string { return APIVersion }

// Subjects returns the known types of events.
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

// IntentIn parses the intent of an event.
func (r Reader) IntentIn(payload []byte) (payprovider.Intent, bool) {
	var in stripego.PaymentIntent
	ok := objectIn(payload, &in) && in.Object == "payment_intent" && in.ID != ""
	return intentOf(&in), ok
}

func objectIn(payload []byte, object any) bool {
	var wire struct {
		Data struct {
			Object json.RawMessage `json:"object"`
		} `json:"data"`
	}
	return json.Unmarshal(payload, &wire) == nil && json.Unmarshal(wire.Data.Object, object) == nil
}
