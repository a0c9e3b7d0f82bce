package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Error is a refusal: of a request, or of a job that has failed.
//
// Code is empty when the answer is not from Triprize but, for example, from a proxy
// in front of it; Status is then that of the answer.
type Error struct {
	Problem
	RetryAfter time.Duration // how long to wait, by the server; 0 when it does not say
}

// Error returns status, code, detail, and the request id, which is in the server's log.
func (e *Error) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d", e.Status)
	for _, part := range []string{e.Code, e.Detail} {
		if part != "" {
			text.WriteString(" " + part)
		}
	}
	if e.RequestID != "" {
		text.WriteString(" (request " + e.RequestID + ")")
	}
	return text.String()
}

// asType finds the first error of type T in the tree of err. (errors.AsType needs Go 1.26.)
func asType[T error](err error) (found T, ok bool) {
	ok = errors.As(err, &found)
	return found, ok
}

// problemOf turns any answer into an Error.
func problemOf(response *http.Response, body []byte) *Error {
	e := &Error{}
	if err := json.Unmarshal(body, &e.Problem); err != nil || e.Code == "" {
		e.Problem = Problem{Title: http.StatusText(response.StatusCode), Detail: strings.ToLower(http.StatusText(response.StatusCode))}
		if elsewhere := response.Header.Get("Location"); elsewhere != "" {
			e.Detail += ", to " + elsewhere // not followed: the base URL must be wrong
		}
	}
	e.Status, e.RetryAfter = response.StatusCode, retryAfter(response.Header)
	if e.RequestID == "" {
		e.RequestID = response.Header.Get("X-Request-ID")
	}
	return e
}

// The codes of an Error.
const (
	CodeInvalidRequest        = "invalid-request"
	CodeKeyMissing            = "idempotency-key-missing"
	CodeKeyInvalid            = "idempotency-key-invalid"
	CodeKeyReused             = "idempotency-key-reused" // the key was used for another request
	CodeUnauthenticated       = "unauthenticated"
	CodeForbidden             = "forbidden"
	CodeNotFound              = "not-found"
	CodeMethodNotAllowed      = "method-not-allowed"
	CodeBodyTooLarge          = "body-too-large"
	CodeUnsupportedMediaType  = "unsupported-media-type"
	CodeLengthRequired        = "length-required"
	CodeRequestTimeout        = "request-timeout"
	CodeHeadersTooLarge       = "headers-too-large"
	CodeCampaignNotActive     = "campaign-not-active"
	CodeCampaignPaused        = "campaign-paused"
	CodeSaleNotOpen           = "sale-not-open"
	CodeSoldOut               = "sold-out"       // every position is sold: final
	CodeNoneAvailable         = "none-available" // the rest is held or reserved, and may become free again
	CodePositionTaken         = "position-taken" // Errors names the positions
	CodeHoldExpired           = "hold-expired"
	CodeHoldLimitExceeded     = "hold-limit-exceeded"
	CodePurchaseLimitExceeded = "purchase-limit-exceeded"
	CodeInsufficientFunds     = "insufficient-funds"
	CodeNotSoldOut            = "not-sold-out"
	CodeStateConflict         = "state-conflict"
	CodeVersionMismatch       = "version-mismatch" // see WithVersion
	CodeReservationExpired    = "reservation-expired"
	CodePaymentDeclined       = "payment-declined"     // DeclineCode and Advice say why, and what the buyer can do
	CodePaymentRefused        = "payment-refused"      // by the payment provider: another payment method is needed
	CodePaymentNotReceived    = "payment-not-received" // an operator has found that nothing was paid
	CodePurchaseCancelled     = "purchase-cancelled"   // before it was paid
	CodePurchaseDisputed      = "purchase-disputed"    // its money is in the hands of the bank
	CodeCardsNotAccepted      = "cards-not-accepted"
	CodeWalletExists          = "wallet-exists" // About is the wallet
	CodeRateLimited           = "rate-limited"
	CodeUnavailable           = "unavailable"
	CodeOverloaded            = "overloaded"
	CodeInternalError         = "internal-error"
)
