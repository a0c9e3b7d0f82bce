// Package payprovider describes a payment provider: its calls, intents, refunds, events and errors.
// A provider implements [Provider], as package stripe does; package boot chooses it.
//
// The words are those of payment intents: an intent is created, confirmed (the card is
// authorized), captured or cancelled. Errors of calls are an [*Error], whose Kind says
// whether something may have been done.
package payprovider

import (
	"context"
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
