package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// CallOption changes one call.
type CallOption func(*request)

// WithKey sets the Idempotency-Key of a POST, 1 to 255 printable ASCII characters.
// With the key of an earlier call it repeats that call and gets the same answer.
// Requests other than POST have no key.
func WithKey(key string) CallOption {
	return func(r *request) {
		r.key = key
		if key == "" || len(key) > 255 || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
			r.wrong = fmt.Errorf("client: %q is not an Idempotency-Key: 1 to 255 printable ASCII characters", key)
		}
	}
}

// WithWait lets the server answer when the job is final, or after d (in whole
// seconds). It is for methods that return a Job. The server may allow less.
func WithWait(d time.Duration) CallOption {
	return func(r *request) { r.wait = d.Truncate(time.Second) }
}

// WithVersion makes a wallet command conditional: if the wallet has another version
// by now, the command is refused with CodeVersionMismatch.
func WithVersion(version int64) CallOption {
	return func(r *request) { r.version = &version }
}

// WithReason says why an operator changes something, for the audit trail.
func WithReason(reason string) CallOption {
	return func(r *request) { r.reason = reason }
}

// request is one call, which may need several attempts.
type request struct {
	method string
	path   string
	query  url.Values
	body   any
	key    string
	wait   time.Duration // preferred, in whole seconds

	untilFinal bool         // an action that the buyer owes is no reason to answer
	seen       string       // Last-Event-ID
	version    *int64       // If-Match
	accept     string       // media types; empty: those of documents and streams
	etag       *string      // If-None-Match, and where the ETag of the answer goes; nil: none
	headers    *http.Header // receives the headers of the answer; nil: not wanted
	reason     string       // for the audit trail; empty: none
	wrong      error        // of an option
}

// path puts values into a path, each as one segment.
func path(format string, values ...any) string {
	segments := make([]any, len(values))
	for i, v := range values {
		segment := url.PathEscape(fmt.Sprint(v))
		if segment == "." || segment == ".." { // it would change the path
			segment = strings.ReplaceAll(segment, ".", "%2E")
		}
		segments[i] = segment
	}
	return fmt.Sprintf(format, segments...)
}

// put adds a value to a query, unless it is zero.
func put[T comparable](query url.Values, name string, value T) {
	var zero T
	text := fmt.Sprint(value)
	if at, ok := any(value).(time.Time); ok {
		text = at.Format(time.RFC3339Nano)
	}
	if value != zero {
		query.Set(name, text)
	}
}

// malformedError is an answer, or a request, that does not fit the contract.
type malformedError struct{ err error }

func (e *malformedError) Error() string { return "the answer cannot be used: " + e.err.Error() }
func (e *malformedError) Unwrap() error { return e.err }

// send makes a call and decodes its answer.
func send[T any](ctx context.Context, c *Client, r request, options []CallOption) (T, error) {
	var result T
	for _, option := range options {
		option(&r)
	}
	if r.wrong != nil {
		return result, r.wrong
	}
	switch {
	case r.method != http.MethodPost:
		r.key = ""
	case r.key == "":
		r.key = uuid.NewString()
	}
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return result, fmt.Errorf("client: %s %s: %w", r.method, r.path, err)
		}
	}
	result, err := retried(ctx, c.retry, r, func() (T, error) { return attempt[T](ctx, c, r, body) })
	if err != nil {
		return result, fmt.Errorf("client: %s: %w", r, err)
	}
	return result, nil
}

// String names a call in errors, with its key, so that a person can repeat it.
func (r request) String() string {
	if r.key == "" {
		return r.method + " " + r.path
	}
	return fmt.Sprintf("%s %s (Idempotency-Key %s)", r.method, r.path, r.key)
}

// attempt sends a request once and reads the whole answer.
func attempt[T any](ctx context.Context, c *Client, r request, body []byte) (result T, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout+r.wait)
	defer cancel()
	response, err := c.open(ctx, r, body)
	if err != nil {
		return result, err
	}
	defer func() { _ = response.Body.Close() }()
	if r.headers != nil {
		*r.headers = response.Header
	}
	answer, err := c.read(response)
	if err != nil {
		return result, err
	}
	if response.StatusCode == http.StatusNotModified && r.etag != nil {
		return result, ErrNotModified
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return result, problemOf(response, answer)
	}
	if response.StatusCode == http.StatusAccepted && strings.HasPrefix(response.Header.Get("Location"), approvals) {
		waits := new(ApprovalRequested)
		if err := json.Unmarshal(answer, &waits.Approval); err != nil {
			return result, &malformedError{err}
		}
		return result, waits
	}
	if _, nothing := any(result).(struct{}); nothing {
		return result, nil
	}
	if err := json.Unmarshal(answer, &result); err != nil {
		var none T
		return none, &malformedError{err}
	}
	if r.etag != nil {
		*r.etag = response.Header.Get("ETag")
	}
	return result, nil
}

// open sends a request; the answer is not read yet.
func (c *Client) open(ctx context.Context, r request, body []byte) (*http.Response, error) {
	address := c.base + r.path
	if query := r.query.Encode(); query != "" {
		address += "?" + query
	}
	sent, err := http.NewRequestWithContext(ctx, r.method, address, bytes.NewReader(body))
	if err != nil {
		return nil, &malformedError{err} // the request itself is wrong: another attempt does not help
	}
	h := sent.Header
	h.Set("Authorization", "Bearer "+c.credential)
	h.Set("User-Agent", c.userAgent)
	h.Set("Accept", cmp.Or(r.accept, "application/json, application/problem+json, text/event-stream"))
	if r.body != nil {
		h.Set("Content-Type", "application/json")
	}
	if r.version != nil {
		h.Set("If-Match", `"`+strconv.FormatInt(*r.version, 10)+`"`)
	}
	if r.etag != nil && *r.etag != "" {
		h.Set("If-None-Match", *r.etag)
	}
	for name, value := range map[string]string{"Idempotency-Key": r.key, "Last-Event-ID": r.seen, "Triprize-Reason": url.PathEscape(r.reason), "Triprize-Operator": url.PathEscape(c.operator)} {
		if value != "" {
			h.Set(name, value)
		}
	}
	if r.wait > 0 {
		prefer := "wait=" + strconv.FormatInt(int64(r.wait/time.Second), 10)
		if r.untilFinal {
			prefer += "; until=final"
		}
		h.Set("Prefer", prefer)
	}
	return c.http.Do(sent)
}

// read reads the whole body, so that the connection can be reused. A body over the
// bound is an error.
func (c *Client) read(response *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, c.maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > c.maxAnswer {
		return nil, &malformedError{errors.New("it is over " + strconv.FormatInt(c.maxAnswer, 10) + " bytes")}
	}
	return body, nil
}
