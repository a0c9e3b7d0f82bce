// Package fault has the error codes of the whole system.
//
// An [Error] has a stable [Code] for programs, a Message for people, and its cause. Each Code has one [Kind], which
// decides the HTTP status and whether the error is recorded under its idempotency key. No code parses error texts.
package fault

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Field names one invalid part of a request.
type Field struct {
	Pointer string `json:"pointer"` // JSON pointer (RFC 6901) into the body, or a header or query name
	Detail  string `json:"detail"`
}

// Error is a failure with a code.
type Error struct {
	Code    Code
	Message string    // one sentence for people; may name the invalid values
	Fields  []Field   // invalid fields, and positions that are taken
	About   About     // the conflicting resource, for programs; zero: none with an id
	RetryAt time.Time // when a retry may succeed; zero: unknown
	Err     error     // the cause; for logs, never shown to clients

	// With PaymentDeclined, the provider's reason, such as insufficient_funds, and advice, such as try_again_later.
	DeclineCode, Advice string
}

// About is the resource that conflicts with a request.
type About struct {
	Kind  AboutKind `json:"kind"`
	ID    string    `json:"id"`
	JobID string    `json:"job_id,omitempty"` // of a purchase that is not paid yet
}

// AboutKind is the kind of a conflicting resource.
type AboutKind string

// The kinds of conflicting resources.
const (
	AboutHold     AboutKind = "hold"
	AboutPurchase AboutKind = "purchase"
	AboutJob      AboutKind = "job"
	AboutWallet   AboutKind = "wallet"
	AboutEntry    AboutKind = "entry" // of a wallet's ledger
)

// New returns an Error whose message is formatted like fmt.Sprintf.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an Error with err as its cause.
func Wrap(code Code, err error, message string) *Error {
	return &Error{Code: code, Message: message, Err: err}
}

// Invalid returns an invalid-request Error about the given fields.
func Invalid(fields ...Field) *Error {
	message := "the request is not valid"
	if len(fields) > 0 {
		message = fields[0].Pointer + ": " + fields[0].Detail
	}
	return &Error{Code: InvalidRequest, Message: message, Fields: fields}
}

// Taken returns a position-taken Error that names the taken positions.
func Taken(positions ...Field) *Error {
	details := make([]string, len(positions))
	for i, f := range positions {
		details[i] = f.Detail
	}
	return &Error{Code: PositionTaken, Message: strings.Join(details, "; "), Fields: positions}
}

// Error implements error.
func (e *Error) Error() string {
	text := string(e.Code) + ": " + e.Message
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// At adds the name of a function and its arguments to err, formatted like fmt.Sprintf. A nil err stays nil.
func At(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// From returns the Error in err's chain, or an internal-error that wraps err.
func From(err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	return Wrap(InternalError, err, "an unexpected error; it has been recorded")
}

// CodeOf returns the code of the Error in err's chain, or internal-error; "" for a nil err.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return From(err).Code
}

// Kind groups codes by what the caller can do about them.
type Kind uint8

// The kinds.
const (
	KindInternal         Kind = iota // a defect of this system: it retries, then reports
	KindInvalid                      // the request can never succeed as it is
	KindUnauthenticated              // the caller is not authenticated
	KindForbidden                    // the caller is authenticated and may not do this
	KindNotFound                     // the resource does not exist, or the caller may not see it
	KindMethodNotAllowed             // the path exists, the method does not
	KindTooLarge                     // the body is over the limit
	KindUnsupported                  // the content type is not understood
	KindLength                       // the length of the body is missing
	KindTimeout                      // the request did not arrive in time
	KindHeaders                      // the header fields are over the limit
	KindConflict                     // the current state does not allow it: final
	KindGone                         // the resource was erased: final
	KindMismatch                     // a stated precondition does not hold
	KindReused                       // the idempotency key belongs to another request
	KindLimited                      // too many requests: wait
	KindUnavailable                  // the outcome is unknown or nothing was done: retry with the same key
)

// Code is the stable name of one failure, the same in answers, jobs, logs and metrics.
type Code string

// The codes of the HTTP contract.
const (
	InvalidRequest        Code = "invalid-request"
	KeyMissing            Code = "idempotency-key-missing"
	KeyInvalid            Code = "idempotency-key-invalid"
	Unauthenticated       Code = "unauthenticated"
	Forbidden             Code = "forbidden"
	NotFound              Code = "not-found"
	MethodNotAllowed      Code = "method-not-allowed"
	BodyTooLarge          Code = "body-too-large"
	UnsupportedMediaType  Code = "unsupported-media-type"
	LengthRequired        Code = "length-required"
	RequestTimeout        Code = "request-timeout"
	HeadersTooLarge       Code = "headers-too-large"
	CampaignNotActive     Code = "campaign-not-active"
	CampaignPaused        Code = "campaign-paused"
	SaleNotOpen           Code = "sale-not-open"
	SoldOut               Code = "sold-out"
	NoneAvailable         Code = "none-available"
	PositionTaken         Code = "position-taken"
	PurchaseLimitExceeded Code = "purchase-limit-exceeded"
	HoldExpired           Code = "hold-expired"
	HoldLimitExceeded     Code = "hold-limit-exceeded"
	DeclineLimitExceeded  Code = "decline-limit-exceeded"
	InsufficientFunds     Code = "insufficient-funds"
	NotSoldOut            Code = "not-sold-out"
	StateConflict         Code = "state-conflict"
	Gone                  Code = "gone"
	VersionMismatch       Code = "version-mismatch"
	KeyReused             Code = "idempotency-key-reused"
	RateLimited           Code = "rate-limited"
	Unavailable           Code = "unavailable"
	Overloaded            Code = "overloaded"
	ReservationExpired    Code = "reservation-expired"
	PaymentDeclined       Code = "payment-declined"
	PaymentRefused        Code = "payment-refused"
	PaymentNotReceived    Code = "payment-not-received"
	PurchaseCancelled     Code = "purchase-cancelled"
	PurchaseDisputed      Code = "purchase-disputed"
	CardsNotAccepted      Code = "cards-not-accepted"
	WalletExists          Code = "wallet-exists"
	InternalError         Code = "internal-error"
)

// Ours are the codes of jobs that failed by a fault of the installation or of its provider. Others are refusals: the
// request or the state of the sale does not allow it. So is reservation-expired: most buyers who do not pay have left,
// and a job does not say when it was the provider that was late.
var Ours = []Code{
	InternalError,      // a defect: each delivery failed, or killed its worker
	PaymentRefused,     // no bank declined it: the provider does not take what the installation sends, by its settings, its account or an app's method
	PaymentNotReceived, // the provider has lost a payment, and an operator had to end it
}

type entry struct {
	kind  Kind
	title string
}

var catalogue = map[Code]entry{
	InvalidRequest:        {KindInvalid, "The request is not valid"},
	KeyMissing:            {KindInvalid, "The Idempotency-Key header is missing"},
	KeyInvalid:            {KindInvalid, "The Idempotency-Key header is not valid"},
	Unauthenticated:       {KindUnauthenticated, "Authentication is required"},
	Forbidden:             {KindForbidden, "The credentials do not allow this"},
	NotFound:              {KindNotFound, "The resource was not found"},
	MethodNotAllowed:      {KindMethodNotAllowed, "The resource does not allow this method"},
	BodyTooLarge:          {KindTooLarge, "The request body is too large"},
	UnsupportedMediaType:  {KindUnsupported, "The content type is not supported"},
	LengthRequired:        {KindLength, "The length of the body is missing"},
	RequestTimeout:        {KindTimeout, "The request did not arrive in time"},
	HeadersTooLarge:       {KindHeaders, "The request header fields are too large"},
	CampaignNotActive:     {KindConflict, "The campaign is not on sale"},
	CampaignPaused:        {KindConflict, "The campaign is paused"},
	SaleNotOpen:           {KindConflict, "The sale is not open now"},
	SoldOut:               {KindConflict, "Every position is sold"},
	NoneAvailable:         {KindConflict, "Not enough positions are free at the moment"},
	PositionTaken:         {KindConflict, "A position is taken"},
	HoldExpired:           {KindConflict, "The hold has ended"},
	HoldLimitExceeded:     {KindConflict, "A hold limit is exceeded"},
	DeclineLimitExceeded:  {KindConflict, "Too many cards of this user were declined"},
	PurchaseLimitExceeded: {KindConflict, "The user's purchase limit is exceeded"},
	InsufficientFunds:     {KindConflict, "The wallet does not have enough money"},
	NotSoldOut:            {KindConflict, "The campaign is not sold out"},
	StateConflict:         {KindConflict, "The current state does not allow this"},
	Gone:                  {KindGone, "What this needs was erased"},
	VersionMismatch:       {KindMismatch, "The wallet has changed since it was read"},
	KeyReused:             {KindReused, "The Idempotency-Key was used for another request"},
	RateLimited:           {KindLimited, "Too many requests"},
	Unavailable:           {KindUnavailable, "The service is unavailable"},
	Overloaded:            {KindUnavailable, "The service is overloaded"},
	ReservationExpired:    {KindConflict, "The reservation expired before it was paid"},
	PaymentDeclined:       {KindConflict, "The card was declined"},
	PaymentRefused:        {KindConflict, "The payment provider rejected the payment"},
	PaymentNotReceived:    {KindConflict, "The payment was never received"},
	PurchaseCancelled:     {KindConflict, "The purchase was cancelled before it was paid"},
	PurchaseDisputed:      {KindConflict, "The payment of the purchase is disputed"},
	CardsNotAccepted:      {KindConflict, "This system does not accept cards"},
	WalletExists:          {KindConflict, "The owner already has a wallet in this currency"},
	InternalError:         {KindInternal, "An internal error occurred"},
}

// Kind returns the kind of c; an unknown code is internal.
func (c Code) Kind() Kind { return catalogue[c].kind }

// Title returns a short sentence for people, the same for every occurrence of c.
func (c Code) Title() string {
	if e, ok := catalogue[c]; ok {
		return e.title
	}
	return catalogue[InternalError].title
}

// Known reports whether c is in the catalogue.
func (c Code) Known() bool {
	_, ok := catalogue[c]
	return ok
}

// Codes lists every known code, in no particular order.
func Codes() []Code {
	return slices.Collect(maps.Keys(catalogue))
}
