// Package payprovider describes a payment provider: its calls, intents, refunds, events and errors.
// A provider implements [Provider], as package stripe does; package boot chooses it.
//
// The words are those of payment intents: an intent is created, confirmed (the card is
// authorized), captured or cancelled. Errors of calls are an [*Error], whose Kind says
// whether something may have been done.
package payprovider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"triprize/internal/domain/money"
)

// CallTimeout bounds one call of a provider, including the wait for its rate limit and retries.
const CallTimeout = 10 * time.Second

// Provider is a payment provider. Every call has its own timeout. Lists have objects created in [from, to), newest
// first, and end with the error of yield.
type Provider interface {
	Reader

	CreateIntent(ctx context.Context, n NewIntent) (Intent, error)
	// ConfirmIntent attempts the payment.
	ConfirmIntent(ctx context.Context, id, key, paymentMethod, returnURL string) (Intent, error)
	// CaptureIntent captures an intent that is RequiresCapture.
	CaptureIntent(ctx context.Context, id, key string, amount money.Amount) (Intent, error)
	// CancelIntent cancels an intent, which is final.
	CancelIntent(ctx context.Context, id, key string) (Intent, error)
	Intent(ctx context.Context, id string) (Intent, error)

	CreateRefund(ctx context.Context, n NewRefund) (Refund, error)
	Refund(ctx context.Context, id string) (Refund, error)
	RefundsOf(ctx context.Context, intentID string) ([]Refund, error)   // all of an intent
	DisputesOf(ctx context.Context, intentID string) ([]Dispute, error) // all of an intent

	// ListBalanceTransactions lists the balance transactions of the account.
	ListBalanceTransactions(ctx context.Context, from, to time.Time, yield func(BalanceTransaction) error) error

	ListEvents(ctx context.Context, from, to time.Time, types []string, yield func(Event) error) error
	CheckSignature(signature string) error                      // of a webhook, before its body is read: ErrSignature, ErrTooOld
	ParseEvent(payload []byte, signature string) (Event, error) // a webhook's: ErrSignature, ErrTooOld, ErrEvent, or KindMismatch

	CheckAccount(ctx context.Context) error // KindMismatch: the key is of another account
	// CheckPermissions reports for each needed permission whether the key has it, without any effect. Unknown ones are
	// missing; the error has the reason.
	CheckPermissions(ctx context.Context) (map[string]bool, error)
	Close()
}

// Reader parses the provider's events. It makes no calls.
type Reader interface {
	Live() bool         // the key moves real money
	APIVersion() string // of events
	// Subjects returns the known types of events with their subjects.
	Subjects() map[string]Subject
	// IntentIn parses the intent of an event.
	IntentIn(payload []byte) (Intent, bool)
}

// Subject is what an event is about.
type Subject int

// The subjects. Events with a subject from AboutPayment on are processed.
const (
	AboutUnknown Subject = iota // unknown type
	AboutNothing                // redundant type
	AboutPayment
	AboutRefund
	AboutDispute
)

// EventTypes returns the sorted types of events that are processed, for the webhook endpoint.
func EventTypes(r Reader) (all []string) {
	for name, about := range r.Subjects() {
		if about >= AboutPayment {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// IntentStatus is the status of an intent.
type IntentStatus string

// The statuses of an intent.
const (
	RequiresPaymentMethod IntentStatus = "requires_payment_method" // new without a method, or declined: it can be confirmed again
	RequiresConfirmation  IntentStatus = "requires_confirmation"
	RequiresAction        IntentStatus = "requires_action" // the buyer must authenticate
	Processing            IntentStatus = "processing"      // a slow method, which cannot be canceled meanwhile
	RequiresCapture       IntentStatus = "requires_capture"
	Canceled              IntentStatus = "canceled"  // final
	Succeeded             IntentStatus = "succeeded" // captured, final
)

// NewIntent is an intent to create without confirmation.
type NewIntent struct {
	Key           string // our idempotency key; for 24 hours the same key and fields create the same intent
	Amount        money.Amount
	Currency      string // ISO 4217, capitals
	PaymentMethod string // the provider's id of it
	Description   string
	Metadata      map[string]string
}

// Intent is a payment at the provider.
type Intent struct {
	ID            string
	Status        IntentStatus
	Amount        money.Amount
	Received      money.Amount // captured
	Currency      string       // ISO 4217, capitals
	Livemode      bool
	PaymentMethod string
	Metadata      map[string]string
	ActionURL     string   // where the buyer authenticates
	Decline       *Decline // of the last attempt, if it failed
}

// Decline is why a payment attempt failed, with the provider's codes and texts. It is stored and shown unchanged.
type Decline struct {
	Code        string `json:"code"`                   // such as card_declined
	DeclineCode string `json:"decline_code,omitempty"` // such as insufficient_funds
	Advice      string `json:"advice,omitempty"`       // what the buyer can do, such as try_again_later
	Message     string `json:"message,omitempty"`      // for the buyer
}

// RefundStatus is the status of a refund at the provider.
type RefundStatus string

// The statuses of a refund.
const (
	RefundPending        RefundStatus = "pending"
	RefundRequiresAction RefundStatus = "requires_action"
	RefundSucceeded      RefundStatus = "succeeded"
	RefundFailed         RefundStatus = "failed" // also after it had succeeded
	RefundCanceled       RefundStatus = "canceled"
)

// NewRefund is a refund of the captured amount of an intent.
type NewRefund struct {
	Key      string // our idempotency key
	IntentID string
	Amount   money.Amount
	Metadata map[string]string
}

// Refund is a refund at the provider.
type Refund struct {
	ID       string
	IntentID string
	Status   RefundStatus
	Amount   money.Amount
	Currency string // ISO 4217, capitals
	Failure  string // why it failed, such as expired_or_canceled_card
	Metadata map[string]string
}

// Event is the event of a webhook. Events may be late, repeated and out of order, so fetch the object before a
// decision.
type Event struct {
	ID         string
	Type       string // in the provider's words
	APIVersion string
	Livemode   bool
	Account    string // of a connected account; empty: the account itself
	CreatedAt  time.Time
	ObjectID   string            // of the object itself
	IntentID   string            // the intent that the object is or belongs to; may be empty
	Metadata   map[string]string // of the object
	Status     string            // of the object, if it has one
	Payload    []byte            // the whole event, as it was signed
}

// Dispute is a dispute of a charge, also as stored.
type Dispute struct {
	ID         string `json:"id"`
	Status     string `json:"status"` // in the provider's words
	Reason     string `json:"reason"`
	Refundable bool   `json:"refundable"` // the bank does not have the money, so the charge can be refunded
	Lost       bool   `json:"-"`          // the buyer has the money, for good
	Unclear    bool   `json:"-"`          // it is over, or in a status that is not known, and the provider does not say who has the money
	Disputed
	OpenedAt *time.Time `json:"opened_at"` // of what is stored: when it was recorded first
	ClosedAt *time.Time `json:"closed_at"` // likewise, when its end was recorded; nil: it is open
}

// HoldsMoney reports whether the bank has the money of the charge, or has given it back to
// the buyer: a refund would pay twice.
func (d *Dispute) HoldsMoney() bool { return d != nil && !d.Refundable }

// Disputed is the money of a dispute, also as stored.
type Disputed struct {
	Amount      money.Amount `json:"amount"`       // what the buyer wants back
	Currency    string       `json:"currency"`     // ISO 4217, capitals
	Fee         money.Amount `json:"fee"`          // of the provider; 0: none yet
	FeeCurrency string       `json:"fee_currency"` // of the provider's balance; empty without a fee
}

// ErrorKind classifies failed calls.
type ErrorKind string

// The kinds of errors.
const (
	KindDeclined    ErrorKind = "declined"    // the card was declined; Decline says why. The intent, if there is one, can still be confirmed again
	KindRefused     ErrorKind = "refused"     // 4xx: nothing was done, and the same call will fail again
	KindConflict    ErrorKind = "conflict"    // the object's state does not allow the call: fetch it
	KindLimited     ErrorKind = "limited"     // 429, or our own rate limit: nothing was done
	KindUnavailable ErrorKind = "unavailable" // nothing was done: no connection, the breaker is open, or a read failed
	KindForbidden   ErrorKind = "forbidden"   // 401, 403: the key is rejected, or lacks a permission. Nothing was done; the same call may succeed once the key is fixed
	KindUnknown     ErrorKind = "unknown"     // it may have had an effect: a timeout, 5xx, a lost connection
	KindMismatch    ErrorKind = "mismatch"    // the answer does not match the request: an operator must decide, no retry
)

// ErrorKinds are all kinds of errors.
var ErrorKinds = []ErrorKind{KindDeclined, KindRefused, KindConflict, KindLimited, KindUnavailable, KindForbidden, KindUnknown, KindMismatch}

// Errors of CheckSignature and ParseEvent. A retry cannot succeed: the sender gets 400.
var (
	ErrSignature = errors.New("payment provider: the webhook is not signed with our secret")
	ErrTooOld    = errors.New("payment provider: the webhook was signed too long ago")
	ErrEvent     = errors.New("payment provider: the webhook is not an event")
)

// Error is a failed call.
type Error struct {
	Kind      ErrorKind
	Call      string // such as "confirm"
	Code      string // the provider's code, if any
	Message   string
	RequestID string // for the provider's support
	Status    int    // of HTTP; 0: no answer
	Decline   *Decline
	RetryAt   time.Time // earliest retry; zero: any time
	Replayed  bool      // stored under the idempotency key: further calls with the key get the same error
	Err       error
}

func (e *Error) Error() string {
	text := fmt.Sprintf("payment provider: %s: %s", e.Call, e.Kind)
	if e.Code != "" {
		text += " " + e.Code
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause, if there is one.
func (e *Error) Unwrap() error { return e.Err }

// KeyLifetime is for how long an idempotency key may be used again: the provider promises to
// know it for 24 hours.
const KeyLifetime = 23 * time.Hour

// AsError returns err as an Error. A failure that is not the provider's own may have had its effect.
func AsError(err error, call string) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: KindUnknown, Call: call, Message: err.Error()}
}

// IsKeyReused reports whether the idempotency key was used for another call.
func (e *Error) IsKeyReused() bool { return e.Code == "idempotency_error" }

// The metadata of what we make at the provider. Others may use the account, too: the id of our
// installation tells what is ours.
const (
	InstallationKey = "installation"
	PurchaseKey     = "purchase_id"
	CampaignKey     = "campaign_id"
	RefundKey       = "refund_id"
	AttemptKey      = "attempt"
)

// BalanceTransaction is a change of the account's balance. Amounts are signed: debits are negative.
type BalanceTransaction struct {
	ID           string       `json:"id"`
	Type         string       `json:"type"`     // in the provider's words
	Category     string       `json:"category"` // for accounting, such as charge
	Known        bool         `json:"known"`    // the category exists in our version of the provider's API
	Amount       money.Amount `json:"amount"`
	Currency     string       `json:"currency"` // of the balance, ISO 4217, capitals
	Fee          money.Amount `json:"fee"`
	Net          money.Amount `json:"net"`
	ExchangeRate *string      `json:"exchange_rate"` // decimal; nil: the source has the currency of the balance
	CreatedAt    time.Time    `json:"created"`
	AvailableOn  time.Time    `json:"available_on"`
	Source       Source       `json:"source"`
}

// Source is the object of a balance transaction, in its own currency. If it is neither charge, refund nor dispute,
// only the id is known.
type Source struct {
	ID       string            `json:"id"`
	IntentID string            `json:"intent"`
	Amount   money.Amount      `json:"amount"`   // of a charge: captured
	Currency string            `json:"currency"` // ISO 4217, capitals
	Status   string            `json:"status"`
	Metadata map[string]string `json:"metadata"`
}
