package stripesim

import (
	"fmt"
	"net/http"
)

// The types of Stripe's errors.
const (
	cardError        = "card_error"
	invalidRequest   = "invalid_request_error"
	idempotencyError = "idempotency_error"
	apiErrorType     = "api_error"
)

// apiError is an answer other than 200.
type apiError struct {
	status      int
	kind        string // type
	code        string
	declineCode string
	advice      string
	param       string
	message     string
	charge      string
	intent      *intent
	method      *method // whose payment failed
	begun       bool    // the work had begun: an idempotency key keeps this answer
	reason      string  // of a rate limit
}

// refuse is a request that is wrong in itself. No idempotency key keeps the answer.
func refuse(code, param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: invalidRequest, code: code, param: param, message: fmt.Sprintf(format, args...)}
}

// missing is an object that there is not.
func missing(status int, what, param, id string) *apiError {
	return &apiError{status: status, kind: invalidRequest, code: "resource_missing", param: param,
		message: fmt.Sprintf("No such %s: '%s'", what, id)}
}

// conflict is a request that the state of an intent forbids.
func conflict(i *intent, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: invalidRequest, code: "payment_intent_unexpected_state",
		message: fmt.Sprintf(format, args...), intent: i, begun: true}
}

// refused is like refuse, for what shows only when the work has begun.
func refused(code, param, format string, args ...any) *apiError {
	e := refuse(code, param, format, args...)
	e.begun = true
	return e
}

func limited(reason string) *apiError {
	return &apiError{status: http.StatusTooManyRequests, kind: invalidRequest, code: "rate_limit", reason: reason,
		message: "Request rate limit exceeded. Learn more about rate limits here https://stripe.com/docs/rate-limits."}
}

func broken() *apiError {
	return &apiError{status: http.StatusInternalServerError, kind: apiErrorType, begun: true,
		message: "Sorry! There was an error while talking to one of our backends. Support has been notified."}
}

// body is the answer as Stripe writes it.
func (e *apiError) body() object {
	inner := object{"type": e.kind, "message": e.message}
	for name, value := range map[string]string{
		"code": e.code, "decline_code": e.declineCode, "advice_code": e.advice, "param": e.param, "charge": e.charge,
	} {
		if value != "" {
			inner[name] = value
		}
	}
	if e.code != "" {
		inner["doc_url"] = "https://stripe.com/docs/error-codes/" + dashed(e.code)
	}
	if e.intent != nil {
		inner["payment_intent"] = e.intent.render()
	}
	if e.method != nil {
		inner["payment_method"] = e.method.render()
	}
	return object{"error": inner}
}

func dashed(code string) string {
	text := []byte(code)
	for i, c := range text {
		if c == '_' {
			text[i] = '-'
		}
	}
	return string(text)
}
