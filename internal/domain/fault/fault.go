package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Field names one invalid part of a request.
type Field struct {
	Pointer string `json:"pointer"` // JSON pointer (RFC 6901) into the body, or a header or query name
	Detail  string `json:"detail"`
}

// Error is a failure that its receiver can act on.
type Error struct {
	Code    Code
	Message string    // one sentence for the person who reads the answer; may name the values at fault
	Fields  []Field   // the fields at fault: invalid ones, and positions that are taken
	About   About     // the resource in the way, for programs; zero: none has an id
	RetryAt time.Time // when the same may succeed; zero: nobody knows
	ForAll  bool      // whoever asks for the same is refused, too, until something changes; for this system, never shown
	Err     error     // the cause; for logs, never shown to clients

	// With PaymentDeclined, in the provider's words: why, such as insufficient_funds,
	// and what the buyer can do, such as try_again_later.
	DeclineCode, Advice string
}

// About is a resource that is in the way of a request.
type About struct {
	Kind  AboutKind `json:"kind"`
	ID    string    `json:"id"`
	JobID string    `json:"job_id,omitempty"` // of a purchase that is not paid yet
}

// AboutKind is what a resource is.
type AboutKind string

// The kinds of resources in the way.
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

// Wrap returns an Error that says message and keeps err as its cause.
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
func Taken(gone ...Field) *Error {
	details := make([]string, len(gone))
	for i, f := range gone {
		details[i] = f.Detail
	}
	return &Error{Code: PositionTaken, Message: strings.Join(details, "; "), Fields: gone}
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

// At says where err happened: the name of a function, and its arguments formatted like
// fmt.Sprintf. A nil err stays nil.
func At(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// From returns the Error in err's chain, or an internal-error one that wraps err.
func From(err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	return Wrap(InternalError, err, "an unexpected error; it has been recorded")
}

// CodeOf returns the code of the Error in err's chain, or internal-error; for a nil err it is empty.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return From(err).Code
}
