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

// CallTimeout bounds one call of a provider, with its wait for a turn and its repetitions.
const CallTimeout = 10 * time.Second

// Provider is a payment provider. Every call ends within a timeout of its own. Lists are of what
// was made in [from, to), the newest first, and end with the error of yield.
type Provider interface {
	Reader

	CreateIntent(ctx context.Context, n NewIntent) (Intent, error)
	// ConfirmIntent tries to pay.
	ConfirmIntent(ctx context.Context, id, key, paymentMethod, returnURL string) (Intent, error)
	// CaptureIntent takes the money of an intent that is RequiresCapture.
	CaptureIntent(ctx context.Context, id, key string, amount money.Amount) (Intent, error)
	// CancelIntent ends an intent for ever.
	CancelIntent(ctx context.Context, id, key string) (Intent, error)
	Intent(ctx context.Context, id string) (Intent, error)

	CreateRefund(ctx context.Context, n NewRefund) (Refund, error)
	Refund(ctx context.Context, id string) (Refund, error)
	RefundsOf(ctx context.Context, intentID string) ([]Refund, error) // all of an intent

	// ListBalanceTransactions lists what has moved the balance of the account.
	ListBalanceTransactions(ctx context.Context, from, to time.Time, yield func(BalanceTransaction) error) error

	ListEvents(ctx context.Context, from, to time.Time, types []string, yield func(Event) error) error
	CheckSignature(signature string) error                      // of a webhook whose body has not come: ErrSignature, ErrTooOld
	ParseEvent(payload []byte, signature string) (Event, error) // a webhook's: ErrSignature, ErrTooOld, ErrEvent, or KindMismatch

	CheckAccount(ctx context.Context) error // KindMismatch: the key is of another account
	// CheckPermissions tells, of each permission that is needed, whether the key has it, and leaves no
	// trace. It leaves out those of which the provider has not said; the error says why.
	CheckPermissions(ctx context.Context) (map[string]bool, error)
	Close()
}

// Reader knows the provider's events. It makes no call.
type Reader interface {
	Live() bool         // the key moves real money
	APIVersion() string // of events; empty: any
	// Subjects are the types of events that are known, and what each is about.
	Subjects() map[string]Subject
	// IntentIn and RefundIn read the intent or refund that the payload of an event is about.
	IntentIn(payload []byte) (Intent, bool)
	RefundIn(payload []byte) (Refund, bool)
}

// Subject is what an event is about.
type Subject int

// The subjects. Events about those from AboutPayment on do something.
const (
	AboutUnknown Subject = iota // of a type that is not known
	AboutNothing                // of a type that tells nothing new
	AboutPayment
	AboutRefund
	AboutDispute
)

// EventTypes returns the types of events that do something, for the settings of the
// webhook endpoint, in order.
func EventTypes(r Reader) (all []string) {
	for name, about := range r.Subjects() {
		if about >= AboutPayment {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// IntentStatus is how far an intent has come.
type IntentStatus string

// The statuses of an intent.
const (
	RequiresPaymentMethod IntentStatus = "requires_payment_method" // new without a method, or declined: it can be confirmed again
	RequiresConfirmation  IntentStatus = "requires_confirmation"
	RequiresAction        IntentStatus = "requires_action" // the buyer must authenticate
	Processing            IntentStatus = "processing"      // a slow method: it ends later, and cannot be cancelled meanwhile
	RequiresCapture       IntentStatus = "requires_capture"
	Canceled              IntentStatus = "canceled"  // for ever
	Succeeded             IntentStatus = "succeeded" // captured, for ever
)

// NewIntent is an intent to be created, not confirmed.
type NewIntent struct {
	Key           string // our idempotency key; for 24 hours the same key and fields create the same intent
	Amount        money.Amount
	Currency      string // ISO 4217, capitals
	PaymentMethod string // the provider's id of it
	Description   string
	Metadata      map[string]string
}

// Intent is one payment as the provider has it.
type Intent struct {
	ID            string
	Status        IntentStatus
	Amount        money.Amount
	Received      money.Amount // captured
	Currency      string       // ISO 4217, capitals
	Livemode      bool
	PaymentMethod string
	Metadata      map[string]string
	ActionURL     string   // where the buyer authenticates; empty: nowhere
	Decline       *Decline // of the last try to pay, if it failed
}

// Decline says why a try to pay failed, in the provider's words. It is stored and shown so.
type Decline struct {
	Code        string `json:"code"`                   // such as card_declined
	DeclineCode string `json:"decline_code,omitempty"` // such as insufficient_funds
	Advice      string `json:"advice,omitempty"`       // what the buyer can do, such as try_again_later
	Message     string `json:"message,omitempty"`      // for the buyer
}

// RefundStatus is how far a refund has come at the provider.
type RefundStatus string

// The statuses of a refund.
const (
	RefundPending        RefundStatus = "pending"
	RefundRequiresAction RefundStatus = "requires_action"
	RefundSucceeded      RefundStatus = "succeeded"
	RefundFailed         RefundStatus = "failed" // also after it had succeeded
	RefundCanceled       RefundStatus = "canceled"
)

// NewRefund is a refund of all that an intent has captured.
type NewRefund struct {
	Key      string // our idempotency key
	IntentID string
	Amount   money.Amount
	Metadata map[string]string
}

// Refund is a refund as the provider has it.
type Refund struct {
	ID       string
	IntentID string
	Status   RefundStatus
	Amount   money.Amount
	Currency string // ISO 4217, capitals
	Failure  string // why it failed, such as expired_or_canceled_card
	Metadata map[string]string
}

// Event is a webhook's event. Its object is as it was at some moment: events come late,
// twice and in any order, so fetch the object before you decide.
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
	Reason     string            // of a dispute
	Refundable bool              // of a dispute: the bank has not the money, so the charge can be refunded
	Disputed   *Disputed         // of a dispute; nil: of something else, or it has no amount
	Payload    []byte            // the whole event, as it was signed
}

// Disputed is the money of a dispute, as it is stored, too.
type Disputed struct {
	Amount      money.Amount `json:"amount"`       // what the buyer wants back
	Currency    string       `json:"currency"`     // ISO 4217, capitals
	Fee         money.Amount `json:"fee"`          // of the provider; 0: none yet
	FeeCurrency string       `json:"fee_currency"` // of the provider's balance; empty without a fee
}

// ErrorKind says what a failed call means for us.
type ErrorKind string

// The kinds of errors.
const (
	KindDeclined    ErrorKind = "declined"    // the card was declined; Decline says why. The intent, if there is one, can still be confirmed again
	KindRefused     ErrorKind = "refused"     // 4xx: nothing was done, and the same call will be refused again
	KindConflict    ErrorKind = "conflict"    // the object's state does not allow the call: fetch it
	KindLimited     ErrorKind = "limited"     // 429, or our own pace: nothing was done
	KindUnavailable ErrorKind = "unavailable" // nothing was done: no connection, the breaker is open, or a read failed
	KindForbidden   ErrorKind = "forbidden"   // 401, 403: the key is refused, or lacks a permission. Nothing was done; the same call is good once somebody has mended the key
	KindUnknown     ErrorKind = "unknown"     // it may have been done: a timeout, 5xx, a lost connection
	KindMismatch    ErrorKind = "mismatch"    // what came back is not what was asked for: a person has to look, nobody repeats it
)

// ErrorKinds are all of them.
var ErrorKinds = []ErrorKind{KindDeclined, KindRefused, KindConflict, KindLimited, KindUnavailable, KindForbidden, KindUnknown, KindMismatch}

// Errors of CheckSignature and ParseEvent. They are not worth a repetition: the sender gets 400.
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
	RetryAt   time.Time // not before this moment; zero: when you like
	Replayed  bool      // a fault that is stored under the idempotency key: the first call with it is over, and each further one gets this
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

// The categories of balance transactions that are about payments. All others are about the
// account: fees, payouts and such.
const (
	CategoryCharge                 = "charge"
	CategoryChargeFailure          = "charge_failure" // a charge that had succeeded
	CategoryPartialCaptureReversal = "partial_capture_reversal"
	CategoryRefund                 = "refund"
	CategoryRefundFailure          = "refund_failure"
	CategoryDispute                = "dispute"
	CategoryDisputeReversal        = "dispute_reversal"
)

// BalanceTransaction is one movement of the account's balance. Amounts are signed: what
// leaves the balance is negative.
type BalanceTransaction struct {
	ID           string
	Type         string // in the provider's words
	Category     string // the same for accounting: one of those above, or another
	Known        bool   // the category is one that the provider's API has in our release
	Amount       money.Amount
	Currency     string // of the balance, ISO 4217, capitals
	Fee          money.Amount
	Net          money.Amount
	ExchangeRate *string // decimal; nil: the source has the currency of the balance
	CreatedAt    time.Time
	AvailableOn  time.Time
	Source       Source
}

// Source is what a balance transaction is about, in the currency in which it was made. Of
// what is neither charge, refund nor dispute only the id is known.
type Source struct {
	ID       string
	IntentID string
	Amount   money.Amount // of a charge: captured
	Currency string       // ISO 4217, capitals
	Status   string
	Metadata map[string]string
}
