package stripe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	stripego "github.com/stripe/stripe-go/v85"

	"triprize/internal/domain/payprovider"
)

// callError is an error of a call with what only this package needs.
type callError struct {
	public
	advice   string // Stripe's, about a retry, from Stripe-Should-Retry: true or false
	excluded bool   // it says nothing about Stripe's health
}

type public = payprovider.Error

const (
	limitedFor    = time.Second // of a 429 without Retry-After
	maxRetryAfter = 5 * time.Minute
)

// conflicts are codes of refusals because the object is in another state than the caller assumed.
var conflicts = map[stripego.ErrorCode]bool{
	stripego.ErrorCodePaymentIntentUnexpectedState:       true,
	stripego.ErrorCodeIntentInvalidState:                 true,
	stripego.ErrorCodeChargeAlreadyCaptured:              true,
	stripego.ErrorCodeChargeAlreadyRefunded:              true,
	stripego.ErrorCodeChargeExpiredForCapture:            true,
	stripego.ErrorCodeCaptureChargeAuthorizationExpired:  true,
	stripego.ErrorCodeCaptureUnauthorizedPayment:         true,
	stripego.ErrorCodePaymentIntentAuthenticationFailure: true,
	stripego.ErrorCodePaymentIntentPaymentAttemptExpired: true,
	stripego.ErrorCodePaymentIntentActionRequired:        true,
	stripego.ErrorCodePaymentIntentPaymentAttemptFailed:  true,
	stripego.ErrorCodePaymentMethodUnexpectedState:       true,
}

// classify converts the error of a request. The library's texts may quote bodies, so only those of Stripe's
// own errors and of known causes are used. caller is the context of the call.
func (c *Client) classify(caller context.Context, q request, x *exchange, err error) *callError {
	e := &callError{public: public{Status: x.status, Kind: payprovider.KindUnknown}}
	if !q.write {
		e.Kind = payprovider.KindUnavailable
	}
	if x.header != nil {
		e.RequestID = c.scrub.text(x.header.Get("Request-Id"))
		e.advice = x.header.Get("Stripe-Should-Retry")
	}
	var theirs *stripego.Error
	switch {
	case errors.As(err, &theirs):
		c.classifyAPIError(e, q, x, theirs)
	case x.status == http.StatusTooManyRequests:
		e.Kind, e.RetryAt = payprovider.KindLimited, retryAfter(x.header)
	case x.status == http.StatusUnauthorized, x.status == http.StatusForbidden:
		e.Kind, e.Message = payprovider.KindForbidden, "the key was refused"
	case x.status != 0:
		e.Message, e.Err = fmt.Sprintf("an answer that cannot be read, status %d", x.status), c.cause(err)
	default:
		if !x.reached.Load() {
			e.Kind = payprovider.KindUnavailable
		}
		e.Message, e.Err = "no answer", c.cause(err)
	}
	if x.status >= 500 && x.header.Get("Idempotent-Replayed") == "true" {
		e.Replayed, e.advice, e.excluded = true, "false", true // stored: the same key gets it again, even if Stripe has recovered
	}
	if caller.Err() != nil {
		e.excluded = true // the caller canceled it
	}
	return e
}

// classifyAPIError converts an error of Stripe's API.
func (c *Client) classifyAPIError(e *callError, q request, x *exchange, theirs *stripego.Error) {
	e.Code, e.Message = c.scrub.text(string(theirs.Code)), c.scrub.text(theirs.Msg)
	if e.Code == "" {
		e.Code = c.scrub.text(string(theirs.Type))
	}
	payment := theirs.Type == stripego.ErrorTypeCard || x.status == http.StatusPaymentRequired
	if payment {
		e.Decline = c.declineOf(theirs, rawOf(theirs.LastResponse), "error")
	}
	switch {
	case x.status >= 500, x.status == http.StatusFailedDependency, x.status == http.StatusRequestTimeout:
		// It stays unknown, or unavailable for a read.
	case x.status == http.StatusTooManyRequests:
		e.Kind, e.RetryAt = payprovider.KindLimited, retryAfter(x.header)
	case x.status == http.StatusConflict:
		e.excluded = true // a request with the same key or object is running: Stripe is healthy
	case x.status == http.StatusUnauthorized, x.status == http.StatusForbidden:
		e.Kind = payprovider.KindForbidden
	case theirs.Type == stripego.ErrorTypeIdempotency:
		e.Kind = payprovider.KindMismatch // the key was used for another request
	case payment && (q.call == callConfirm || q.call == callCreate):
		e.Kind = payprovider.KindDeclined
	case payment, conflicts[theirs.Code]:
		e.Kind = payprovider.KindConflict
	default:
		e.Kind = payprovider.KindRefused
	}
}

// isRetryable reports whether a request is repeated with the same key.
func isRetryable(e *callError) bool {
	switch {
	case e.Kind == payprovider.KindDeclined || e.Kind == payprovider.KindMismatch || e.advice == "false":
		return false
	case e.advice == "true":
		return true
	case e.Kind == payprovider.KindLimited:
		return e.Code == string(stripego.ErrorCodeLockTimeout) // another request held the object for a moment
	case e.Kind == payprovider.KindUnavailable:
		return e.RetryAt.IsZero() // else the breaker is open
	case e.Kind == payprovider.KindUnknown:
		return e.Status != http.StatusInternalServerError // Stripe stores it under the key
	}
	return false
}

// retryAfter returns when to retry after a 429.
func retryAfter(header http.Header) time.Time {
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil && seconds >= 0 {
		return time.Now().Add(min(max(time.Duration(seconds)*time.Second, limitedFor), maxRetryAfter))
	}
	return time.Now().Add(limitedFor)
}

// cause returns an error of the network, the context or a limit, without any body or URL.
func (c *Client) cause(err error) error {
	var ofURL *url.Error
	if errors.As(err, &ofURL) {
		err = ofURL.Err
	}
	var ofNet net.Error
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return err
	case errors.As(err, &ofNet), errors.As(err, &tooLarge):
		return errors.New(c.scrub.text(err.Error()))
	case ofURL != nil:
		return errors.New(c.scrub.text(err.Error()))
	}
	return nil
}

// declineOf returns why a payment failed. The library lacks advice_code, so it is read from field of the JSON.
func (c *Client) declineOf(theirs *stripego.Error, raw []byte, field string) *payprovider.Decline {
	var all map[string]json.RawMessage
	var advised struct {
		Advice string `json:"advice_code"`
	}
	if json.Unmarshal(raw, &all) == nil {
		_ = json.Unmarshal(all[field], &advised) // it may be missing
	}
	return &payprovider.Decline{
		Code:        c.scrub.text(string(theirs.Code)),
		DeclineCode: c.scrub.text(string(theirs.DeclineCode)),
		Advice:      c.scrub.text(advised.Advice),
		Message:     c.scrub.text(theirs.Msg),
	}
}

func rawOf(response *stripego.APIResponse) []byte {
	if response == nil {
		return nil
	}
	return response.RawJSON
}

// mismatch is the error of an answer that does not match the request.
func mismatch(format string, values ...any) *callError {
	return &callError{public: public{Kind: payprovider.KindMismatch, Message: fmt.Sprintf(format, values...)}}
}

// invalidAnswer is the error of an answer with status 200 that is not the requested object.
func invalidAnswer() *callError {
	return &callError{public: public{Kind: payprovider.KindUnknown, Message: "the answer is not the requested object"}, excluded: true}
}

// maxText is the maximum length of Stripe's texts in errors and logs, in bytes.
const maxText = 500

// secretTexts matches client secrets (pi_…_secret_…), keys and possible card numbers.
var secretTexts = regexp.MustCompile(`_secret_[A-Za-z0-9]+|\b[srp]k_(?:test|live)_[A-Za-z0-9*]+|\b(?:\d[ -]?){12,18}\d\b`)

// scrubber removes secrets from texts.
type scrubber struct{ replacer *strings.Replacer }

func newScrubber(secrets []string) scrubber {
	var pairs []string
	for _, secret := range secrets {
		if secret != "" {
			pairs = append(pairs, secret, "…")
		}
	}
	return scrubber{strings.NewReplacer(pairs...)}
}

func (s scrubber) text(text string) string {
	text = secretTexts.ReplaceAllString(s.replacer.Replace(text), "…")
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.ToValidUTF8(text, "…")
}
