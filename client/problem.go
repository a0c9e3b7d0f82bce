package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Error is a refusal: of a request, or of a job that has failed.
//
// Its Code is empty when the answer is not from Triprize, but from a proxy before
// it, say; its Status is that of the answer then.
type Error struct {
	Problem
	RetryAfter time.Duration // what the server asks to wait; 0 when it does not
}

// Error says what the matter is, and under which request it is found in the server's log.
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

// problemOf makes an Error of an answer, whatever is in it.
func problemOf(response *http.Response, body []byte) *Error {
	e := &Error{}
	if err := json.Unmarshal(body, &e.Problem); err != nil || e.Code == "" {
		e.Problem = Problem{Title: http.StatusText(response.StatusCode), Detail: strings.ToLower(http.StatusText(response.StatusCode))}
		if elsewhere := response.Header.Get("Location"); elsewhere != "" {
			e.Detail += ", to " + elsewhere // which is not followed: the base URL is not right
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
	CodeKeyReused             = "idempotency-key-reused" // for another request
	CodeUnauthenticated       = "unauthenticated"
	CodeForbidden             = "forbidden"
	CodeNotFound              = "not-found"
	CodeMethodNotAllowed      = "method-not-allowed"
	CodeBodyTooLarge          = "body-too-large"
	CodeUnsupportedMediaType  = "unsupported-media-type"
	CodeRequestTimeout        = "request-timeout"
	CodeHeadersTooLarge       = "headers-too-large"
	CodeCampaignNotActive     = "campaign-not-active"
	CodeCampaignPaused        = "campaign-paused"
	CodeSaleNotOpen           = "sale-not-open"
	CodeSoldOut               = "sold-out"       // every position: final
	CodeNoneAvailable         = "none-available" // the rest is held or reserved, and may be free again
	CodePositionTaken         = "position-taken" // errors names which
	CodeHoldExpired           = "hold-expired"
	CodeHoldLimitExceeded     = "hold-limit-exceeded"
	CodePurchaseLimitExceeded = "purchase-limit-exceeded"
	CodeInsufficientFunds     = "insufficient-funds"
	CodeNotSoldOut            = "not-sold-out"
	CodeStateConflict         = "state-conflict"
	CodeVersionMismatch       = "version-mismatch" // of If-Match
	CodeReservationExpired    = "reservation-expired"
	CodeRateLimited           = "rate-limited"
	CodeUnavailable           = "unavailable"
	CodeOverloaded            = "overloaded"
	CodeInternalError         = "internal-error"
)
